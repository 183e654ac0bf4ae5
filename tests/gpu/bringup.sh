#!/bin/sh
# One command on a bare machine with an NVIDIA card:
#   bringup.sh OUTDIR [--part first|driver|product] [--sim] [--only NAME...]
# Needs root and the folder that `make gpu-kit` makes; no network, no container engine. Leaves
# OUTDIR/results.json, a line of verdict for each experiment, and the machine as it was.
set -eu
[ $# -ge 1 ] || { echo "usage: bringup.sh OUTDIR [--part first|driver|product] [--sim] [--only NAME...]" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "bringup: run it as root" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
kit=${MGPU_GPU_KIT:-$here/../../build/gpu-kit}
[ -e "$kit/VERSION" ] || kit=$here/../..
[ -e "$kit/VERSION" ] || { echo "bringup: no kit in $kit: make it with make gpu-kit" >&2; exit 2; }
# Where its programs look for their loader and their libraries.
place=/opt/mgpu-gpu-kit
if ! cmp -s "$kit/VERSION" $place/VERSION || [ "$(cat "$kit/VERSION")" != "$(cat $place/VERSION)" ]; then
    rm -rf --one-file-system $place
    cp -a "$kit" $place.new
    mv $place.new $place
fi
export PYTHONPATH=$place/lib/python3.11/site-packages:$place PYTHONDONTWRITEBYTECODE=1
# -P: the kit's own tests, whatever folder this is; a container does not see one below /tmp.
exec $place/bin/python3 -P -m tests.gpu.bringup "$@"
