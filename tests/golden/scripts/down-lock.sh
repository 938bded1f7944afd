# This run holds the lock on this node, and the node runs what the plan was made for.
# SPARK_DEPLOY_RUN and SPARK_DEPLOY_HOLDER (who and when, as JSON) are set by the run.
set -euo pipefail
lock=~/.spark-deploy/locks/home.spark-1
umask 077
mkdir --parents ~/.spark-deploy/locks
if grep --quiet --fixed-strings "\"run\": \"$SPARK_DEPLOY_RUN\"" "$lock/holder" 2>/dev/null; then
  exit 0   # ours already: the connection was lost after the lock was taken
fi
if ! mkdir "$lock" 2>/dev/null; then
  printf 'locked\n'
  cat "$lock/holder" 2>/dev/null || true   # the other run has not written it yet
  exit 6
fi
if ! printf '%s\n' "$SPARK_DEPLOY_HOLDER" > "$lock/holder"; then   # a full disk: a lock without a name would stay
  rm --recursive --force "$lock"
  exit 1
fi
found=$(docker inspect --format '{{index .Config.Labels "spark-deploy.release"}}' spark-deploy-home 2>/dev/null) || found=none
expected=any
if [ "$expected" != any ] && [ "$found" != "$expected" ]; then
  rm --recursive --force "$lock"
  printf 'changed\n%s\n' "$found"
  exit 1
fi
