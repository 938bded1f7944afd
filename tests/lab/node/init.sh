#!/bin/bash
# A node's PID 1, first half: the machine's own root, /dev, /sys, /proc and disk are in place, then start.sh goes on.
#
# Runs inside fresh net, mount, uts, ipc and pid namespaces. Usage: init.sh NAME FOLDER [BIND…]
# FOLDER lies on a real disk: docker/ (engine), disk/ (what survives a power cut), files/ (laid over /), boot_id.
set -euo pipefail
name=$1 folder=$2
shift 2

mount --make-rprivate /
hostname "$name"

# The upper layer is a tmpfs: it may not lie below lowerdir=/, and it is lost with the power, as /tmp is.
volatile=$folder/root
mkdir -p "$volatile"
mount -t tmpfs -o size=2g,mode=755 lab-volatile "$volatile"
mkdir -p "$volatile/upper" "$volatile/work" "$volatile/merged"
root=$volatile/merged
mount -t overlay -o "lowerdir=/,upperdir=$volatile/upper,workdir=$volatile/work" lab-root "$root"

mount -t proc proc "$root/proc"
# Every node runs on the same kernel, so the kernel's own boot id never changes.
mount --bind "$folder/boot_id" "$root/proc/sys/kernel/random/boot_id"
# A fresh sysfs shows this network namespace in /sys/class/net; dockerd wants the cgroup mounts in it.
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"

mount -t tmpfs -o mode=755 lab-dev "$root/dev"
for device in null zero full random urandom tty fuse kmsg; do
  [ -e "/dev/$device" ] && cp -a "/dev/$device" "$root/dev/"
done
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue" "$root/dev/infiniband"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o size=4g,mode=1777 shm "$root/dev/shm"   # not shared: ranks must not meet over shared memory
mount -t mqueue mqueue "$root/dev/mqueue"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
for fake in infiniband/uverbs0 infiniband/uverbs1 infiniband/rdma_cm nvidia0 nvidiactl; do
  mknod "$root/dev/$fake" c 1 3   # like /dev/null
done

mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mkdir -p "$root/run/sshd" "$root/run/lock" "$root/var/lib/docker" "$root/var/log/lab" "$root/home" "$root/root" "$root/srv"
mount --bind "$folder/docker" "$root/var/lib/docker"   # overlay2 cannot sit on an overlay
mount --bind "$folder/disk/home" "$root/home"
mount --bind "$folder/disk/root" "$root/root"
mount --bind "$folder/disk/srv" "$root/srv"   # models: an engine does not start a container whose mounts are gone
mount --bind "$folder/disk/log" "$root/var/log/lab"
for path in "$@"; do
  mkdir -p "$root$path"
  mount --rbind "$path" "$root$path"
done
cp -a "$folder/files/." "$root/"

cd "$root"
mkdir -p .old
pivot_root . .old
umount -l /.old
rmdir /.old
exec /bin/bash /lab/start.sh
