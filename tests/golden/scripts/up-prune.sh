# Only the releases named here are left on this node.
set -euo pipefail
cd ~/.spark-deploy/home/spark-1/releases
for release in *; do
  case "$release" in
    <release>) ;;
    0123456789ab) ;;
    *) rm --recursive --force -- "$release" ;;
  esac
done
