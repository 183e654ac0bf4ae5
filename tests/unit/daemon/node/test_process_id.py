"""The container of a process, by its pid namespace: a pid alone may be a stranger's by now."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from native_sched.daemon.node import process_id
from tests.support.waiting import until


@contextmanager
def unshared(*command: str) -> Iterator[int]:
    """The first process of a new pid namespace."""
    with subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", *command]) as unshare:
        try:
            yield child_of(unshare.pid)
        finally:
            unshare.kill()


def child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    until(lambda: bool(children.read_text().split()), "it has a child")
    return int(children.read_text().split()[0])


def test_container_and_one_nested_in_it_are_inside_and_others_are_not(private_host: None) -> None:
    with (
        unshared("unshare", "--pid", "--fork", "sleep", "60") as init,
        unshared("sleep", "60") as other,
    ):
        nested = child_of(init)
        assert process_id.is_inside(init, init)
        assert process_id.is_inside(nested, init)
        assert process_id.is_inside(nested, os.getpid())
        assert not process_id.is_inside(init, nested)
        assert not process_id.is_inside(other, init)
        assert not process_id.is_inside(os.getpid(), init)
        assert (
            len(
                {
                    process_id.pid_namespace(init),
                    process_id.pid_namespace(nested),
                    process_id.pid_namespace(other),
                    0,
                }
            )
            == 4
        )
    until(lambda: not process_id.is_inside(init, os.getpid()), "it is gone")
    assert not process_id.is_inside(os.getpid(), 0)
    assert process_id.pid_namespace(os.getpid()) == process_id.pid_namespace(init) == 0
