#!/bin/sh
# The guest's first program where no systemd is wanted: mounts, the driver, and the laboratory's agent.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs tmp /tmp
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t securityfs security /sys/kernel/security 2>/dev/null || true
ln -sf /proc/self/fd /dev/fd
hostname lab
ip link set lo up
[ ! -e /lab/libmgpu_engine.so ] || mount --bind /lab/libmgpu_engine.so /project/mgpu/lib/mgpu/libmgpu_engine.so
/lab/lab/guest/driver.sh
if grep -qw lab.prompt /proc/cmdline; then
    exec /lab/lab/guest/prompt.sh
fi
exec /lab/lab/guest/agent.sh
