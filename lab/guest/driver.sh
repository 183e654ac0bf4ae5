#!/bin/sh
# NVIDIA's modules, loaded, and their device nodes made as nvidia-modprobe makes them.
set -eu
modprobe drm
insmod /lab/modules/nvidia.ko
insmod /lab/modules/nvidia-uvm.ko
# Built without the table of symbol versions that the driver's build makes.
insmod -f /lab/modules/reached.ko
node() {
    [ -e "$1" ] || mknod -m 666 "$1" c "$2" "$3"
}
major=$(awk '$2 == "nvidia" || $2 == "nvidia-frontend" {print $1; exit}' /proc/devices)
uvm=$(awk '$2 == "nvidia-uvm" {print $1}' /proc/devices)
node /dev/nvidiactl "$major" 255
node /dev/nvidia-uvm "$uvm" 0
node /dev/nvidia-uvm-tools "$uvm" 1
for information in /proc/driver/nvidia/gpus/*/information; do
    minor=$(awk '/^Device Minor:/ {print $3}' "$information")
    node "/dev/nvidia$minor" "$major" "$minor"
done
