"""checkpoint, and restore: a container of a checkpoint, under a new grant.

CRIU restores a seccomp filter as a program without a listener. So its tasks are left stopped, each process
is given a listener by mgpu-listener, and only then they go on. What they had on GPUs was moved to their
memory before the checkpoint was made (CUDA's process checkpoints): CRIU takes no process with NVIDIA's files.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

from oci_specs.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runtime_hook.arguments import Launch

# runc hands the file that this names to CRIU, and else the other.
CRIU_CONFIG, DEFAULT_CONFIG = "org.criu.config", "/etc/criu/runc.conf"
OWN_CONFIG = ".mgpu-criu.conf"
LEAVE_STOPPED = "leave-stopped\n"
LISTENER = "mgpu-listener"
# Beside CRIU's images: how long each of them is, since CRIU restores processes from pages that are cut off,
# and the GPUs, with what of each the processes have in their memory.
OWN_FILE = "mgpu-checkpoint.json"


def gpus_of(launch: Launch) -> list[dict[str, Any]] | None:
    """The GPUs of a container of mgpu's that is saved, and what it has of each in host memory; None where it
    is not mgpu's. Refusal where it is still on one: what it has there would not be in the checkpoint.
    """
    from runtime_hook import control

    words = launch.command[launch.verb + 1 :]
    listed = control.call(launch.socket, "list")
    for row in listed["containers"]:
        if row["container_id"] in words:
            _check_away(row)
            cards = {card["index"]: card for card in listed["cards"]}
            return [
                {
                    "uuid": card["evicted_from"],
                    "name": cards[card["index"]]["name"],
                    "minor": cards[card["index"]]["minor"],
                    "bytes": card["evicted_bytes"],
                }
                for card in row["cards"]
            ]
    return None


def _check_away(row: Mapping[str, Any]) -> None:
    held, reclaim = sum(card["used_bytes"] for card in row["cards"]), row["reclaim"]
    evict = f"mgpu evict {row['container_id']}, then checkpoint it"
    if held or row["processes"]:
        raise Refusal(
            "on-a-gpu",
            f"the container has {held >> 20} MiB of GPU memory, which no checkpoint would have in it",
            evict,
        )
    if reclaim["state"] != "running" and not (reclaim["state"] == "evicted" and reclaim["by_hand"]):
        raise Refusal("moves", f"the container is {reclaim['state']}, and may come back meanwhile", evict)
    if any(card["evicted_from"] is None for card in row["cards"]):
        raise Refusal(
            "several-origins",
            "the container's processes were moved off different GPUs",
            f"mgpu resume {row['container_id']}, {evict}",
        )


def save(launch: Launch, gpus: list[dict[str, Any]], env: Mapping[bytes, bytes]) -> int:
    """Has the runtime save the container, and writes down what belongs to its checkpoint; the exit status."""
    status = _ran(launch.command, env)
    if status == 0:
        folder = _images(launch)
        with open(os.path.join(folder, OWN_FILE), "w", encoding="utf-8") as own:
            json.dump({"lengths": _lengths(folder), "gpus": gpus}, own)
    return status


def _images(launch: Launch) -> str:
    """The folder that runc takes: the last --image-path, or ./checkpoint."""
    words, found = launch.command[launch.verb + 1 :], "checkpoint"
    for position, word in enumerate(words):
        option, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if word.startswith("-") and option == "image-path":
            found = value if equals else "".join(words[position + 1 : position + 2])
    return os.path.abspath(found)


def _lengths(folder: str) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.name.endswith(".img")}


def _saved_gpus(launch: Launch) -> list[dict[str, Any]]:
    """Refusal of a checkpoint that mgpu-runtime has not made, or of which something is missing."""
    folder = _images(launch)
    try:
        with open(os.path.join(folder, OWN_FILE), encoding="utf-8") as own:
            known = json.load(own)
        wrong = sorted(name for name, _ in set(known["lengths"].items()) ^ set(_lengths(folder).items()))
        gpus: list[dict[str, Any]] = known["gpus"]
    except (OSError, ValueError, TypeError, AttributeError, LookupError) as error:
        raise Refusal(
            "foreign-checkpoint",
            f"{folder} has no {OWN_FILE} that can be read, which mgpu-runtime writes into each checkpoint",
            "checkpoint the container through mgpu-runtime",
        ) from error
    if wrong:
        raise Refusal(
            "spoilt-checkpoint",
            f"{wrong[0]} in {folder} is not as long as it was written, or not of this checkpoint",
            "copy the checkpoint anew",
        )
    return gpus


def check(launch: Launch, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The GPUs that the container had. Refusal of a restore that cannot be followed."""
    runtime, words = os.path.basename(launch.command[0]), launch.command[launch.verb :]
    if not runtime.startswith("runc"):
        raise Refusal(
            "no-restore",
            f"a container with a GPU cannot be restored by {runtime}, whose tasks would go on without mgpu",
            "set runtime = runc in mgpu-runtime's config",
        )
    if not {"--detach", "-d"} & set(words):
        raise Refusal(
            "no-restore",
            "a container with a GPU is not restored in the foreground",
            "add --detach, as engines do",
        )
    # The container's processes are told from others by it.
    namespaces = (spec.get("linux") or {}).get("namespaces") or ()
    if not any(one.get("type") == "pid" and not one.get("path") for one in namespaces):
        raise Refusal(
            "no-restore",
            "a container with a GPU is restored into a pid namespace of its own only",
            "let it share no pid namespace: not the pod's (shareProcessNamespace), not the host's (hostPID)",
        )
    return _saved_gpus(launch)


