# No container of this deployment is left on this node; its files stay.
set -euo pipefail
docker rm --force spark-deploy-home >/dev/null 2>&1 || true   # none: fine
if docker inspect spark-deploy-home >/dev/null 2>&1; then
  printf 'the container %s cannot be removed:\n' spark-deploy-home
  docker rm --force spark-deploy-home
fi
