"""Callers that are not hostile, only unusual: interrupted all the time, in very many groups, or another
process or another file by the next call.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.support.arbiter import Arbiter
from tests.support.lasting import lasting_mgpu
from tests.support.programs import Programs
from tests.support.waiting import until

ENV = {"MGPU_MEMORY_MIB": "1024"}


lasting, mgpu = lasting_mgpu()


def test_signal_every_200_us(mgpu: Arbiter, built: Programs) -> None:
    with built.bundle("alarm", "500", env=ENV) as made:
        done = made.run(mgpu.runtime)
        assert done.out == "ok 500, often interrupted\n", str(done)
    until(lambda: mgpu.containers() == [], "the grant is back")
    assert mgpu.used_bytes() == [0, 0]
    assert [card.used_bytes for card in mgpu.account().cards] == [0, 0]


def test_process_in_thousands_of_groups(mgpu: Arbiter, built: Programs) -> None:
    with built.bundle("capped", env=ENV) as made:
        made.edit(lambda config: config["process"]["user"].update(additionalGids=list(range(1, 4000))))
        assert '"after": 0' in made.output(mgpu.runtime)


@pytest.mark.parametrize("how", ["files", "vfork", "exec"])
def test_caller_that_changes_between_calls_is_served_right(mgpu: Arbiter, built: Programs, how: str) -> None:
    with built.bundle("changing", how, env=ENV) as made:
        done = made.run(mgpu.runtime)
        assert done.out == "ok\n", str(done)


def test_file_that_is_remembered_is_not_kept_open(mgpu: Arbiter, built: Programs) -> None:
    with built.bundle("changing", "close", env=ENV) as made, made.running(mgpu.runtime) as running:
        assert running.line() == "holding"
        assert mgpu.used_bytes() == [1 << 20, 0]
        running.tell()
        assert running.line() == "closed"
        until(lambda: mgpu.account().cards[0].used_bytes == 0, "the card has seen the close")
        until(lambda: mgpu.used_bytes() == [0, 0], "the charge has ended")
        made.call(mgpu.runtime, "kill", made.container, "KILL")
    until(lambda: mgpu.containers() == [], "the grant is back")


def test_process_under_the_id_of_a_thread_that_has_ended(mgpu: Arbiter, built: Programs) -> None:
    """What was known of the thread is not said of the process. Programs that restore others choose ids like
    this.
    """

    def let_choose_ids(config: Any) -> None:
        for kind in ("bounding", "effective", "permitted"):
            config["process"]["capabilities"][kind].append("CAP_CHECKPOINT_RESTORE")

    with built.bundle("changing", "tid", env=ENV) as made:
        made.edit(let_choose_ids)
        with made.running(mgpu.runtime) as running:
            assert running.line() == "thread"
            process = mgpu.containers()[0]["pid"]
            [thread] = {int(task.name) for task in Path(f"/proc/{process}/task").iterdir()} - {process}
            running.tell(str(thread))
            assert running.line() == "holding"
            assert [use.tgid for use in mgpu.account().cards[0].files] == [thread]
            made.call(mgpu.runtime, "kill", made.container, "KILL")
    until(lambda: mgpu.containers() == [], "the grant is back")
