"""Packages, installed in a root of each Debian release, and the archive in any folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import attempt, run
from tests.support.places import REPOSITORY
from tools import debian_root, release
from tools.package import __main__ as package
from tools.package import deb, tree
from tools.package.products import CLUSTER, NODE, SIMULATOR

ROOTS = REPOSITORY / "build" / "package-roots"
# As a node has them; runc and systemd are what the package finds there.
INCLUDED = ("init-system-helpers", "procps", "runc", "systemd")

# The root becomes a mount of its own, since runc does not leave a mere folder.
ENTER = """
set -e
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
for folder in sys dev; do mount --rbind /$folder "$1/$folder"; done
for folder in run tmp; do mount -t tmpfs none "$1/$folder"; done
cp "$2"/*.deb "$1/tmp"
exec chroot "$1" /bin/sh -c "$3"
"""

# The version before had one package, with what mgpu-sim has now.
INSTALLED = """
set -ex
export DEBIAN_FRONTEND=noninteractive
if dpkg -s mgpu >/dev/null 2>&1; then apt-get purge -qq -y mgpu; fi
apt-get install -qq -y /tmp/before.deb
dpkg -S /opt/mgpu/libexec/mgpu/mgpu-simcard | grep "^mgpu: "
apt-get install -qq -y /tmp/mgpu.deb /tmp/mgpu-sim.deb
dpkg -S /opt/mgpu/libexec/mgpu/mgpu-simcard
apt-get remove -qq -y mgpu-sim
mgpu version
systemd-analyze verify --man=no /etc/systemd/system/mgpu-holder.service /etc/systemd/system/mgpud.service
systemctl is-enabled mgpu-holder.service mgpud.service
test -s /usr/share/man/man1/mgpu.1.gz
bash -n /usr/share/bash-completion/completions/mgpu
mgpu doctor || true
"""
# Without any other product.
ALONE = """
test -z "$(find /opt/mgpu -path '*-packages/sim' -o -path '*-packages/cluster' -o -name 'libcuda*' -o -name '*simcard')"
if mgpu up --sim a10 2>/tmp/refused; then exit 1; fi
cat /tmp/refused
if /opt/mgpu/bin/mgpud --root /tmp/alone --driver sim 2>/tmp/refused; then exit 1; fi
cat /tmp/refused
if /opt/mgpu/bin/mgpud --root /tmp/alone --driver nvidia 2>/tmp/refused; then exit 1; fi
cat /tmp/refused
apt-get install -qq -y /tmp/mgpu-sim.deb
"""
# What a container of that release sees, by the driver's own library, of what it was granted.
ASKS = (
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); room = (ctypes.c_size_t * 2)(); "
    "context = ctypes.c_void_p(); "
    "assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); "
    "assert not cuda.cuCtxSetCurrent(context) and not cuda.cuMemGetInfo_v2(room, ctypes.byref(room, 8)); "
    "print('granted', room[1] >> 20)"
)
WORKS = f"""
mkfifo /tmp/ready
mgpu up --sim v100-16:1 --ready-fd 9 9>/tmp/ready >/tmp/up.log 2>&1 &
up=$!
timeout 60 cat /tmp/ready
mgpu run --memory-mib 512 --gpus 1 / python3 -c "{ASKS}"
mgpu run --memory-mib 512 --gpus 1 / sleep 600 &
timeout 60 sh -c 'until mgpu ps | grep -q bound; do sleep 0.2; done'
if apt-get remove -qq -y mgpu >/tmp/refused 2>&1; then exit 1; fi
grep "mgpu: simulated GPUs run here" /tmp/refused
if dpkg --force-depends --remove mgpu >/tmp/refused 2>&1; then exit 1; fi
grep "mgpu: 1 container holds a GPU: run-" /tmp/refused
echo "# mine" >>/etc/mgpu/node.toml
apt-get install -qq -y --reinstall /tmp/mgpu.deb >/tmp/upgrade
grep "it serves 1 containers" /tmp/upgrade
tail -1 /etc/mgpu/node.toml
mgpu ps | grep bound
kill $up
wait $up || true
timeout 60 sh -c 'while [ -S /run/mgpu/seccomp.sock ]; do sleep 0.2; done'
"""
# Without mgpu the container goes on: it ends with the root's processes.
REMOVED = """
apt-get purge -qq -y mgpu mgpu-sim
test -z "$(find / -xdev -iname '*mgpu*' -print)"
"""
OF_CLUSTER = """
set -e
export DEBIAN_FRONTEND=noninteractive
if dpkg -s mgpu >/dev/null 2>&1; then apt-get purge -qq -y mgpu; fi
apt-get install -qq -y /tmp/mgpu.deb /tmp/mgpu-cluster.deb
for program in admission agent move node scheduler; do mgpu-$program --help; done
/opt/mgpu/bin/python3 -I -c "
import cluster, importlib, pkgutil
for module in pkgutil.walk_packages(cluster.__path__, 'cluster.'):
    if not module.name.endswith('__main__'):
        importlib.import_module(module.name)
import numpy
"
test -x /usr/bin/kubectl-mgpu
apt-get purge -qq -y mgpu-cluster mgpu
test -z "$(find / -xdev -iname '*mgpu*' -print)"
"""


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trees")


@pytest.fixture
def root(request: pytest.FixtureRequest) -> Path:
    """A root of the release, which every test leaves as it was."""
    suite: str = request.param
    path = ROOTS / suite
    if not path.exists():
        debian_root.make(
            suite, path, [f"python{deb.RELEASES[suite][1]}", "python3", *INCLUDED], variant="minbase"
        )
    return path


def before(folder: Path) -> None:
    """The packages there as the one that had all files, of an earlier version."""
    root = folder / "before"
    run("dpkg-deb", "--raw-extract", folder / "mgpu.deb", root)
    run("dpkg-deb", "--extract", folder / "mgpu-sim.deb", root)
    control = root / "DEBIAN" / "control"
    control.write_text(re.sub("(?m)^Version: .*", "Version: 0.0.9", control.read_text()))
    run("dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", root, folder / "before.deb")


def inside(root: Path, packages: Path, script: str) -> str:
    """Its output, with its errors. packages: the folder with them, which has them in its /tmp."""
    argv = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    done = subprocess.run(
        [*argv, "bash", "-c", ENTER, "bash", root, packages, script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "root",
    ["bookworm", *(pytest.param(suite, marks=pytest.mark.package) for suite in ("trixie", "sid"))],
    indirect=True,
)
def test_package_sets_a_node_up_and_leaves_nothing(
    private_host: None, root: Path, trees: Path, tmp_path: Path
) -> None:
    for product, made in deb.make(root.name, trees, tmp_path, (NODE, SIMULATOR)).items():
        made.rename(tmp_path / f"{product.name}.deb")
    before(tmp_path)
    said = inside(root, tmp_path, INSTALLED + ALONE + WORKS + REMOVED)
    for line in (
        f"mgpu    {release.version()}",
        f"python  {deb.RELEASES[root.name][1]}.",
        ", in /opt/mgpu",
        "ok   runtimes    runc version",
        "mgpu: simulated GPUs are not installed here; install the package mgpu-sim, of this version of mgpu",
        "mgpu: NVML does not start (",
        "mgpu-sim: /opt/mgpu/libexec/mgpu/mgpu-simcard",
        "granted 512",
        "# mine",
    ):
        assert line in said, said
    assert said.count("enabled") >= 2
    assert said.count("simulated GPUs are not installed") == 2


@pytest.mark.package
@pytest.mark.timeout(600)
@pytest.mark.parametrize("root", ["bookworm", "trixie", "sid"], indirect=True)
def test_package_of_a_cluster_has_what_its_programs_import(
    private_host: None, root: Path, trees: Path, tmp_path: Path
) -> None:
    for product, made in deb.make(root.name, trees, tmp_path, (NODE, CLUSTER)).items():
        made.rename(tmp_path / f"{product.name}.deb")
    said = inside(root, tmp_path, OF_CLUSTER)
    for program in ("mgpu-admission", "mgpu-agent", "mgpu-move", "mgpu-node", "mgpu-scheduler"):
        assert f"Usage: {program} " in said, said


def test_archive_runs_wherever_it_is_unpacked(trees: Path, tmp_path: Path) -> None:
    made = package.archive(tree.below(trees, package.PYTHON), tmp_path)
    assert made.name == f"mgpu-{release.version()}-python{package.PYTHON}-linux-x86_64.tar.gz"
    for place in (tmp_path / "here", tmp_path / "there"):
        place.mkdir()
        run("tar", "-C", place, "-xzf", made)
        [folder] = place.iterdir()
        python = folder / "bin" / "python3"
        assert os.readlink(python) == f"/usr/bin/python{package.PYTHON}"
        python.unlink()
        python.symlink_to("/nowhere/python3")
        done = attempt(folder / "bin" / "mgpu", "version")
        assert (done.status, done.out) == (1, "")
        assert done.err == (
            f"mgpu: Python {package.PYTHON} is needed, and not at /nowhere/python3; link {python} to it\n"
        )
        python.unlink()
        python.symlink_to(os.path.realpath(sys.executable))
        assert f", in {folder}\n" in run(folder / "bin" / "mgpu", "version")
