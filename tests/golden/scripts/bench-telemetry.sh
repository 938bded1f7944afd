# A line every 2 s says how this node does, until the script is ended; nothing is changed.
# It costs one nvidia-smi per line; all the rest is read by the shell itself.
set -u
export LC_ALL=C
fields=clocks.sm,temperature.gpu,power.draw,utilization.gpu
for reasons in clocks_event_reasons.active clocks_throttle_reasons.active; do   # the older drivers' name is second
  if nvidia-smi --query-gpu="$reasons" --format=csv,noheader >/dev/null 2>&1; then
    fields="$fields,$reasons"
    break
  fi
done

# The sum of the counters in these files, or nothing where one is missing.
sum() {
  local total=0 value file
  for file in "$@"; do
    [ -r "$file" ] && read -r value <"$file" || return 0
    total=$((total + value))
  done
  printf '%s' "$total"
}

while true; do
  gpu=$(timeout 10 nvidia-smi --query-gpu="$fields" --format=csv,noheader,nounits 2>&1 | head -n 1)
  memory=
  while read -r name value _; do
    [ "$name" != MemAvailable: ] || memory=$value
  done </proc/meminfo
  netdev=$(sum /sys/class/net/enp1s0f1np1/statistics/{rx,tx}_bytes)
  words=$(sum /sys/class/infiniband/rocep1s0f1/ports/1/counters/port_{rcv,xmit}_data /sys/class/infiniband/roceP2p1s0f1/ports/1/counters/port_{rcv,xmit}_data)
  printf 'gpu=%s\tmemory_kib=%s\tnetdev_bytes=%s\trdma_words=%s\n' "$gpu" "$memory" "$netdev" "$words"
  sleep 2
done
