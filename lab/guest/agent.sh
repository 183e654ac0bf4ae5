#!/bin/sh
# Runs what the laboratory asks for on the second serial port, until the guest is told to end.
export PATH=/project/mgpu/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/lab
cd /lab || exit 1
stty -F /dev/ttyS1 raw -echo
exec /project/mgpu/bin/python3 -m lab.guest.agent /dev/ttyS1