def spec_of(new: Mapping[str, Any], hook: str, bundle: str) -> dict[str, Any]:
    """The rewritten spec for a restore: bound when its processes are there, which CRIU leaves stopped."""
    hooks = dict(new["hooks"])
    hooks["createRuntime"] = [one for one in hooks["createRuntime"] if one.get("path") != hook]
    own = os.path.join(bundle, OWN_CONFIG)
    users = new["annotations"].get(CRIU_CONFIG, DEFAULT_CONFIG)
    with open(own, "w", encoding="utf-8", errors="surrogateescape") as config:
        config.write(_text(users) + LEAVE_STOPPED)
    return {**new, "hooks": hooks, "annotations": {**new["annotations"], CRIU_CONFIG: own}}


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as config:
            return config.read().rstrip("\n") + "\n"
    except FileNotFoundError:
        return ""


def run(
    launch: Launch, container_id: str, bundle: str, grant: Mapping[str, Any], env: Mapping[bytes, bytes]
) -> int:
    """Has the runtime restore the container and looks after its processes; the exit status."""
    status = _ran(launch.command, env)
    if status:
        return status
    try:
        _adopt(launch, container_id, bundle, grant, env)
    except BaseException:
        _ran([*launch.command[: launch.verb], "delete", "--force", container_id], env)
        raise
    return 0


def _adopt(
    launch: Launch, container_id: str, bundle: str, grant: Mapping[str, Any], env: Mapping[bytes, bytes]
) -> None:
    from runtime_hook import control

    init = json.loads(_said([*launch.command[: launch.verb], "state", container_id], env))["pid"]
    state = {"ociVersion": "1.0.2", "id": container_id, "bundle": bundle, "pid": init}
    control.call(launch.socket, "bind", nonce=grant["nonce"], state={**state, "status": "running"})
    found = sorted(_processes(init), key=lambda pid: pid != init)
    judged: set[bytes] = set()
    for pid in found:
        own = {**state, "status": "creating" if pid == init else "running"}
        program = _listen(launch.hook, pid, grant, own)
        if program not in judged:
            _check_filter(pid, program)
            judged.add(program)
    # Once the first one goes on, mgpud asks all of them where their GPU memory is.
    for pid in reversed(found):
        os.kill(pid, signal.SIGCONT)


def _processes(init: int) -> Iterator[int]:
    """The processes of its pid namespace."""
    pid_namespace = os.stat(f"/proc/{init}/ns/pid").st_ino
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            if os.stat(f"/proc/{name}/ns/pid").st_ino == pid_namespace:
                yield int(name)
        except OSError:
            continue


def _check_filter(pid: int, program: bytes) -> None:
    """Refusal of a filter that is not mgpu's, or is one of an mgpu that did not know calls of today."""
    from oci_specs.seccomp.program import lets_through

    try:
        through = lets_through(program)
    except ValueError as error:
        through = f"what cannot be told: {error}"
    if through:
        raise Refusal(
            "foreign-filter",
            f"the filter of process {pid} in the checkpoint is not one of this mgpu: it lets {through} through",
            "checkpoint a container that this version's mgpu-runtime made",
        )


def _listen(hook: str, pid: int, grant: Mapping[str, Any], state: Mapping[str, Any]) -> bytes:
    """The program of the filter that it is asked by from now on."""
    message = {
        "ociVersion": "1.0.2",
        "fds": ["seccompFd"],
        "pid": pid,
        "metadata": grant["nonce"],
        "state": state,
    }
    program = os.path.join(os.path.dirname(hook), LISTENER)
    reading, writing = os.pipe()
    os.write(writing, json.dumps(message).encode())
    os.close(writing)
    complaints, theirs = os.pipe()
    code, its = os.pipe()  # which has room for the longest
    child = os.posix_spawn(
        program,
        [program, str(pid), grant["listener_path"]],
        {},
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate((reading, its, theirs))],
    )
    for fd in (reading, its, theirs):
        os.close(fd)
    with open(complaints, encoding="utf-8", errors="replace") as said:
        why = said.read().strip().removeprefix("mgpu: ")
    with open(code, "rb") as printed:
        found = printed.read()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        what, _, hint = why.rpartition("; ")
        raise Refusal(
            "no-listener", what or why or f"{program} does not start", hint or "install mgpu again"
        )
    return found


def _ran(command: list[str], env: Mapping[bytes, bytes]) -> int:
    child = os.posix_spawn(command[0], command, env)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _said(command: list[str], env: Mapping[bytes, bytes]) -> str:
    reading, writing = os.pipe()
    child = os.posix_spawn(command[0], command, env, file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)])
    os.close(writing)
    with open(reading, encoding="utf-8") as output:
        text = output.read()
    os.waitpid(child, 0)
    return text
