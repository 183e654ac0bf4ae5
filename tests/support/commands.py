"""Commands run to their end, with all they printed in the failure when they do not end as they should."""

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 100.0


@dataclass(frozen=True)
class Done:
    """A command that has ended. status is negative for a signal, as subprocess has it."""

    argv: tuple[str, ...]
    status: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{shlex.join(self.argv)}\nstatus {self.status}\nstdout: {self.out}\nstderr: {self.err}"


class CommandFailedError(AssertionError):
    """A command that ended in another way than the test had to rely on."""


def attempt(
    *argv: str | Path,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    cwd: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Done:
    """Run a command; env is added to the tests' own environment. CommandFailedError when it takes too
    long."""
    words = tuple(os.fspath(word) for word in argv)
    try:
        ended = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as expired:
        raise CommandFailedError(
            f"{shlex.join(words)}\ntook more than {timeout_s} s\n{_text(expired.stdout)}\n{_text(expired.stderr)}"
        ) from None
    return Done(words, ended.returncode, ended.stdout, ended.stderr)


def run(
    *argv: str | Path,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    cwd: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> str:
    """What a command printed on stdout; CommandFailedError with everything it printed if its status is not
    0."""
    done = attempt(*argv, env=env, stdin=stdin, cwd=cwd, timeout_s=timeout_s)
    if done.status != 0:
        raise CommandFailedError(str(done))
    return done.out


def _text(printed: bytes | str | None) -> str:
    return printed.decode(errors="replace") if isinstance(printed, bytes) else printed or ""
