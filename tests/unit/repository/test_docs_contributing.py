"""What contributors are told: commands are run, files exist, templates and editors' settings are read."""

import configparser
import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commands import run
from tests.support.console import Step, matches, steps
from tests.support.places import REPOSITORY
from tests.support.tree import PYTHON, SHELL, TEXT, C, copy_to, everything, files_of, relative
from tools import release

PAGES = [REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "docs" / "releasing.md"]
STEPS = [step for page in PAGES for step in steps(page.read_text())]
TEMPLATES = sorted((REPOSITORY / ".github").rglob("*.md"))
_FILE = re.compile(r"`([\w./-]+\.(?:build|c|h|py|def|tsv|json|sh|toml))`")
KINDS = {"python": PYTHON, "c": C, "header": C, "shell": SHELL, "text": TEXT}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The repository as it is here, as a clone of its own: commands write into it."""
    base = tmp_path_factory.mktemp("clone")
    copy_to(base)
    (base / "build").mkdir()
    (base / "build" / "venv").symlink_to(REPOSITORY / "build" / "venv")
    for command in (["init", "-q"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=base, check=True)
    yield base
    shutil.rmtree(base)


def changed(clone: Path) -> str:
    return run("git", "diff", "--stat", cwd=clone)


def test_contributing_page_has_steps_to_run() -> None:
    assert [step.command.split()[1:3] for step in STEPS].count(["-m", "tools.man"]) == 1
    assert len(STEPS) >= 6


@pytest.mark.parametrize("step", STEPS, ids=[step.command[-40:] for step in STEPS])
def test_prints_what_it_says_and_changes_nothing(clone: Path, step: Step) -> None:
    done = subprocess.run(
        ["sh", "-c", step.command],
        cwd=clone,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert matches(step.output, done.stdout), f"the page shows\n{step.output}\nand it prints\n{done.stdout}"
    assert changed(clone) == "", "what is generated is not what is there"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    paths = [f"/{relative(path)}" for path in everything()]
    named = _FILE.findall(page.read_text())
    assert named
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in paths)] == []


def test_version_is_the_same_everywhere() -> None:
    version = release.version()
    heading = re.search(
        r"^## (\S+) \((?:not released|\d{4}-\d\d-\d\d)\)$", (REPOSITORY / "NEWS.md").read_text(), re.M
    )
    assert heading
    assert heading[1] == version
    assert importlib.metadata.version("mgpu") == version


def hooks() -> list[dict[str, Any]]:
    config = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())
    [repository] = config["repos"]
    # What judges a commit's message has tests of its own.
    return [hook for hook in repository["hooks"] if hook.get("stages") != ["commit-msg"]]


@pytest.mark.parametrize("hook", hooks(), ids=lambda hook: hook["id"])
def test_hook_passes_on_the_sources(clone: Path, hook: dict[str, Any]) -> None:
    names: list[str] = []
    if hook.get("pass_filenames", True):
        kinds = {KINDS[kind] for kind in hook.get("types") or hook["types_or"]}
        names = [
            name
            for kind in sorted(kinds)
            for name in map(relative, files_of(kind))
            if not re.search(hook.get("exclude", "^$"), name)
        ]
        assert names
    words = hook["entry"].split()
    if not names:
        # Those tests are in this very run: that they exist is enough.
        assert [
            word for word in words if word.startswith("tests/") and not (REPOSITORY / word).exists()
        ] == []
        return
    run(*words, *names, cwd=clone, timeout_s=600)
    assert changed(clone) == "", "what is committed is not as the hook has it"


def test_editors_indent_as_formatters_do() -> None:
    config = configparser.ConfigParser()
    config.read_string("[top]\n" + (REPOSITORY / ".editorconfig").read_text())
    clang = yaml.safe_load((REPOSITORY / ".clang-format").read_text())
    assert config["*"]["indent_size"] == str(clang["IndentWidth"])
    assert config["*"]["max_line_length"] == str(clang["ColumnLimit"])


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_template_has_what_the_hosting_site_reads(template: Path) -> None:
    head, _, body = template.read_text().removeprefix("---\n").partition("\n---\n")
    if template.parent.name == "ISSUE_TEMPLATE":
        assert set(yaml.safe_load(head)) == {"name", "about"}
        assert body.strip()
    else:
        assert not template.read_text().startswith("---")


def test_issue_and_merge_templates_exist() -> None:
    assert {path.name for path in TEMPLATES} >= {"bug.md", "PULL_REQUEST_TEMPLATE.md"}
