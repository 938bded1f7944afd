# The container of this release runs on this node.
set -euo pipefail
bash ~/.spark-deploy/home/spark-1/releases/0123456789ab/run.sh
