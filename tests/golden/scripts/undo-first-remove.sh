# Nothing of this deployment is left on this node but caches.
set -euo pipefail
if ! problem=$(docker version 2>&1 >/dev/null); then
  # When Docker comes back it starts the container again: the supervisor then reads this and stays down.
  [ ! -d ~/.spark-deploy/home/spark-1/run ] || printf 'down\n' > ~/.spark-deploy/home/spark-1/run/desired
  printf 'Docker does not answer, so the container %s cannot be removed: %s\n' spark-deploy-home "$problem"
  exit 1
fi
image=$(docker inspect --format '{{.Image}}' spark-deploy-home 2>/dev/null) || image=
docker rm --force spark-deploy-home >/dev/null 2>&1 || true   # none: fine
if docker inspect spark-deploy-home >/dev/null 2>&1; then
  printf 'the container %s cannot be removed:\n' spark-deploy-home
  docker rm --force spark-deploy-home
fi
folder=~/.spark-deploy/home/spark-1
if ! rm --recursive --force "$folder" 2>/dev/null && [ -n "$image" ]; then
  # A supervisor that was killed before it gave its files to us leaves them root's.
  docker run --rm --pull never --network none --entrypoint rm --volume "$folder":/gone "$image" \
    --recursive --force /gone/run /gone/releases
fi
rm --recursive --force "$folder"
rmdir ~/.spark-deploy/home 2>/dev/null || true   # another node's folder lies there (a shared home)
