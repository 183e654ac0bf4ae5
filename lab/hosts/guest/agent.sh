#!/bin/sh
# Runs what is asked for on the second serial port, as in the laboratory, without anything of mgpu's.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/lab PYTHONDONTWRITEBYTECODE=1
export DEBIAN_FRONTEND=noninteractive HOME=/root
cd /lab || exit 1
stty -F /dev/ttyS1 raw -echo
exec /usr/bin/python3 -m lab.guest.agent /dev/ttyS1
