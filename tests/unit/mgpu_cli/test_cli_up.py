import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mgpu_cli import profiles
from mgpu_cli.main import main
from oci_specs import paths
from oci_specs.refusal import Refusal
from tests.support.commands import attempt

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mgpu up refuses other users first")


def up(root: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["up", "--root", str(root), *args])


@pytest.mark.parametrize(
    ("values", "checked"),
    [(["v100-16"], "v100-16"), (["v100-16:2", "a10"], "v100-16:2,a10"), (["h200:31,a10"], "h200:31,a10")],
)
def test_profiles_are_handed_on(values: list[str], checked: str) -> None:
    assert profiles.checked(values) == checked


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("h900:2", '--sim "h900:2": no such profile; profiles: v100-16, a10, '),
        ("", '--sim "": no such profile; '),
        ("a10,,a10", '--sim "": no such profile; '),
        ("a10:", '--sim "a10:": no such count; '),
        ("a10:0", '--sim "a10:0": no such count; '),
        ("a10:-1", '--sim "a10:-1": no such count; '),
        ("a10:2:2", '--sim "a10:2:2": no such count; '),
        ("a10:33", '--sim "a10:33": 33 GPUs; there can be 32 GPUs in all'),
    ],
)
def test_invalid_profile_is_refused(value: str, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        profiles.checked([value])
    assert refused.value.line().startswith(f"mgpu: {words}")


def test_profiles_are_those_of_the_card() -> None:
    program = Path(paths.libexec("mgpu-simcard"))
    if not program.exists():
        pytest.skip(f"there is no {program}; make test builds it")
    done = attempt(program, "--dir", "/nonexistent", "--cards", "")
    said = re.search(r"\(1 to (\d+) cards in all\); profiles: (.*)", done.err)
    assert said is not None, done.err
    assert (int(said[1]), said[2].split()) == (profiles.MAX_CARDS, list(profiles.PROFILES))


def test_help_lists_the_profiles() -> None:
    shown = " ".join(CliRunner().invoke(main, ["up", "--help"]).output.split())
    assert f"Profiles: {profiles.LISTED}." in shown


@needs_root
@pytest.mark.parametrize("args", [("--sim", "h900:2"), ("--sim", "a10", "--ready-fd", "977")])
def test_bad_options_are_one_line_before_anything_is_made(tmp_path: Path, args: tuple[str, ...]) -> None:
    result = up(tmp_path / "state", *args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(rf"mgpu: {args[-2]} \"?{args[-1]}\"?: [^\n]*\n", result.stderr)
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_descriptor_for_reading_is_not_one_to_write_to(tmp_path: Path) -> None:
    with open(os.devnull, "rb") as reader:
        result = up(tmp_path / "state", "--sim", "a10", "--ready-fd", str(reader.fileno()))
    assert "open for writing" in result.stderr
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_refusal_of_a_program_below_is_shown_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "simcard"
    program.write_text("#!/bin/sh\necho noise >&2; echo 'mgpu: no; do that' >&2; exit 1\n")
    program.chmod(0o700)
    monkeypatch.setattr(paths, "libexec", lambda name: str(program))
    (tmp_path / "state").mkdir(mode=0o700)
    result = up(tmp_path / "state", "--sim", "a10", "--runtime", "true")
    assert (result.exit_code, result.stderr) == (1, "mgpu: no; do that\n")
