# shellcheck shell=sh
# What systemd would have mounted, for guests that start without it: to be sourced by their first program.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs tmp /tmp
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t securityfs security /sys/kernel/security
mount -t bpf bpf /sys/fs/bpf
ln -sf /proc/self/fd /dev/fd
ln -sf fd/0 /dev/stdin
ip link set lo up
