# What the memory model needs of the served model, and the round trip to the API on this node itself, in sections.
set -u
export LC_ALL=C
section() { printf '\n@@ %s\n' "$1"; }
model=~/.cache/huggingface/hub/models--org--tiny
reference=main
if [ -r "$model/refs/$reference" ]; then
  reference=$(cat "$model/refs/$reference")   # a branch or a tag; else it is a commit itself
fi
model="$model/snapshots/$reference"

section config
cat "$model/config.json" 2>/dev/null || true   # a GGUF file has none

section total_size
grep --only-matching --extended-regexp '"total_size": *[0-9]+' "$model/model.safetensors.index.json" 2>/dev/null || true   # one file has no index

section files
find -L "$model" -maxdepth 1 -type f -name '*.safetensors' -printf '%s\n' 2>/dev/null || true

section rtt
# All on one connection: the first also takes the connecting.
asked=()
for _ in 1 2 3 4 5 6; do asked+=(--output /dev/null http://127.0.0.1:8000/health); done
curl --silent --globoff --max-time 10 --write-out '%{time_total}\n' "${asked[@]}" 2>/dev/null || true   # no curl: not measured

section end
