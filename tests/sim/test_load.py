"""mgpu-load on simulated cards: what it reports, and how it ends."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oci_specs import paths
from sim.cards import CardProcess, running
from tests.sim.conftest import Run, library_environment
from tests.support.commands import Done, attempt
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a mount namespace with device nodes")
USAGE, REFUSED, FAILED = 64, 2, 1

Load = Callable[..., Any]
Supervised = Callable[[list[str]], list[str]]


def command(*arguments: str) -> list[str]:
    return [paths.libexec("mgpu-load"), *arguments]


@pytest.fixture
def load(run: Run) -> Load:
    return lambda *arguments: json.loads(run([*command(*arguments), "-o", "json"]))


@pytest.fixture
def undisturbed(load: Load) -> Load:
    """undisturbed(good, *arguments): the first report that is good, of a few: the machine may be busy
    elsewhere.
    """

    def attempt(good: Callable[[Any], bool], *arguments: str) -> Any:
        for _ in range(8):
            if good(seen := load(*arguments)):
                break
        return seen

    return attempt


def runs_on(card: CardProcess) -> None:
    """Waits until a program's kernels execute."""
    until(
        lambda: any(
            group.run_ns > 0
            for one in card.account().cards
            for engine in one.engines
            for group in engine.groups
        ),
        "it runs on the card",
    )


def ended(argv: list[str]) -> Done:
    return attempt(*argv, env=library_environment())


BURST = ("burst", "--period-ms", "5", "--kernels", "3", "--kernel-us", "400")


