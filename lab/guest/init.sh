#!/bin/sh
# The guest's first program where no systemd is wanted: mounts, the driver, and the laboratory's agent.
set -eu
# shellcheck source=/dev/null
. /lab/lab/guest/mounts.sh
hostname lab
[ ! -e /lab/libmgpu_engine.so ] || mount --bind /lab/libmgpu_engine.so /project/mgpu/lib/mgpu/libmgpu_engine.so
/lab/lab/guest/driver.sh
if grep -qw lab.prompt /proc/cmdline; then
    exec /lab/lab/guest/prompt.sh
fi
exec /lab/lab/guest/agent.sh
