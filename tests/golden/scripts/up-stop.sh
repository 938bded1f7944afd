# No container of this deployment is left on this node, whatever its name; its files stay.
set -euo pipefail
if ! grep --quiet --fixed-strings "\"run\": \"$SPARK_DEPLOY_RUN\"" ~/.spark-deploy/locks/home.spark-1/holder 2>/dev/null; then
  printf 'taken\n'   # somebody broke our lock: what runs here now is no longer ours to change
  exit 6
fi
ours() { docker ps --all --quiet --no-trunc --filter label=spark-deploy.deployment=home; }
for id in $(ours); do
  docker rm --force "$id" >/dev/null 2>&1 || true   # gone meanwhile, or seen below
done
for id in $(ours); do
  printf 'the container %s cannot be removed:\n' "$id"
  docker rm --force "$id"
done
