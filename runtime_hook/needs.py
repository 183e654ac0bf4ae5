"""What has to be true for a container with a GPU to start on a node: one table. `mgpu health`, `mgpu doctor`,
mgpud's metrics, and whether a cluster's node takes pods, are all made from it.
"""

import errno
import functools
import os
import re
import socket
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple

from oci_specs import cdi
from oci_specs.refusal import Refusal
from runtime_hook import holder
from runtime_hook.holder import HolderStatus

# What one start writes, with room to spare.
ROOM_BYTES, ROOM_FILES = 1 << 20, 16
ANSWER_S = 1.0
CDI_KINDS = {"sim": "sim.mgpu.dev/gpu", "nvidia": "nvidia.com/gpu"}
GENERATE = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
UNIT = "/etc/systemd/system/mgpud.service"
INSTALLED = Path("/etc/mgpu/runtime.conf")
# linux/capability.h, and what mgpud needs each for.
CAPABILITIES = {
    19: ("CAP_SYS_PTRACE", "it fetches containers' open files and reads their calls"),
    21: ("CAP_SYS_ADMIN", "it answers for containers that are in namespaces of their own"),
    5: ("CAP_KILL", "it ends a container that gets past its cap"),
}

# Why a row does not hold, and what to type.
Fault = tuple[str, str]


class Missing(NamedTuple):
    """A row that does not hold. stops: whether no container starts, or only none of some engine's."""

    name: str
    stops: Literal["all", "some"]
    what: str
    line: str


def listens(path: Path) -> bool:
    """True if a process listens on the socket. The connect asks for another kind of socket than its own: the
    kernel refuses that in another way if one listens, and the listener sees nothing.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(os.fspath(path)) == errno.EPROTOTYPE


def ask_holder(path: Path) -> HolderStatus:
    return holder.status(path, timeout_s=ANSWER_S)


@dataclass(frozen=True, kw_only=True)
class Place:
    """The node as the rows see it. state: mgpu's folder. health: mgpud's reply, or why there is none.

    cdi_folders: where mgpud looks for specs. top: what lies at /.
    """

    state: Path
    health: Mapping[str, Any] | str
    cdi_folders: Sequence[str]
    top: Path = Path("/")
    listens: Callable[[Path], bool] = listens
    holder: Callable[[Path], HolderStatus] = ask_holder

    def path(self, name: str | os.PathLike[str]) -> Path:
        return self.top / os.fspath(name).lstrip("/")

    def text(self, name: str | os.PathLike[str]) -> str:
        try:
            return self.path(name).read_text(errors="replace")
        except OSError:
            return ""

    def told(self, name: str) -> Any:
        """A member of mgpud's reply; None without one."""
        return None if isinstance(self.health, str) else self.health.get(name)


def cdi_folders(state: Path, node_config: str, health: Mapping[str, Any] | str = "") -> list[str]:
    """Where mgpud looks: in its own, then where it says, or else node.toml, whose text is given, does."""
    named: object = list(cdi.DIRECTORIES)
    with suppress(tomllib.TOMLDecodeError):  # mgpud says so when it starts
        named = tomllib.loads(node_config).get("cdi_dirs", named)
    if not isinstance(health, str):
        named = health.get("cdi_dirs", named)
    folders = [each for each in named if isinstance(each, str)] if isinstance(named, list) else []
    return [os.fspath(state / "cdi"), *folders]


def _mgpud(place: Place) -> Fault | None:
    if isinstance(place.health, str):
        start = "systemctl start mgpud" if place.path(UNIT).exists() else "mgpu up --sim v100-16:2"
        return place.health, start
    return None


def _sockets(place: Place) -> Fault | None:
    for name, program in (("mgpud.sock", "mgpud"), ("seccomp.sock", "mgpu-holder")):
        path = place.state / name
        if not place.listens(path):
            return f"nobody listens on {path}", f"restart {program}"
    return None


def _answers(place: Place) -> Fault | None:
    path = place.state / "holder.sock"
    try:
        found = place.holder(path)
    except Refusal as refusal:
        if refusal.code == "no-holder":
            return (
                f"no mgpu-holder answers on {path}: GPU calls of new containers would hang",
                "restart mgpu-holder",
            )
        return refusal.message, refusal.hint
    if not isinstance(place.health, str) and not found.mgpud_pid and not found.starting:
        return (
            f"the mgpu-holder on {path} (pid {found.pid}) has no mgpud",
            f"end {found.pid}, and restart mgpud",
        )
    return None


