"""Programs of frameworks, of video engines and of whole cards on a card: judged by what they say."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.gpu import container_programs, whole_cards
from tests.gpu.product import Container, Run
from tests.gpu.results import Results
from tests.support.container_stages import Product, verdict


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results")


def test_programs_are_judged_by_their_reports(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {one.stem for one in container_programs.FOLDER.glob("*.py")}
    assert kept == {"report", "nvjpeg", "egl", "vulkan", "mps_client", *container_programs.NEEDS}
    monkeypatch.setattr(container_programs, "python_with", lambda module: "/python" * (module != "jax"))
    right, no_decoder = '{"ok": true}', '{"ok": false, "error": "dlopen libnvcuvid.so.1: cannot open"}'
    calls = '{"calls": 9, "failed": ["open /dev/nvidia0: errno 1"], "slowest": []}'
    box = Product(*[right] * 12, no_decoder, calls)
    out = verdict(container_programs.programs, box, results)
    assert out.verdict == "all right"
    assert [name for name, found in out.figures.items() if isinstance(found, str)] == [
        "jax_work",
        "decode, whole",
    ]
    # Video and graphics are in shares that say so, and a decoder has whole cards besides.
    assert [one["memory_mib"] for one in box.asked[:-1]] == [*[container_programs.CAP_MIB] * 12, None]
    assert [one["capabilities"] for one in box.asked[:-1]] == [
        *[""] * 6,
        *[container_programs.VIDEO] * 4,
        *[container_programs.GRAPHICS] * 2,
        "",
    ]
    box = Product("Aborted", calls, '{"ok": false}', calls, *[right] * 11)
    out = verdict(container_programs.programs, box, results)
    assert out.verdict == "to be looked at: torch_work, torch_profile"
    # One that fails runs once more, for its calls.
    assert out.figures["torch_profile"] == {"ok": False, "calls": json.loads(calls)}
    out = verdict(container_programs.programs, Product(*[right, calls] * 13, status=134), results)
    found = out.figures["torch_work"]
    assert (found["ok"], found["status"], found["said"]) == (False, 134, right)


def test_lines_that_were_read_ahead_are_not_lost() -> None:
    command = ["printf", "a\\nb\\nc\\n"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        box = Container("it", process)
        assert box.line() == "a\n"
        assert box.rest() == Run(0, "b\nc\n")


def test_tools_with_whole_cards_are_judged_by_what_they_say(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {name: f"/there/{name}" for name in ("ncu", "compute-sanitizer", "nvidia-cuda-mps-control")}
    monkeypatch.setattr(whole_cards, "_built", lambda *_: "")
    monkeypatch.setattr(shutil, "which", lambda name, path="": there.get(name))
    box = Product(
        "sm__cycles_elapsed.avg      cycle     5,449.53",
        "ERROR SUMMARY: 1 error",
        '{"calls": 9}',
        'talk\n{"program": "mps_client", "ok": true, "error": ""}\ntalk',
        '{"program": "dmabuf", "ok": true}',
    )
    box.folder = tmp_path
    out = verdict(whole_cards.tools, box, results)
    assert out.verdict == "to be looked at: compute-sanitizer"
    assert out.figures == {
        "ncu": "ok",
        "cuda-gdb": "cannot be said here: it is not there",
        "compute-sanitizer": "status 0: ERROR SUMMARY: 1 error",
        "MPS": "ok",
        "dmabuf": "ok",
    }
    assert all(one["memory_mib"] is None for one in box.asked)
    assert "/tmp/saxpy" in box.asked[0]["argv"]
