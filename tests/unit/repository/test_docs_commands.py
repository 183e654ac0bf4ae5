"""What the pages say exists does exist; what the README's console blocks print is tested on the engines."""

import re
import shlex
from pathlib import Path

import pytest
from click import Command, Group, Option

from lab import __main__ as laboratory
from lab import collection, pairs
from lab.hosts import __main__ as hosts
from lab.hosts import kernels
from mgpu_cli.main import main
from oci_specs import vocabulary
from tests.support.commands import attempt
from tests.support.console import Step, matches, steps
from tests.support.places import REPOSITORY

README = REPOSITORY / "README.md"
PAGES = [
    README,
    *(REPOSITORY / name for name in ("CONTRIBUTING.md", "NEWS.md", "SECURITY.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / ".github").rglob("*.md")),
]
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
_CODE = re.compile(r"`([^`\n]+)`|^    (?! )(.+)$", re.MULTILINE)


def commands(page: Path, program: str) -> set[str]:
    """Commands of `program` in the page: in code spans, indented blocks and console blocks."""
    text = page.read_text()
    found = [first or second for first, second in _CODE.findall(text)]
    found += [step.command for step in steps(text)]
    return {command.strip() for command in found if command.startswith(f"{program} ")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_has_the_targets(page: Path) -> None:
    for command in commands(page, "make"):
        words = [word for word in shlex.split(command)[1:] if "=" not in word]
        asked = attempt("make", "--question", *words, cwd=REPOSITORY)
        # 1: there is something to do; 2: there is no such target.
        assert asked.status in (0, 1), f"{command}: {asked.err}"


def given_to(module: str, command: str) -> list[str]:
    """The words that make gives to that module of Python."""
    said = attempt("make", "--dry-run", *shlex.split(command)[1:], cwd=REPOSITORY)
    [line] = [line for line in said.out.splitlines() if f" -m {module} " in f"{line} "]
    return shlex.split(line.partition(f" -m {module}")[2])


GUESTS = ("driver-lab.md", "driver-differences.md", "hosts.md")
# In place of a name of the reader's.
PAIR, FOLDER = "DRIVER-KERNEL", "FOLDER"


@pytest.mark.parametrize("name", GUESTS)
def test_guests_take_the_words_that_their_pages_give_them(name: str) -> None:
    for command in commands(REPOSITORY / "docs" / name, "make"):
        target = shlex.split(command)[1]
        if target in ("lab", "lab-all"):
            asked = laboratory.main.make_context(target, given_to("lab", command)).params
            assert asked["modules"] in (None, Path(FOLDER)), command
            assert asked["every_pair"] is (target == "lab-all")
            assert collection.tests(asked["tests"], collection.every)
            assert asked["pair"] == PAIR or pairs.named(asked["pair"])
        elif target == "hosts":
            asked = hosts.main.make_context(target, given_to("lab.hosts", command)).params
            assert all(kernels.named(release) for release in asked["releases"]), command


def test_pages_of_guests_have_commands_to_check() -> None:
    page = REPOSITORY / "docs" / "driver-lab.md"
    assert {'make lab LAB="files.polls"', "make lab SHELL=1"} <= commands(page, "make")
    assert given_to("lab", "make lab SHELL=1") == ["--shell"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_mgpu_has_the_subcommands_and_options(page: Path) -> None:
    assert isinstance(main, Group)
    for command in commands(page, "mgpu"):
        name, *words = shlex.split(command)[1:]
        assert name in main.commands, command
        unknown = {word for word in words if word.startswith("-")} - options(main.commands[name])
        # What follows the container's own command is not ours.
        assert not unknown or name == "run", f"{command}: {unknown}"


def options(command: Command) -> set[str]:
    return {name for option in command.params if isinstance(option, Option) for name in option.opts}


def test_readme_names_every_key() -> None:
    named = set(
        re.findall(r"`([^`]+)`", README.read_text().partition("## What to write")[2].partition("\n## ")[0])
    )
    keys = {key.name for key in vocabulary.KEYS} | {vocabulary.VISIBLE_DEVICES}
    assert keys <= named, f"not in the README's table: {sorted(keys - named)}"


def test_readme_has_commands_to_check() -> None:
    assert commands(README, "make") >= {"make demo", "make test", "make build image"}
    assert "mgpu up --sim v100-16:2" in commands(README, "mgpu")


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("one\n", "one\n", True),
        ("one", "two", False),
        ("a ... c", "a b\nb c", True),
        ("a ... c", "a b", False),
        ("[0] | ... |", "[0] | 4096 | root(1M)", False),
        ("one  \n", "one", True),
    ],
)
def test_shown_output_is_compared(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


def test_steps_of_a_block() -> None:
    text = "```console\n$ one\n$ two --x\nout\n```\n```sh\n$ not this\n```\n"
    assert steps(text) == [Step("one", ""), Step("two --x", "out\n")]
