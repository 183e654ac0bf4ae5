"""A sample of the grid of mixes, where the judge's folder is; its nodes and its picture."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.bench import grid
from tests.bench.grid import Point
from tests.bench.traces import FOLDER, OURS, PLAIN

SVG = "{http://www.w3.org/2000/svg}"
HAS_JUDGE = (FOLDER / "mixes.py").exists()
needs_judge = pytest.mark.skipif(not HAS_JUDGE, reason="the folder of the judge is not there: MGPU_TRACES")


def test_points_are_the_same_ones_each_time_and_cover_what_is_asked() -> None:
    points = grid.points()
    assert points == grid.points()
    assert len(set(points)) == 45
    for member, least, most in (("several", 0, 0.9), ("whole", 0, 0.6), ("models", 0, 0.5), ("cpu", 0.5, 2)):
        values = [getattr(point, member) for point in points]
        assert (min(values), max(values)) == (least, most)
    assert {point.size for point in points} == {4, 8, 16}


@needs_judge
@pytest.mark.parametrize("size", [4, 16])
def test_nodes_of_another_size_have_as_much_for_each_gpu(size: int) -> None:
    def most(gpus: int, found: list[dict[str, int]]) -> int:
        return max(node["cpu_milli"] // node["num_gpu"] for node in found if node["num_gpu"] == gpus)

    assert most(size, grid.nodes(size)) >= most(8, grid.nodes(8))
    assert all(node["num_gpu"] != 8 for node in grid.nodes(size))


@needs_judge
def test_where_cpu_is_out_first_no_plain_policy_allocates_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "KEPT", tmp_path)
    point = Point(several=0.5, whole=0.2, models=0, cpu=2, other=0.3, size=8)
    found = {point: {policy: grid.allocated(point, policy, orders=1) for policy in (*PLAIN, OURS)}}
    assert min(grid.gains(found)[0]) >= -0.2


def test_picture_has_two_bars_a_mix() -> None:
    picture = ElementTree.fromstring(grid.drawn([(1.0, 0.5), (-0.5, 2.0), (7.0, -4.0)]))
    bars = [each for each in picture.iter(f"{SVG}rect") if each.get("fill") in grid.COLOURS]
    assert len(bars) == 6
