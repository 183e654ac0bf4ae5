import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from mgpu_cli import supervise
from mgpu_cli.fd_store import FdStore
from mgpu_cli.supervise import Ended, Stopped, Supervisor

SERVES = ("sh", "-c", "trap 'echo $0 >> \"$1\"; exit 0' TERM; echo ready; while :; do sleep 0.05; done")


def serve(name: str, journal: Path) -> list[str]:
    return [*SERVES, name, str(journal)]


def wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_programs_stop_in_reverse_order(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with Supervisor(tmp_path) as programs:
        for name in ("one", "two", "three"):
            programs.start(name, serve(name, journal))
    assert journal.read_text().split() == ["three", "two", "one"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_the_watch_and_handlers_are_put_back(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Supervisor(tmp_path) as programs:
        programs.start("one", serve("one", tmp_path / "journal"))
        os.kill(os.getpid(), number)
        with pytest.raises(Stopped):
            programs.watch()
    assert signal.getsignal(number) is before
    assert (tmp_path / "journal").read_text() == "one\n"


def start_and_watch(programs: Supervisor, name: str, argv: list[str]) -> None:
    programs.start(name, argv)
    programs.watch()


def test_ended_program_is_named_with_its_last_output(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as programs:
        programs.start("one", serve("one", tmp_path / "journal"))
        script = "echo ready; for i in $(seq 20); do echo line $i; done >&2; exit 3"
        # It may have ended by the time that it is seen to be ready.
        with pytest.raises(Ended, match=r"^two ended with status 3$") as ended:
            start_and_watch(programs, "two", ["sh", "-c", script])
    assert ended.value.tail == [f"line {i}" for i in range(11, 21)]
    assert (tmp_path / "journal").read_text() == "one\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [("echo already; exit 0", "ended with status 0"), ("kill -9 $$", "was killed by SIGKILL")],
)
def test_ending_before_ready_is_told_apart_from_ready(tmp_path: Path, script: str, words: str) -> None:
    with Supervisor(tmp_path) as programs, pytest.raises(Ended, match=words):
        programs.start("one", ["sh", "-c", script])


def test_restarted_program_keeps_its_place(tmp_path: Path) -> None:
    journal, pids = tmp_path / "journal", tmp_path / "pids"
    told: list[str] = []
    script = (
        'echo $$ >> "$2"; trap \'echo $0 >> "$1"; exit 0\' TERM; echo ready; while :; do sleep 0.05; done'
    )
    with Supervisor(tmp_path, told.append) as programs:
        programs.start("one", ["sh", "-c", script, "one", str(journal), str(pids)], again=True)
        programs.start("two", serve("two", journal))

        def started(times: int) -> bool:
            return len(pids.read_text().split()) == times

        for count in (1, 2, 3):
            assert wait_for(partial(started, count))
            os.kill(int(pids.read_text().split()[-1]), signal.SIGKILL)
            deadline = time.monotonic() + 5
            while len(told) < count and time.monotonic() < deadline:
                programs._step(0.1)
        assert wait_for(lambda: len(pids.read_text().split()) == 4)
    assert told == ["one was killed by SIGKILL, and is started again"] * 3
    assert journal.read_text().split() == ["two", "one"]


def test_program_that_was_ready_is_started_until_it_is_again(tmp_path: Path) -> None:
    lives, journal = tmp_path / "lives", tmp_path / "journal"
    script = 'echo >> "$2"; case $(wc -l < "$2") in 1) echo ready; exit 3;; 2|3) exit 4;; esac; ' + SERVES[2]
    told: list[str] = []
    with Supervisor(tmp_path, told.append) as programs:
        programs.start("one", ["sh", "-c", script, "one", str(journal), str(lives)], again=True)
        while not (len(told) == 3 and programs._programs[0].ready):
            programs._step(60)
    assert told == [f"one ended with status {status}, and is started again" for status in (3, 4, 4)]
    assert journal.read_text() == "one\n"


def test_child_of_a_supervised_program_reports_why_it_is_not_ready(tmp_path: Path) -> None:
    log = tmp_path / "inner.log"
    with (
        Supervisor(tmp_path) as programs,
        pytest.raises(Ended, match=r"^inner ended with status 2$") as ended,
    ):
        programs.start("outer", ["sh", "-c", f"echo why >> {log}; exit 2"], again=True, speaker="inner")
    assert (ended.value.log, ended.value.tail) == (log, ["why"])


def test_ended_program_is_named_without_output(tmp_path: Path) -> None:
    with (
        Supervisor(tmp_path) as programs,
        pytest.raises(Ended, match=r"^outer ended with status 2$") as ended,
    ):
        programs.start("outer", ["sh", "-c", "echo own >&2; exit 2"], again=True, speaker="inner")
    assert ended.value.tail == ["own"]


def test_supervisor_ends_when_a_program_is_never_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "READY_TIMEOUT_S", 0.2)
    with Supervisor(tmp_path) as programs, pytest.raises(Ended, match="did not get ready"):
        programs.start("one", ["sleep", "60"])


def test_program_deaf_to_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "STOP_TIMEOUT_S", 0.2)
    began = time.monotonic()
    with Supervisor(tmp_path) as programs:
        programs.start("one", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"])
    assert time.monotonic() - began < 60


def test_much_output_does_not_block_a_program(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as programs:
        programs.start("one", ["sh", "-c", "echo ready; head -c 1000000 /dev/zero; exit 5"])
        with pytest.raises(Ended, match="status 5"):
            programs.watch()
    assert (tmp_path / "one.log").stat().st_size >= 1000000


KILLED = """
import sys
from pathlib import Path
from mgpu_cli.supervise import Supervisor
with Supervisor(Path(sys.argv[1])) as programs:
    programs.start("one", ["sh", "-c", "echo $$ > \\"$0\\"; echo ready; exec sleep 60", sys.argv[1] + "/pid"])
    print("up", flush=True)
    programs.watch()
"""


def test_killed_supervisor_leaves_no_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE
    ) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"up\n"
        child = int((tmp_path / "pid").read_text())
        assert Path(f"/proc/{child}").exists()
        supervisor.kill()
    assert wait_for(lambda: _gone(child))


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_store_whose_path_is_removed_is_served_anew(tmp_path: Path) -> None:
    """Its program is told nothing, and stores by that path."""
    path = tmp_path / "notify.sock"
    said: list[str] = []
    stores = "import os, socket, sys, time; print('ready', flush=True)\n"
    stores += "link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    stores += "while True:\n time.sleep(0.1)\n try:\n  link.connect(os.environ['NOTIFY_SOCKET'])\n"
    stores += "  socket.send_fds(link, [b'FDSTORE=1\\nFDNAME=' + sys.argv[1].encode()], [1])\n"
    stores += " except OSError: pass\n"

    def told(line: str) -> None:
        said.append(line)
        store.kept.clear()

    with closing(FdStore(path, 10)) as store, Supervisor(tmp_path, told) as programs:
        programs.start("one", [sys.executable, "-c", stores, "a"], store=store)
        path.unlink()

        def end_when_stored() -> None:
            wait_for(lambda: bool(said and store.kept))
            os.kill(os.getpid(), signal.SIGTERM)

        ender = threading.Thread(target=end_when_stored)
        ender.start()
        with pytest.raises(Stopped):
            programs.watch()
        ender.join()
        assert said == [f"{path} was removed, and is served anew"]
        assert {name for name, _ in store.kept} == {"a"}
    assert not path.exists()
