"""podman's precreate hook, for those who keep podman's own runtime: a spec comes in on standard input and
goes out on standard output, rewritten if mgpud grants what it asks for.

podman waits for it in the process that goes on to start the container. It reads nothing but standard output:
our line goes to its own standard error, and to the system's log.
"""

from __future__ import annotations

import os

from oci_specs import vocabulary
from oci_specs.members import member_object, member_objects, member_string
from oci_specs.reach import Host
from oci_specs.refusal import Refusal
from runtime_hook import quick_json
from runtime_hook.bundle import parse
from runtime_hook.create import admit, give_back
from runtime_hook.decision import Intent, rewritten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runtime_hook.arguments import Launch

# podman's specs have absolute paths only, and hooks of this stage are told no bundle.
BUNDLE = "/"
SOURCE = "from podman"
ID_DIGITS = 64


def main(launch: Launch) -> int:
    """The hook's exit status; 1 keeps podman from creating the container."""
    podman = os.getppid()
    try:
        with open(0, "rb", closefd=False) as file:
            original = file.read()
        out = _filtered(launch, original, podman)
        with open(1, "wb", closefd=False) as file:
            file.write(out)
    except Refusal as refusal:
        _tell(podman, refusal)
        raise
    return 0


def _filtered(launch: Launch, original: bytes, podman: int) -> bytes:
    spec = parse(SOURCE, original)
    host = Host()
    intent = Intent(spec, BUNDLE, host)
    if host.is_rootless() and _is_barred(launch.socket):
        _ask_for_nothing(intent)
        return original
    if not intent.is_ours:
        return original
    container_id = identify(spec)
    # The reservation must outlive this process.
    grant = admit(launch, container_id, BUNDLE, spec, intent, runtime_pid=podman)
    if grant is None:
        return original
    try:
        new = rewritten(
            spec, original, grant, bundle=BUNDLE, hook=launch.hook, socket=launch.socket, host=host
        )
        return quick_json.dumps(new).encode("ascii")
    except BaseException:
        give_back(launch, container_id, BUNDLE, grant)
        raise


def _is_barred(socket: str) -> bool:
    """Whether mgpud is not for this podman's user."""
    try:
        os.stat(socket)
    except PermissionError:
        return True
    except OSError:
        pass
    # Root in a namespace that mgpud is in too.
    return False


def _ask_for_nothing(intent: Intent) -> None:
    """Refusal if a GPU is asked for. Images name NVIDIA_VISIBLE_DEVICES by themselves."""
    env = {name: value for name, value in intent.env.items() if name != vocabulary.VISIBLE_DEVICES}
    if vocabulary.names_gpu(intent.annotations, env):
        raise Refusal(
            "not-root", "containers of users other than root get no GPU from mgpu", "run podman as root"
        )


def identify(spec: Mapping[str, Any]) -> str:
    """The container's id, which podman does not tell but names its cgroup and its files by. Refusal."""
    path = member_string(member_object(spec, "linux"), "cgroupsPath")
    # PARENT/libpod-ID, or with systemd's cgroups SLICE:libpod:ID
    names = [path.rpartition("/")[2].removeprefix("libpod-"), path.rpartition(":")[2]]
    for mount in member_objects(spec, "mounts"):
        # STORAGE/overlay-containers/ID/userdata/hostname and others
        names += member_string(mount, "source").partition("-containers/")[2].split("/")[:1]
    for name in names:
        if len(name) == ID_DIGITS and not name.strip("0123456789abcdef"):
            return name
    raise Refusal(
        "no-id",
        "the spec from podman does not tell the container's id",
        "run the container with podman --runtime mgpu-runtime",
    )


def _tell(podman: int, refusal: Refusal) -> None:
    import syslog

    syslog.openlog("mgpu", 0, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_ERR, refusal.line().removeprefix("mgpu: "))
    try:
        file = os.open(f"/proc/{podman}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return
    try:
        if not os.path.samestat(os.fstat(file), os.fstat(2)):
            os.write(file, f"{refusal.line()}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass
    finally:
        os.close(file)
