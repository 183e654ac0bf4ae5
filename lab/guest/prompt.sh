#!/bin/sh
# A prompt on the console, with mgpud serving NVIDIA's driver. /run/mgpud.log is its log.
export PATH=/project/mgpu/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PYTHONPATH=/lab TERM=vt100
cd /lab || exit 1
python3 -m lab.guest.served >/run/served.log 2>&1 &
echo "mgpud takes half a minute to start (/run/served.log): mgpu devices"
echo "mgpu run --memory-mib 512 --gpus 1 /project/rootfs sh"
echo "tinygrad of the driver's time: PYTHONPATH=/project/foreign-550 PTX=1 python3"
# A login shell would have another PATH.
setsid --ctty bash </dev/ttyS0 >/dev/ttyS0 2>&1
poweroff -f
