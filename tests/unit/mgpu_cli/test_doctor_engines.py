"""How containerd matches annotations: Go's path.Match, whose * ends at a slash."""

import pytest

from mgpu_cli.doctor import engines


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*", "mgpu.dev/core", False),
        ("*/*", "mgpu.dev/core", True),
        ("mgpu.dev/*", "mgpu.dev/core", True),
        ("mgpu.dev/*", "xmgpu.dev/core", False),
        ("mgpu.dev/*", "mgpuxdev/core", False),
        ("mgpu.dev/cor?", "mgpu.dev/core", True),
        ("mgpu.dev/cor?", "mgpu.dev/cor/", False),
        ("mgpu.dev/[l-n]emory", "mgpu.dev/memory", True),
        ("mgpu.dev/[^m]emory", "mgpu.dev/memory", False),
        ("mgpu.dev/core", "mgpu.dev/core", True),
        ("mgpu.dev/cor", "mgpu.dev/core", False),
        ("mgpu.dev/[", "mgpu.dev/[", True),
    ],
)
def test_glob(pattern: str, name: str, matches: bool) -> None:
    assert bool(engines.glob(pattern).fullmatch(name)) is matches


def test_invalid_pattern_matches_no_annotation() -> None:
    everything = engines.not_passed([])
    assert engines.not_passed(["[z-a]"]) == everything
    assert engines.not_passed(["*/*"]) == []


def test_is_ours_tells_our_runtime_from_runc() -> None:
    assert engines.is_ours("/run/mgpu/bin/mgpu-runtime")
    assert not engines.is_ours("/usr/bin/runc")
    assert not engines.is_ours(None)


def test_long_list_is_cut() -> None:
    assert engines.shown(["a", "b", "c", "d", engines.OWN_EXAMPLE]) == "a, b, c and 2 more"
    assert engines.shown([engines.OWN_EXAMPLE]) == "mgpu.dev/*"
