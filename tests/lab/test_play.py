"""What the laboratory's test of the scripts fails on: an answer that is not the recorded one."""

import pytest

from lab.play import compare
from lab.tests import play

CASE, CALL, OTHERWISE = "objects.frees and what is not there", "control C C 0x201 128", "0x1234"


def replayed(monkeypatch: pytest.MonkeyPatch, on: str, changed: str) -> None:
    """As if NVIDIA's driver there said what is recorded, but for one call where `changed` is its answer."""
    rows = [
        (case, call, changed if changed and (case, call, which) == (CASE, CALL, 1) else answer)
        for (case, call, which), answer in compare.recorded(on).items()
    ]
    monkeypatch.setattr(play, "version", lambda: on)
    monkeypatch.setattr(play, "chip", lambda: compare.CHIP)
    monkeypatch.setattr(play, "params_bytes", lambda symbol: 444)
    monkeypatch.setattr(play, "played", lambda driver, fb_info_bytes: rows)
    play.answers_are_those_recorded()


@pytest.mark.parametrize("driver", play.RECORDED)
def test_wrong_record_fails(monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    replayed(monkeypatch, driver, "")
    with pytest.raises(AssertionError, match=rf"^1 answers are not .*{CASE}.*{OTHERWISE}"):
        replayed(monkeypatch, driver, OTHERWISE)