def test_burst(load: Load, tmp_path: Path) -> None:
    stamps, solo = tmp_path / "stamps", tmp_path / "solo"
    began = time.monotonic_ns()
    seen = load(*BURST, "--requests", "100", "--stamps", str(stamps), "--save", str(solo))
    assert time.monotonic_ns() - began > 99 * 5_000_000
    assert (seen["mode"], seen["requests"], seen["kernels"], seen["kernel_us"]) == ("burst", 100, 3, 400.0)
    latency = seen["latency_us"]
    assert 1200 <= latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert seen["response_us"]["mean"] >= latency["mean"]
    assert 0 < seen["start_us"]["p50"] < latency["p50"] - 1000
    assert "slowdown" not in seen
    rows = [[int(word) for word in line.split()] for line in stamps.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 100
    for submitted, started, done in rows:
        assert began < submitted < started < done
        assert done - started >= 1_200_000
    assert sorted(done - submitted for submitted, _, done in rows)[-1] == pytest.approx(
        latency["max"] * 1000, abs=1
    )
    again = load(*BURST, "--requests", "40", "--against", str(solo))
    assert again["slowdown"]["p50"] == pytest.approx(again["latency_us"]["p50"] / latency["p50"], rel=0.01)


def test_burst_without_pause(undisturbed: Load) -> None:
    burst = ("burst", "--period-ms", "0", "--kernels", "2", "--kernel-us", "500", "--seconds", "0.5")
    seen = undisturbed(lambda seen: seen["requests"] > 200 and seen["latency_us"]["p50"] < 2500, *burst)
    assert 200 < seen["requests"] <= 500
    assert 1000 <= seen["latency_us"]["p50"] < 2500


def test_late_request_delays_the_next_not_its_time(load: Load) -> None:
    seen = load("burst", "--period-ms", "5", "--kernels", "1", "--kernel-us", "10000", "--requests", "20")
    # As a part of the request's own latency the delay would be 50 ms by then.
    assert seen["latency_us"]["p50"] < 40_000
    assert seen["response_us"]["max"] > 19 * 5_000


def test_saturate(undisturbed: Load) -> None:
    saturate = ("saturate", "--kernel-us", "2000", "--seconds", "0.6")
    seen = undisturbed(lambda seen: seen["devices"][0]["busy"] > 0.85, *saturate)
    (card,) = seen["devices"]
    assert (card["device"], seen["queue"]) == (0, 4)
    assert card["seconds"] >= 0.6
    assert 0.85 < card["busy"] <= 1.001
    assert card["busy"] == pytest.approx(card["kernels"] * 0.002 / card["seconds"], abs=0.002)


def test_saturate_counts_kernels_on_streams(load: Load) -> None:
    seen = load("saturate", "--kernel-us", "100", "--kernels", "500", "--streams", "3", "--queue", "9")
    assert seen["devices"][0]["kernels"] == 500


def test_saturate_several_cards(load: Load) -> None:
    seen = load("saturate", "--kernel-us", "2000", "--kernels", "200", "--device", "2,0")
    assert [(card["device"], card["kernels"]) for card in seen["devices"]] == [(2, 200), (0, 200)]


def test_linked_cards_go_in_step(load: Load) -> None:
    """The second card is never done before the first, whose run-ahead is bounded."""
    seen = load("saturate", "--kernel-us", "2000", "--seconds", "0.5", "--device", "0,1", "--linked")
    first, second = (card["kernels"] for card in seen["devices"])
    assert first > 10
    assert first - 10 <= second <= first


def test_alloc(load: Load, supervised: Supervised) -> None:
    assert load("alloc", "--mib", "500") == {"mode": "alloc", "mib": 500, "code": 0}
    refused = ended(supervised(command("alloc", "--mib", "16000", "-o", "json")))
    assert refused.status == REFUSED
    assert json.loads(refused.out) == {
        "mode": "alloc",
        "mib": 16000,
        "code": 2,
        "error": "CUDA_ERROR_OUT_OF_MEMORY",
        "text": "out of memory",
    }


def test_alloc_holds_until_it_is_told(supervised: Supervised) -> None:
    with subprocess.Popen(
        supervised(command("alloc", "--mib", "64", "--hold-ms", "60000")),
        env=library_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "mode: alloc\n"
        _signal_load(program.pid, signal.SIGTERM)
        assert program.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "arguments",
    [
        ("saturate", "--kernel-us", "1000"),
        BURST,
        # Waiting in the driver for far longer than it is given to end.
        ("burst", "--period-ms", "1", "--kernels", "1", "--kernel-us", "60000000"),
        ("saturate", "--kernel-us", "60000000", "--device", "0,1", "--linked"),
    ],
)
def test_signal_ends_it_with_its_report(
    supervised: Supervised, simulated: CardProcess, arguments: tuple[str, ...], number: signal.Signals
) -> None:
    with subprocess.Popen(
        supervised([*command(*arguments), "-o", "json"]),
        env=library_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        runs_on(simulated)
        _signal_load(program.pid, number)
        began = time.monotonic()
        report = json.loads(program.communicate(timeout=60)[0])
        assert time.monotonic() - began < 30, "the longest kernel takes a minute"
        assert program.returncode == 0
        assert report["mode"] == arguments[0]


def _signal_load(supervisor: int, number: signal.Signals) -> None:
    (child,) = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text(encoding="ascii").split()
    os.kill(int(child), number)


def test_lost_card_ends_the_load_with_one_line(tmp_path: Path, supervisor: str) -> None:
    with running(tmp_path, "v100-16", rm_call_us=0) as card:
        with subprocess.Popen(
            [supervisor, os.fspath(card.card_socket), "1", *command("saturate", "--kernel-us", "1000")],
            env=library_environment(),
            stderr=subprocess.PIPE,
            text=True,
        ) as program:
            runs_on(card)
            card.process.kill()
            said = program.communicate(timeout=60)[1]
            assert program.returncode == FAILED
            assert said == (
                "mgpu-load: cuEventSynchronize: CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure\n"
            )


def test_lines_for_people(run: Run) -> None:
    lines = run(command("saturate", "--kernel-us", "500", "--kernels", "20")).splitlines()
    assert lines[:4] == ["mode: saturate", "kernel_us: 500.000", "queue: 4", "devices: "]
    assert lines[4].startswith("  device 0, kernels 20, seconds 0.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "which mode"),
        (("train",), 'no mode "train"'),
        (("burst",), "--period-ms is missing"),
        ((*BURST, "--kernels", "0"), '--kernels is a whole number from 1 to 1000000000, not "0"'),
        ((*BURST, "--kernel-us", "nan"), "--kernel-us is a number"),
        ((*BURST, "--seconds"), "--seconds needs a value"),
        ((*BURST, "--mib", "3"), "unknown option mib"),
        ((*BURST, "--device", "0,1"), "takes one device"),
        ((*BURST, "more"), 'what is "more"?'),
        (("saturate", "--kernel-us", "5", "--linked"), "--linked needs several devices"),
        (("saturate", "--kernel-us", "5", "--device", "0,,1"), "--device is a number"),
        (("alloc", "--mib", "-1"), "--mib is a whole number"),
        (("alloc", "--mib", "1", "-o", "yaml"), '-o is "json", not "yaml"'),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = ended(command(*arguments))
    assert (done.status, done.out, done.err.count("\n")) == (USAGE, "", 1)
    assert said in done.err


def test_help() -> None:
    for mode in ("burst", "saturate", "alloc"):
        assert f"usage: mgpu-load {mode}" in ended(command(mode, "--help")).out
    assert "SIGTERM" in ended(command("--help")).out


def test_files_that_will_not_do(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(
        "mgpu-load-burst 1\nkernels 9 kernel_us 400\nmean_us 1 p50_us 1 p99_us 1\n", encoding="ascii"
    )
    for arguments, said in (
        (("--against", str(tmp_path / "none")), "No such file"),
        (("--against", "/dev/null"), "not what mgpu-load burst --save writes"),
        (("--against", str(other)), "made with other --kernels"),
        (("--stamps", "/nowhere/stamps"), "No such file"),
    ):
        done = ended(command(*BURST, *arguments))
        assert (done.status, done.err.count("\n")) == (FAILED, 1)
        assert said in done.err


def test_load_without_a_driver_fails() -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has NVIDIA nodes")
    done = ended(command("alloc", "--mib", "1"))
    assert done.status == FAILED
    assert "CUDA_ERROR_NO_DEVICE (100)" in done.err


def test_sanitized(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "mgpu-load"
    sources = sorted((Path(__file__).parents[2] / "load").glob("*.c"))
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-pthread", "-g", "-O1", "-fno-sanitize-recover=all"]
    subprocess.run(
        ["cc", *flags, "-fsanitize=address,undefined", *sources, "-lm", "-o", program], check=True
    )
    stamps = tmp_path / "stamps"
    short = ("--requests", "20", "--stamps", str(stamps), "--save", str(tmp_path / "solo"))
    assert json.loads(run([os.fspath(program), *BURST, *short, "-o", "json"]))["requests"] == 20
    linked = ("--kernel-us", "500", "--kernels", "50", "--device", "0,1", "--linked", "--streams", "2")
    assert "kernels 50" in run([os.fspath(program), "saturate", *linked])
    assert "code: 0" in run([os.fspath(program), "alloc", "--mib", "8"])
