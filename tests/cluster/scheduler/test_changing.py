"""One pair of the mixes that change in the middle, where the judge's folder is."""

from pathlib import Path

import pytest

from tests.bench import changing, grid
from tests.bench.changing import Pair
from tests.bench.grid import Point
from tests.bench.traces import FOLDER

HAS_JUDGE = (FOLDER / "mixes.py").exists()


def test_pairs_are_the_same_ones_each_time_and_of_two_mixes() -> None:
    assert changing.pairs() == changing.pairs()
    assert len(set(changing.pairs())) == changing.PAIRS
    assert all(pair.first != pair.then for pair in changing.pairs())


@pytest.mark.skipif(not HAS_JUDGE, reason="the folder of the judge is not there: MGPU_TRACES")
def test_nodes_are_left_whole_for_requests_of_several_that_come_after_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "KEPT", tmp_path)
    pair = Pair(Point(0, 0.6, 0.5, 0.5, 0.13, 8), Point(0.7, 0.2, 0.1, 1, 0.3, 8), order=42)
    assert min(changing.gain(pair)) >= -0.2
