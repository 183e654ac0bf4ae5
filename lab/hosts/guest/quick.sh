#!/bin/sh
# The guest's first program where a kernel alone is asked: mounts, and the agent. mgpu lies on the disk that is brought.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs tmp /tmp
mkdir -p /dev/pts /dev/shm /dev/mqueue /opt/mgpu
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t securityfs security /sys/kernel/security
mount --bind /project/package/opt/mgpu /opt/mgpu
ln -sf /proc/self/fd /dev/fd
ln -sf /opt/mgpu/bin/mgpu /usr/bin/mgpu
ip link set lo up
exec /lab/lab/hosts/guest/agent.sh
