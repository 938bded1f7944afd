# The files of a release that did not come to serve are gone.
set -euo pipefail
rm --recursive --force ~/.spark-deploy/home/spark-1/releases/<release>
