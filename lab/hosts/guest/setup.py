"""mgpu, set up on the node by its package, with a simulated card."""

import io
import tarfile
from pathlib import Path

from lab.hosts.guest.commands import CommandFailed, run, until

IMAGE = "node:latest"
SETTINGS = Path("/etc/mgpu/mgpud.env")
# mgpu's units are for real GPUs, whose driver a node has before: here a card comes as a service of its own.
SIMCARD = """\
[Unit]
Description=a simulated card
Before=mgpud.service
ConditionPathExists=/opt/mgpu/bin/python3

[Service]
RuntimeDirectory=mgpu
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
ExecStartPre=/bin/mkdir -p -m 700 /run/mgpu/sim /run/mgpu/cdi
ExecStart=/opt/mgpu/libexec/mgpu/mgpu-simcard --dir /run/mgpu/sim --cards v100-16
ExecStartPost=/bin/sh -c 'until [ -S /run/mgpu/sim/admin.sock ]; do sleep 0.1; done'
ExecStartPost=/opt/mgpu/bin/python3 -I -c "from pathlib import Path; from sim import cdi; \
cdi.write(Path('/run/mgpu/cdi'), Path('/run/mgpu/sim/admin.sock'))"

[Install]
WantedBy=multi-user.target
"""


def serves() -> bool:
    try:
        return "V100" in run("mgpu", "devices")
    except (CommandFailed, FileNotFoundError):
        return False


def package() -> None:
    """As an administrator does it, offline."""
    run("apt-get", "install", "--quiet", "--yes", "/project/mgpu.deb", "/project/mgpu-sim.deb")
    Path("/etc/systemd/system/mgpu-simcard.service").write_text(SIMCARD)
    SETTINGS.write_text(SETTINGS.read_text().replace("--driver nvidia", "--driver sim"))
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--now", "mgpu-simcard.service")
    run("systemctl", "restart", "mgpud.service")
    until(serves, "mgpud serves")
    run("systemctl", "restart", "containerd.service", "docker.service")


def image() -> None:
    """An image without a file of its own: the node's /usr is mounted into it, and nothing unpacked."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as packed:
        for name in ("bin", "lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            packed.addfile(link)
    Path("/run/image.tar").write_bytes(held.getvalue())
    run("docker", "import", "/run/image.tar", IMAGE)
