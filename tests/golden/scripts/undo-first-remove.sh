# Nothing of this deployment is left on this node but caches.
set -euo pipefail
if ! grep --quiet --fixed-strings "\"run\": \"$SPARK_DEPLOY_RUN\"" ~/.spark-deploy/locks/home.spark-1/holder 2>/dev/null; then
  printf 'taken\n'   # somebody broke our lock: what runs here now is no longer ours to change
  exit 6
fi
if ! problem=$(docker version 2>&1 >/dev/null); then
  # When Docker comes back it starts the container again: the supervisor then reads this and stays down.
  [ ! -d ~/.spark-deploy/home/spark-1/run ] || printf 'down\n' > ~/.spark-deploy/home/spark-1/run/desired
  printf 'Docker does not answer, so the container %s cannot be removed: %s\n' spark-deploy-home "$problem"
  exit 1
fi
ours() { docker ps --all --quiet --no-trunc --filter label=spark-deploy.deployment=home; }
image=
folders=(~/.spark-deploy/home/spark-1)
for id in $(ours); do   # whatever its name: somebody may have renamed it
  image=$(docker inspect --format '{{.Image}}' "$id" 2>/dev/null) || image=
  # Under another node name or login its files lie elsewhere: where its run/ is mounted from.
  run=$(docker inspect --format '{{range .Mounts}}{{if eq .Destination "/spark-deploy/run"}}{{.Source}}{{end}}{{end}}' "$id" 2>/dev/null) || run=
  case "$run" in
    */home/*/run) [ "${run%/run}" = "${folders[0]}" ] || folders+=("${run%/run}") ;;
  esac
  docker rm --force "$id" >/dev/null 2>&1 || true   # gone meanwhile, or seen below
done
for id in $(ours); do
  printf 'the container %s cannot be removed:\n' "$id"
  docker rm --force "$id"
done
for folder in "${folders[@]}"; do
  if ! rm --recursive --force "$folder" 2>/dev/null && [ -n "$image" ]; then
    # A supervisor that was killed before it gave its files to us leaves them root's.
    docker run --rm --pull never --network none --entrypoint rm --volume "$folder":/gone "$image" \
      --recursive --force /gone/run /gone/releases
  fi
  rm --recursive --force "$folder"
  rmdir "$(dirname "$folder")" 2>/dev/null || true   # another node's folder lies there (a shared home)
done