def _room(place: Place) -> Fault | None:
    found = os.statvfs(place.path(place.state)) if place.path(place.state).is_dir() else None
    if found is None:
        return f"{place.state} is not there", "start mgpu again, which makes it"
    if found.f_flag & os.ST_RDONLY:
        return f"{place.state} is mounted read-only", "mount it writable"
    full = f"remove what fills the file system of {place.state}, or have it made larger"
    if found.f_bavail * found.f_frsize < ROOM_BYTES:
        return f"{place.state} has {found.f_bavail * found.f_frsize >> 10} KiB left", full
    if found.f_files and found.f_favail < ROOM_FILES:
        return f"{place.state} has room for {found.f_favail} files", full
    return None


def _folder(place: Place) -> Fault | None:
    """mgpu's sockets are root's, and mgpu-runtime is a script that the kernel must be willing to run."""
    path = place.path(place.state)
    if path.is_dir():
        found = path.stat()
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            own = f"chown root {place.state} && chmod 700 {place.state}"
            return f"{place.state} can be written by others, who can replace mgpu's sockets", own
    mounted = _mount_of(place, PurePath(place.state))
    if mounted and "noexec" in mounted[1].split(","):
        what = f"{mounted[0]} is mounted noexec, and mgpu-runtime runs from {place.state}"
        return what, f"mount -o remount,exec {mounted[0]}"
    return None


def _mount_of(place: Place, path: PurePath) -> tuple[str, str] | None:
    """(mount point, options) of what `path` lies on."""
    best: tuple[str, str] | None = None
    for line in place.text("/proc/self/mounts").splitlines():
        words = line.split(" ")
        if (
            len(words) > 3
            and path.is_relative_to(words[1])
            and len(words[1]) >= len(best[0] if best else "")
        ):
            best = words[1], words[3]
    return best


def capabilities(status: str) -> int | None:
    """The effective ones as a bit set, by the text of /proc/PID/status; None without it."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(found[1], 16) if found else None


def _capable(place: Place) -> Fault | None:
    found = capabilities(place.text(f"/proc/{place.told('pid')}/status"))
    for bit, (name, why) in CAPABILITIES.items():
        if found is not None and not found >> bit & 1:
            unit = f"add {name} to CapabilityBoundingSet in its unit, or to the container it runs in"
            return f"mgpud runs without {name}: {why}", unit
    return None


def _runtime(place: Place) -> Fault | None:
    """What this node's mgpu-runtime becomes: the one of `mgpu up`, or else that of `mgpu install`."""
    again, conf = "start mgpu again, which writes it", place.state / "runtime.conf"
    up = place.path(conf).exists() or not place.path(INSTALLED).exists()
    if not up:
        again, conf = "mgpu install all, which writes it", INSTALLED
    text = place.text(conf)
    for key in ("runtime", "hook", "python", "main"):
        named = re.search(rf'^{key} = "([^"]*)"', text, re.MULTILINE)
        if named is None or not place.path(named[1]).exists():
            where = f"names {named[1]}, which is not there" if named else f"names no {key}"
            return f"{conf} {where}", again
    if not up:
        # Which launcher an engine runs is a matter of its configuration.
        return None
    runtime = place.state / "bin" / "mgpu-runtime"
    if not os.access(place.path(runtime), os.X_OK):
        return f"{runtime} is not there", again
    runs = re.match(r"#! *(\S+)", place.text(runtime))
    if runs and not place.path(runs[1]).exists():
        return f"{runtime} is run by {runs[1]}, which is not there", "install mgpu again"
    return None


def _driver(place: Place) -> Fault | None:
    if place.told("driver_alive") is False:
        return "the driver no longer answers mgpud", "load it again: mgpud follows by itself"
    return None


def _specs(place: Place) -> Fault | None:
    kind = CDI_KINDS.get(place.told("driver"))
    folders = tuple(os.fspath(place.path(each)) for each in place.cdi_folders)
    found = _kinds(folders, tuple(_seen(folders)))
    real = kind == CDI_KINDS["nvidia"]
    if isinstance(found, str):
        return found, GENERATE if real else "repair or remove that file"
    if kind and kind not in found:
        return f"no CDI spec defines {kind}", GENERATE if real else "start mgpu again, which writes it"
    for path in found.get(kind, ()):
        if not place.path(path).exists():
            # As where a newer driver was installed.
            again = GENERATE if real else "install mgpu again"
            return f"the CDI spec of {kind} names {path}, which is not there", again
    return None


