#!/bin/sh
# Makes the image of the tests and the demo: Debian with Python, the libraries that compiled packages need, and
# three NVML clients from PyPI and one of ours, as a folder (OUT/rootfs) and as an archive that `ctr images import` and
# `docker load` both take (OUT/mgpu-test.tar).
# Usage: tests/image/build.sh PYTHON OUT
# PYTHON: any interpreter with pip: the packages are pure Python, and psutil's library serves every version.
set -eu

python=${1:?usage: tests/image/build.sh PYTHON OUT}
out=${2:?usage: tests/image/build.sh PYTHON OUT}
here=$(dirname "$0")
suite=bookworm

mkdir -p "$out"
work=$(mktemp -d "$out/.new.XXXXXX")
# The folder may hold half a Debian when this is interrupted; nothing is mounted below it by then.
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mmdebstrap --quiet --variant=essential --include=libatomic1,libstdc++6,libx11-6,procps,python3 \
    --aptopt='Apt::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    "$suite" "$work/base.tar" </dev/null
mkdir "$work/rootfs"
# No device nodes: runtimes make their own.
tar -C "$work/rootfs" --extract --exclude='./dev/*' --file "$work/base.tar"
rm "$work/base.tar"

site=$work/rootfs/usr/local/lib/python3.11/dist-packages
"$python" -m pip install -qq --disable-pip-version-check --no-input --root-user-action=ignore \
    --target "$site" --requirement "$here/requirements.txt" </dev/null
# pip's own scripts name the interpreter that ran pip.
rm -rf "${site:?}/bin"
for client in gpustat nvitop; do
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nexec python3 -m %s "$@"\n' "$client" >"$work/rootfs/usr/local/bin/$client"
    chmod 755 "$work/rootfs/usr/local/bin/$client"
done
# Where the CDI spec of a real driver mounts NVIDIA's.
install -m 755 "$here/nvidia_smi.py" "$work/rootfs/usr/bin/nvidia-smi"
# Copied into every engine's storage, so what no test runs goes: Perl came with the packages' scripts.
(
    cd "$work/rootfs"
    rm -rf usr/share/perl usr/lib/x86_64-linux-gnu/perl usr/lib/x86_64-linux-gnu/libperl.so.* \
        usr/lib/x86_64-linux-gnu/gconv usr/share/polkit-1 var/log/* var/cache/* var/lib/apt/lists/*
)

"$python" "$here/../../tools/pack_image.py" "$work/rootfs" "$work/mgpu-test.tar"
rm -rf --one-file-system "$out/rootfs"
mv "$work/rootfs" "$work/mgpu-test.tar" "$out/"
