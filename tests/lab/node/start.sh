#!/bin/bash
# A node's PID 1, second half: sshd and (where the node has an engine) dockerd run, and dockerd comes back when it dies.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

ip link set lo up

# /sys/class with one class more: a tmpfs over it, every real class bound back, the fake one laid beside them.
mkdir -p /run/sys-class
mount --bind /sys/class /run/sys-class
mount -t tmpfs -o mode=755 lab-sys-class /sys/class
for class in /run/sys-class/*; do
  mkdir "/sys/class/${class##*/}"
  mount --bind "$class" "/sys/class/${class##*/}"
done
[ -d /lab/sys-class ] && cp -a /lab/sys-class/. /sys/class/

/usr/sbin/sshd -D -e -f /etc/ssh/sshd_config >>/var/log/lab/sshd.log 2>&1 &

# Docker's unit has Restart=always; its RestartSec is 2 s.
engine() {
  while :; do
    dockerd --bridge=none --iptables=false --ip6tables=false --host=unix:///var/run/docker.sock \
      --cgroup-parent="/$1" >>/var/log/lab/dockerd.log 2>&1
    sleep "$(cat /run/dockerd-pause 2>/dev/null || echo 2)"
  done
}
[ -f /lab/cgroup ] && engine "$(cat /lab/cgroup)" &

# bash as PID 1 reaps orphans while it waits.
while :; do
  sleep infinity &
  wait $!
done
