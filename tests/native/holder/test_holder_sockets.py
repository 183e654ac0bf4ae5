"""The holder's sockets are its own: nobody else takes them, and one that is taken away is served anew."""

import os
import signal
from pathlib import Path

import pytest

from oci_specs import paths
from tests.support.commands import Done, attempt
from tests.support.holder import Holder, holding, message, receive, send, stand_in
from tests.support.waiting import until


def second(holder: Holder) -> Done:
    argv: list[str | Path] = [
        paths.libexec("mgpu-holder"),
        "--seccomp-socket",
        holder.folder / "seccomp.sock",
    ]
    argv += ["--mgpud-socket", holder.folder / "holder.sock"]
    return attempt(*argv)


def serves(holder: Holder, container: str) -> bool:
    """Whether a listener arrives at it, and from it at a mgpud."""
    with holder.runtime() as runtime:
        send(runtime, message(container), [stand_in()[0]])
    mgpud = holder.mgpud()
    found = receive(mgpud, 1)
    mgpud.close()
    return found[-1].container_id == container


def is_refused(holder: Holder) -> bool:
    refusal = second(holder)
    [line] = refusal.err.splitlines()
    assert f"another mgpu-holder (pid {holder.process.pid}) serves {holder.folder}/seccomp.sock" in line
    return refusal.status == 1


def test_second_holder_is_refused_and_takes_nothing(holder: Holder) -> None:
    before = [(holder.folder / name).stat().st_ino for name in ("seccomp.sock", "holder.sock")]
    assert is_refused(holder)
    assert [(holder.folder / name).stat().st_ino for name in ("seccomp.sock", "holder.sock")] == before
    assert serves(holder, "c1")


def test_one_that_has_replaced_itself_has_the_lock(holder: Holder) -> None:
    os.kill(holder.process.pid, signal.SIGHUP)
    until(lambda: holder.status().replaced == 1, "it is replaced")
    assert is_refused(holder)


def test_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    with holding(tmp_path) as killed:
        killed.process.kill()
        killed.process.wait()
    with holding(tmp_path) as next_one:
        assert serves(next_one, "c1")


@pytest.mark.parametrize("name", ["seccomp.sock", "holder.sock"])
@pytest.mark.parametrize("instead", [False, True], ids=["removed", "another file"])
def test_socket_that_is_taken_away_is_served_anew(holder: Holder, name: str, instead: bool) -> None:
    path = holder.folder / name
    path.unlink()
    if instead:
        path.touch()
    until(lambda: "is served anew" in holder.log(), "it is said")
    assert holder.log().count("is served anew") == 1
    assert path.is_socket()
    assert serves(holder, "c1")
