# What this node is and has, in sections; nothing is changed.
set -u
export LC_ALL=C
section() { printf '\n@@ %s\n' "$1"; }

section user
id --user --name
printf '%s\n' "$HOME"
uname --machine
date +%s.%N

section docker
docker version --format '{{.Server.Version}}' 2>&1 || true   # the complaint is the fact

section containers
list() { docker ps --all --quiet --no-trunc --filter "$1" 2>/dev/null || true; }   # said above
ids=$(list label=spark-deploy.deployment; list name='^/spark-deploy-home$')
if [ -n "$ids" ]; then
  # shellcheck disable=SC2086  # one word per container
  docker inspect $ids 2>/dev/null || true   # one may vanish in between
fi

section image
docker image inspect example/vllm:1 2>/dev/null || true   # not here: an empty section

section model
model=~/.cache/huggingface/hub/models--org--tiny
reference=main
if [ -r "$model/refs/$reference" ]; then
  reference=$(cat "$model/refs/$reference")   # a branch or a tag; else it is a commit itself
fi
model="$model/snapshots/$reference"
if [ -d "$model" ]; then
  printf 'folder %s\n' "$model"
  [ ! -s "$model/config.json" ] || printf 'config\n'
  find -L "$model" -maxdepth 1 -type f -size +0 \( -name '*.safetensors' -o -name '*.bin' -o -name '*.gguf' \) -printf 'weight %f\n'
  if [ -r "$model/model.safetensors.index.json" ]; then
    grep --only-matching --extended-regexp '"[^"]+\.safetensors"' "$model/model.safetensors.index.json" \
      | sort --unique | sed 's/^"/wanted /; s/"$//'
  fi
fi

section addresses
ip -json -4 address show 2>/dev/null || true   # no iproute2: no addresses

section routes
ip -json route get 192.168.200.2 2>/dev/null || true   # no route: the peer is missing in the answer

section listeners
ss --no-header --listening --tcp --udp --numeric --processes 2>/dev/null || true   # no ss: nothing known

section infiniband
for hca in /sys/class/infiniband/*; do [ ! -e "$hca" ] || printf 'hca %s\n' "${hca##*/}"; done
for device in /dev/infiniband/*; do [ ! -e "$device" ] || printf 'device %s\n' "${device##*/}"; done

section releases
releases=~/.spark-deploy/home/spark-1/releases
if [ -d "$releases" ]; then
  (cd "$releases" && find . -mindepth 2 -type f -exec sha256sum {} + 2>/dev/null) || true
fi

section state
cat ~/.spark-deploy/home/spark-1/run/state.json 2>/dev/null || true   # none yet

section desired
cat ~/.spark-deploy/home/spark-1/run/desired 2>/dev/null || true   # none yet

section lock
if [ -d ~/.spark-deploy/locks/home.spark-1 ]; then
  printf 'held\n'
  cat ~/.spark-deploy/locks/home.spark-1/holder 2>/dev/null || true   # a run that died between mkdir and write
fi

section disk
folder=~/.spark-deploy/home/spark-1/releases
while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
df --output=avail --block-size=1 "$folder" | tail -n 1

section end
