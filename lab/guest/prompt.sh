#!/bin/sh
# A prompt on the console, with mgpud serving NVIDIA's driver. /run/mgpud.log is its log.
export PATH=/project/mgpu/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PYTHONPATH=/lab TERM=vt100
mgpud --driver nvidia >/run/mgpud.log 2>&1 &
echo "mgpu devices; mgpu run --memory-mib 512 --gpus 1 /project/rootfs sh; python3 with tinygrad: PYTHONPATH=/project/foreign"
cd /lab || exit 1
setsid --ctty bash --login </dev/ttyS0 >/dev/ttyS0 2>&1
poweroff -f
