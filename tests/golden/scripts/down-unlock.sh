# The lock on this node is gone, if it was this run's (SPARK_DEPLOY_RUN).
set -euo pipefail
lock=~/.spark-deploy/locks/home.spark-1
if grep --quiet --fixed-strings "\"run\": \"$SPARK_DEPLOY_RUN\"" "$lock/holder" 2>/dev/null; then
  rm --recursive --force "$lock"
fi
rmdir ~/.spark-deploy/locks ~/.spark-deploy 2>/dev/null || true   # other deployments live there
