# run/ exists, and says that this release shall be up (SPARK_DEPLOY_RUN is set by the run).
set -euo pipefail
if ! grep --quiet --fixed-strings "\"run\": \"$SPARK_DEPLOY_RUN\"" ~/.spark-deploy/locks/home.spark-1/holder 2>/dev/null; then
  printf 'taken\n'   # somebody broke our lock: what runs here now is no longer ours to change
  exit 6
fi
umask 077
mkdir --parents ~/.spark-deploy/home/spark-1/run
rm --force ~/.spark-deploy/home/spark-1/run/state.json
printf 'up %s\n' "$SPARK_DEPLOY_RUN" > ~/.spark-deploy/home/spark-1/run/desired
