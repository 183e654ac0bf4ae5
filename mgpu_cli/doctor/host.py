"""The node as the checks see it; tests replace it by a folder for / and prepared answers."""

import functools
import http.client
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgpu_cli.doctor import rm_table, syscalls
from mgpu_cli.doctor.containerd_facts import Facts
from mgpu_cli.doctor.containerd_facts import ask as ask_containerd
from mgpu_cli.doctor.rm_table import Row
from mgpu_cli.state import StateDir
from oci_specs import unix_http
from oci_specs.refusal import Refusal
from oci_specs.unix_http import TIMEOUT_S
from runtime_hook import control, needs
from runtime_hook.holder import HolderStatus
from runtime_hook.needs import Place


class NoAnswerError(Exception):
    """A program or an engine that could not be asked; its words are one line."""


def _run(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"{argv[0]} does not answer within {TIMEOUT_S} s") from None
    except OSError as error:
        raise NoAnswerError(f"{argv[0]}: {error.strerror}") from error
    if done.returncode != 0:
        printed = (done.stderr or done.stdout).strip().splitlines()
        raise NoAnswerError(printed[-1] if printed else f"{argv[0]} ended with status {done.returncode}")
    return done.stdout


def _get(path: str, url: str) -> Any:
    try:
        return unix_http.get(path, url)
    except TimeoutError:
        raise NoAnswerError(f"{path} does not answer within {TIMEOUT_S} s") from None
    # RemoteDisconnected is of both kinds.
    except (http.client.HTTPException, ValueError) as error:
        raise NoAnswerError(f"{path} does not speak HTTP and JSON: {error}") from error
    except OSError as error:
        raise NoAnswerError(f"{path}: {error.strerror or error}") from error


def _ask(path: str, verb: str) -> dict[str, Any]:
    try:
        return control.call(path, verb, timeout_seconds=1)
    except Refusal as refusal:
        raise NoAnswerError(refusal.message) from refusal


@dataclass(frozen=True, kw_only=True)
class Host:
    """root stands for /. The functions are what reaches out of it; each raises NoAnswerError."""

    state: StateDir
    node_config: Path | None = None
    root: Path = Path("/")
    search_path: str = os.environ.get("PATH", os.defpath)
    uid: int = -1
    run: Callable[[Sequence[str]], str] = _run
    get: Callable[[str, str], Any] = _get
    ask: Callable[[str, str], dict[str, Any]] = _ask
    containerd: Callable[[str], Facts] = ask_containerd
    syscall: Callable[[str], int] = syscalls.probe
    rm_row: Callable[[str], Row] = rm_table.row
    listens: Callable[[Path], bool] = needs.listens
    holder: Callable[[Path], HolderStatus] = needs.ask_holder

    def path(self, name: str | os.PathLike[str]) -> Path:
        """Where `name`, which is absolute, lies."""
        return self.root / os.fspath(name).lstrip("/")

    def text(self, name: str | os.PathLike[str]) -> str | None:
        """What a file says; None where it is not there or cannot be read."""
        try:
            return self.path(name).read_text(errors="replace")
        except OSError:
            return None

    def is_there(self, name: str | os.PathLike[str]) -> bool | None:
        """None where only root may look."""
        try:
            return self.path(name).exists()
        except PermissionError:
            return None

    def number(self, name: str) -> int | None:
        """The whole number that a file of /proc/sys says."""
        text = (self.text(name) or "").strip()
        return int(text) if text.lstrip("-").isdecimal() else None

    def is_socket(self, name: str | os.PathLike[str]) -> bool:
        return self.path(name).is_socket()

    def is_program(self, name: str | os.PathLike[str]) -> bool:
        path = self.path(name)
        return path.is_file() and os.access(path, os.X_OK)

    def commands(self) -> Iterator[list[str]]:
        """The command lines of all processes."""
        for path in self.path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                yield path.read_text(errors="replace").split("\0")

    def which(self, program: str) -> str | None:
        """Path of a program on PATH, below root."""
        folders = os.pathsep.join(os.fspath(self.path(each)) for each in self.search_path.split(os.pathsep))
        found = shutil.which(program, path=folders)
        return None if found is None else "/" + os.path.relpath(found, self.root)

    @functools.cached_property
    def health(self) -> dict[str, Any] | str:
        """mgpud's reply to `health`, or why there is none."""
        try:
            return self.ask(os.fspath(self.state.control), "health")
        except NoAnswerError as error:
            return str(error)

    @functools.cached_property
    def driver(self) -> str:
        """The driver whose cards are shared, by mgpud or else by what is loaded: "sim", "nvidia" or ""."""
        if isinstance(self.health, dict):
            return str(self.health["driver"])
        return "nvidia" if self.text("/proc/driver/nvidia/version") else ""

    @functools.cached_property
    def place(self) -> Place:
        """The node for the table of what a container's start needs."""
        folders = needs.cdi_folders(
            self.state.path,
            self.text(self.node_config or self.state.path / "node.toml") or "",
            "" if self.node_config else self.health,
        )
        return Place(
            state=self.state.path,
            health=self.health,
            cdi_folders=folders,
            top=self.root,
            listens=self.listens,
            holder=self.holder,
        )
