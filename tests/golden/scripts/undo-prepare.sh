# run/ exists, and says that this release shall be up (SPARK_DEPLOY_RUN is set by the run).
set -euo pipefail
umask 077
mkdir --parents ~/.spark-deploy/home/spark-1/run
rm --force ~/.spark-deploy/home/spark-1/run/state.json
printf 'up %s\n' "$SPARK_DEPLOY_RUN" > ~/.spark-deploy/home/spark-1/run/desired
