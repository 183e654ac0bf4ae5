"""Where the host's memory comes from that is asked for in a caller's name: by its policy, cpuset and
processor. The machine's nodes and the caller are files laid over /sys and /proc.
"""

import ctypes
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native import engine_parts
from tests.support.commands import run
from tests.support.places import REPOSITORY

PREFERRED, INTERLEAVE = 1, 3
ASKER = 7


class Nodes(ctypes.Structure):
    _fields_ = [("mode", ctypes.c_int), ("nodes", ctypes.c_uint64 * 16), ("home", ctypes.c_int)]


def bits(*numbers: int) -> ctypes.Array[ctypes.c_uint64]:
    out = (ctypes.c_uint64 * 16)()
    for number in numbers:
        out[number // 64] |= 1 << number % 64
    return out


@functools.cache
def library() -> str:
    out = engine_parts.folder() / "memory_nodes.so"
    source = REPOSITORY / "native_sched" / "process" / "memory_nodes.c"
    subprocess.run(["gcc", *engine_parts.FLAGS, "-shared", "-o", out, source], check=True)
    return str(out)


def choose(policy: str, allowed: tuple[int, ...], own: int) -> tuple[int, tuple[int, ...], int]:
    part = ctypes.CDLL(library()).memory_nodes_choose
    part.restype = Nodes
    made = part(policy.encode(), bits(*allowed), own)
    nodes = tuple(i for i in range(1024) if made.nodes[i // 64] >> i % 64 & 1)
    return made.mode, nodes, made.home


@pytest.mark.parametrize(
    ("policy", "allowed", "own", "expected"),
    [
        ("default file=/a:1", (0, 1), 1, (PREFERRED, (1,), 1)),
        ("local", (0, 1), 1, (PREFERRED, (1,), 1)),
        ("default", (0,), 1, (PREFERRED, (0,), 0)),
        ("default", (2, 70), 1, (PREFERRED, (2,), 2)),
        ("prefer:0 anon=1", (0, 1), 1, (PREFERRED, (0,), 0)),
        ("bind:0-1 file=/a", (0, 1), 1, (PREFERRED, (1,), 1)),
        ("bind=static:2,70", (0, 1, 2, 70), 1, (PREFERRED, (2,), 2)),
        ("prefer (many):70", (0, 70), 0, (PREFERRED, (70,), 70)),
        ("interleave:0-1", (0, 1), 1, (INTERLEAVE, (0, 1), 1)),
        ("weighted interleave:0,2", (0, 1, 2), 1, (INTERLEAVE, (0, 2), 0)),
        ("interleave:0-3", (1, 2), 3, (INTERLEAVE, (1, 2), 1)),
        # Nothing of the policy is allowed, or nothing can be read.
        ("bind:3", (0, 1), 1, (PREFERRED, (1,), 1)),
        ("default", (0, 1), -1, (PREFERRED, (0,), 0)),
        ("default", (), 1, (PREFERRED, (), -1)),
    ],
)
def test_nodes_are_the_callers(
    policy: str, allowed: tuple[int, ...], own: int, expected: tuple[int, tuple[int, ...], int]
) -> None:
    assert choose(f"55ff2ca1a000 {policy}", allowed, own) == expected


def test_policy_that_cannot_be_read_is_none() -> None:
    assert choose("", (0, 1), 1) == (PREFERRED, (1,), 1)


# set_mempolicy() knows this machine's own nodes, which is node 0 alone on most.
BORROWED = f"""
import ctypes, json, os, sys
from tests.native.process.test_memory_nodes import Borrowed
libc, part = ctypes.CDLL(None), ctypes.CDLL(sys.argv[1])
part.memory_nodes_borrow.restype = Borrowed
def now():
    mode = ctypes.c_int(-1)
    libc.syscall(239, ctypes.byref(mode), None, 0, None, 0)
    return [sorted(os.sched_getaffinity(0)), mode.value]
before = now()
was = part.memory_nodes_borrow({ASKER})
during = now()
part.memory_nodes_give_back(ctypes.byref(was))
print(json.dumps([before, during, now()]))
"""


class Borrowed(ctypes.Structure):
    _fields_ = [("borrowed", ctypes.c_bool), ("processors", ctypes.c_uint64 * 16)]


def borrowed(
    folder: Path, nodes: dict[int, str], *, policy: str, allowed: str, processor: int
) -> list[list[object]]:
    """Processors and policy of a thread before it asks in the asker's name, meanwhile and after."""
    asker, system = folder / "proc" / str(ASKER), folder / "node"
    asker.mkdir(parents=True)
    fields = ["S", *(["0"] * 35), str(processor), "0"]
    (asker / "stat").write_text(f"{ASKER} (a) 0 (b) {' '.join(fields)}\n")
    # Longer than what is read of it at once: as long as a process has groups.
    (asker / "status").write_text(
        f"Name:\ta\nGroups:\t{'1 ' * 5000}\nMems_allowed_list:\t{allowed}\nother:\t1\n"
    )
    (asker / "numa_maps").write_text(f"55ff2ca1a000 {policy} file=/a\n")
    for node, processors in nodes.items():
        (system / f"node{node}").mkdir(parents=True)
        (system / f"node{node}" / "cpulist").write_text(f"{processors}\n")
    (system / "online").write_text(f"{min(nodes)}-{max(nodes)}\n" if len(nodes) > 1 else "0\n")
    mounts = f"mount --bind {system} /sys/devices/system/node && mount --bind {folder / 'proc'} /proc"
    printed = run(
        *("unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh"),
        *(sys.executable, "-c", BORROWED, library()),
        env={"PYTHONPATH": f"{REPOSITORY}:{Path(engine_parts.__file__).parent}"},
        cwd=REPOSITORY,
    )
    seen: list[list[object]] = json.loads(printed)
    return seen


needs_two = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="two processors stand for two nodes"
)
DEFAULT = 0


@needs_two
@pytest.mark.parametrize(
    ("policy", "allowed", "processor", "node"),
    [
        ("default", "0-1", 0, 0),
        ("default", "0-1", 1, 1),
        ("bind:0", "0-1", 1, 0),
        ("default", "0", 1, 0),
        ("default", "1", 0, 1),
    ],
)
def test_thread_asks_on_its_askers_node_and_goes_back(
    tmp_path: Path, policy: str, allowed: str, processor: int, node: int
) -> None:
    before, during, after = borrowed(
        tmp_path, {0: "0", 1: "1"}, policy=policy, allowed=allowed, processor=processor
    )
    assert during[0] == [node]
    if node == 0:
        assert during[1] == PREFERRED
    assert before == after == [sorted(os.sched_getaffinity(0)), DEFAULT]


def test_nothing_is_done_on_a_machine_of_one_node(tmp_path: Path) -> None:
    before, during, after = borrowed(tmp_path, {0: "0"}, policy="bind:0", allowed="0", processor=0)
    assert before == during == after


def test_caller_that_is_gone_leaves_the_thread_where_it_is(tmp_path: Path) -> None:
    before, during, _ = borrowed(tmp_path, {0: "0", 1: "1"}, policy="default", allowed="", processor=0)
    assert before == during
