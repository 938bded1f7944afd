# The container of this release runs on this node.
set -euo pipefail
if ! grep --quiet --fixed-strings "\"run\": \"$SPARK_DEPLOY_RUN\"" ~/.spark-deploy/locks/home.spark-1/holder 2>/dev/null; then
  printf 'taken\n'   # somebody broke our lock: what runs here now is no longer ours to change
  exit 6
fi
bash ~/.spark-deploy/home/spark-1/releases/0123456789ab/run.sh
