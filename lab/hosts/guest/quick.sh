#!/bin/sh
# The guest's first program where a kernel alone is asked: mounts, and the agent. mgpu lies on the disk that is brought.
set -eu
# shellcheck source=/dev/null
. /lab/lab/guest/mounts.sh
mkdir -p /opt/mgpu
mount --bind /project/package/opt/mgpu /opt/mgpu
ln -sf /opt/mgpu/bin/mgpu /usr/bin/mgpu
# On the disk, where it outlives the machine.
export MGPU_ROOT=/var/lib/mgpu
exec /lab/lab/hosts/guest/agent.sh
