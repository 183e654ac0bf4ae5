"""The pages by task: every command in them is typed, in the page's order, and works."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import reader
from tests.support.commands import attempt
from tests.support.containerd import Containerd
from tests.support.dockerd import Dockerd
from tests.support.places import REPOSITORY
from tests.support.programs import Programs, inside
from tests.support.waiting import until

DOCS = REPOSITORY / "docs"
PAGES = (*sorted(path.stem for path in DOCS.glob("task-*.md")), "hangs")
PROGRAMS = ("mgpu", "docker", "apt", "systemctl", "modprobe", "nvidia-smi", "fuser", "cat")
_CODE = re.compile(r"`([^`\n]+)`|^ {4,}(\S.*)$", re.MULTILINE)
_SETTING = re.compile(r"\w+ = \S.*")
# What goes on until it is ended, and what says by its status how the node is.
LASTS, LASTS_S = ("mgpu top", "mgpu web"), 5
JUDGES = ("mgpu health", "mgpu doctor")
# Of a command alone, as a sentence names it.
NAMED = ("mgpu up", "mgpu describe", "docker unpause", "mgpu up --sim v100-16:1")
JOB, HELD_MIB = "job", 64
RUNS_JOB = (
    f"docker run --detach --name {JOB} --runtime=mgpu -e MGPU_MEMORY_MIB=1000 -e MGPU_QOS=offline "
    "-e MGPU_MEMORY_RECLAIMABLE=true IMAGE COMMAND"
)


def lines(text: str) -> list[str]:
    """Commands and settings in the page's order: of indented blocks, and code in sentences."""
    found = [first or second for first, second in _CODE.findall(text)]
    programs = [one for one in found if one.split()[0] in PROGRAMS or _SETTING.fullmatch(one)]
    return [one for one in programs if " " in one and one not in NAMED]


@dataclass
class Reader:
    """Types what a page says. env: of the machine; built: what runs in the containers."""

    env: dict[str, str]
    built: Programs
    folder: Path

    def types(self, command: str, allowed: Sequence[int] = (0,)) -> str:
        """The output of the command, which has to end so."""
        done = attempt("sh", "-c", command, env=self.env, cwd=self.folder)
        assert done.status in allowed, f"{command}: {done}"
        return done.out + done.err

    def starts(self, command: str) -> None:
        """With a program in place of the page's own, that has some memory of the GPU."""
        command = command.replace("IMAGE COMMAND", f"mgpu-test {inside('hold')} {HELD_MIB} 1")
        folder = f"--network=none --volume {self.built.folder}:{self.built.oci_mount['destination']}"
        name = self.types(command.replace("docker run", f"docker run {folder}")).split()[-1]
        until(lambda: "held 0" in self.types(f"docker logs {name}"), f"{command} holds its memory")

    def ends(self) -> None:
        """All containers."""
        for left in self.types("docker ps --all --quiet").split():
            self.types(f"docker rm --force {left}")

    def job(self) -> dict[str, Any]:
        [found] = [one for one in self.listing("ps") if one.get("name") == JOB]
        return found

    def listing(self, verb: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.types(f"mgpu {verb} --output json"))
        return found

    def filled(self, command: str) -> str:
        """With the names of this machine in place of the page's."""
        if not re.search(r"\b(CONTAINER|NAME|UUID|PID|GPU)\b", command):
            return command
        job = self.job()
        mine = {card["uuid"] for card in job["cards"]}
        other = next(card["uuid"] for card in self.listing("devices") if card["uuid"] not in mine)
        names = {"CONTAINER": JOB, "NAME": JOB, "UUID": other, "PID": str(job["pid"]), "GPU": "1"}
        return re.sub(r"\b(" + "|".join(names) + r")\b", lambda found: names[found[1]], command)

    def does(self, line: str) -> None:
        config = reader.ROOT / "node.toml"
        if _SETTING.fullmatch(line):
            before = config.read_text() if config.exists() else ""
            if line not in before:
                config.write_text(f"{before}{line}\n")
        elif line.startswith("docker run"):
            self.starts(line)
        elif line in LASTS:
            said = self.types(f"timeout --signal=INT {LASTS_S} {line}", (0, 124, 130))
            assert said
        else:
            if line == "mgpu drain --all" or line.startswith("mgpu uninstall"):
                self.ends()
            if "--gpus" in line:
                # The page speaks of a container on the GPU that is drained; this one comes to it.
                self.types("mgpu undrain 1")
            if line.startswith("mgpu resume") and self.job()["reclaim"]["state"] == "running":
                self.types(f"mgpu evict {JOB}")
            self.types(self.filled(line), (0, 1) if line in JUDGES else (0,))


@pytest.fixture(scope="module")
def readers_machine(docker_daemon: Dockerd, ctd: Containerd) -> Iterator[dict[str, str]]:
    with reader.machine(docker_daemon, ctd) as env:
        yield env


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_page_work(
    readers_machine: dict[str, str], built: Programs, page: str, tmp_path: Path
) -> None:
    types = Reader(readers_machine, built, tmp_path)
    said = lines((DOCS / f"{page}.md").read_text())
    assert said
    types.ends()
    types.types("mgpu install docker --restart")
    if not any(line.startswith("docker run") for line in said):
        for line in ("offline_overcommit = true", "mgpu upgrade", RUNS_JOB):
            types.does(line)
    for line in said:
        types.does(line)
    types.ends()
