#!/usr/bin/env bash
# trio-2's container runs as this release folder says. A container of another release is left alone.
set -euo pipefail

folder=$(cd "$(dirname "$0")" && pwd)
release=$(basename "$folder")
run=$(cd "$folder/../.." && pwd)/run
huggingface=~/.cache/huggingface
cache=~/.cache/spark-deploy
container=spark-deploy-trio

present=$(docker container inspect --format '{{.State.Running}} {{index .Config.Labels "spark-deploy.release"}}' \
  "$container" 2>/dev/null) || true   # none yet: fine
if [ "$present" = "true $release" ]; then
  exit 0
fi

if [ ! -r "$run/secrets.env" ]; then
  echo "$run/secrets.env is missing: \`spark-deploy up\` writes it" >&2
  exit 1
fi

# Docker would make missing folders as root.
mkdir --parents "$huggingface" "$cache"

exec docker run \
  --detach \
  --init \
  --name "$container" \
  --pull never \
  --restart always \
  --stop-timeout 30 \
  --network host \
  --device /dev/infiniband \
  --ulimit memlock=-1:-1 \
  --ulimit stack=67108864 \
  --ulimit nofile=65536:65536 \
  --shm-size 16g \
  --gpus all \
  --log-driver local \
  --log-opt max-size=50m \
  --log-opt max-file=4 \
  --label spark-deploy.deployment=trio \
  --label spark-deploy.node=trio-2 \
  --label spark-deploy.role=worker \
  --label spark-deploy.release="$release" \
  --env-file "$folder/node.env" \
  --mount type=bind,source="$folder",target=/spark-deploy/release,readonly \
  --mount type=bind,source="$run",target=/spark-deploy/run \
  --mount type=bind,source="$huggingface",target=/spark-deploy/huggingface \
  --mount type=bind,source="$cache",target=/spark-deploy/cache \
  --entrypoint python3 \
  eugr/spark-vllm:latest \
  /spark-deploy/release/supervise.py