def _seen(folders: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    for folder in folders:
        for path in sorted(Path(folder).glob("*")):
            # Also of a link to nothing: where it has a spec's name, Registry says so.
            found = path.stat() if path.exists() else None
            yield str(path), found.st_mtime_ns if found else 0, found.st_size if found else 0


@functools.lru_cache(maxsize=1)
def _kinds(
    folders: tuple[str, ...], _seen: tuple[tuple[str, int, int], ...]
) -> dict[str | None, list[str]] | str:
    """The kinds that have a device, with the files that it needs, or why the specs cannot be read. They are
    read when one has changed.
    """
    try:
        registry = cdi.Registry.load(folders)
    except Refusal as refusal:
        return refusal.message
    try:
        return {kind: registry.sources(kind) for kind in CDI_KINDS.values() if registry.names(kind)}
    except Refusal as refusal:
        return refusal.message


def _places(place: Place) -> Fault | None:
    for table in place.told("tables") or ():
        if table["used"] >= table["most"]:
            what = f"all of {table['most']} {table['name']} are in use"
            return what, "end containers, or processes that `exec` left in them"
    return None


@dataclass(frozen=True)
class _Engine:
    """files: patterns of its configuration. again: whether it reads that anew without a restart."""

    name: str
    unit: str
    socket: str
    files: tuple[str, ...]
    again: bool = False


ENGINES = (
    _Engine("Docker", "docker", "/run/docker.sock", ("/etc/docker/daemon.json",), again=True),
    _Engine("containerd", "containerd", "/run/containerd/containerd.sock", ("/etc/containerd/config.toml",)),
    _Engine("CRI-O", "crio", "/run/crio/crio.sock", ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*")),
)
OURS = re.compile(rb"mgpu-runtime|io\.containerd\.mgpu\.v2")
_PROGRAM = re.compile(rb'"(/[^"\n]*/mgpu-runtime)"')


def _engines(place: Place) -> Fault | None:
    """Of those that run: which name mgpu, with programs that are there, and have read so."""
    running = [each for each in ENGINES if place.path(each.socket).is_socket()]
    configured = False
    for engine in running:
        for path in _configuration(place, engine):
            text = path.read_bytes()
            if not OURS.search(text):
                continue
            configured = True
            shown = f"/{path.relative_to(place.top)}"
            for program in map(os.fsdecode, _PROGRAM.findall(text)):
                if not os.access(place.path(program), os.X_OK):
                    return f"{shown} names {program}, which is not there", f"mgpu install {engine.unit}"
            newer = path.stat().st_mtime > place.path(engine.socket).stat().st_mtime
            if newer and not (engine.again and _docker_knows_us(place.path(engine.socket))):
                return (
                    f"{shown} is newer than the {engine.name} that runs",
                    f"systemctl restart {engine.unit}",
                )
    if running and not configured and not _podman(place):
        names = " and ".join(each.name for each in running)
        return f"mgpu is no runtime of {names}", f"mgpu install {running[0].unit}"
    return None


def _configuration(place: Place, engine: _Engine) -> Iterator[Path]:
    patterns = list(engine.files)
    for pattern in patterns:
        for path in sorted(place.top.glob(pattern.lstrip("/"))):
            if not path.is_file():
                continue
            yield path
            if engine.unit == "containerd" and path.name == "config.toml":
                imports = re.search(
                    r"^imports\s*=\s*\[([^\]]*)\]", path.read_text(errors="replace"), re.MULTILINE
                )
                patterns += re.findall(r"[\"'](/[^\"']+)[\"']", imports[1]) if imports else []


def _podman(place: Place) -> bool:
    """It reads its configuration at each start of a container."""
    files = place.top.glob("etc/containers/containers.conf.d/*.conf")
    return any(b"mgpu" in path.read_bytes() for path in files)


def _docker_knows_us(path: Path) -> bool:
    """Whether a daemon whose configuration has changed since it began has read it."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(ANSWER_S)
        try:
            link.connect(os.fspath(path))
            link.sendall(b"GET /info HTTP/1.0\r\n\r\n")
            said = b""
            while part := link.recv(1 << 16):
                said += part
        except OSError:
            return False
    return bool(OURS.search(said))


_Row = tuple[str, Literal["all", "some"], Callable[[Place], Fault | None]]
ROWS: tuple[_Row, ...] = (
    ("mgpud", "all", _mgpud),
    ("folder", "all", _folder),
    ("sockets", "all", _sockets),
    ("holder", "all", _answers),
    ("room", "all", _room),
    ("runtime", "all", _runtime),
    ("capabilities", "all", _capable),
    ("driver", "all", _driver),
    ("cdi", "all", _specs),
    ("places", "all", _places),
    ("engine", "some", _engines),
)


def missing(place: Place) -> list[Missing]:
    """The rows that do not hold, in the table's order."""
    found = []
    for name, stops, holds in ROWS:
        try:
            fault = holds(place)
        except OSError as error:
            fault = f"{name}: {error.strerror}", "mgpu doctor, as root"
        if fault:
            found.append(Missing(name, stops, *fault))
    return found
