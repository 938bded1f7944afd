# The container of this release runs on this node.
set -euo pipefail
bash ~/.spark-deploy/home/spark-1/releases/<release>/run.sh
