"""Containers that run while a test looks at them."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STOP_TIMEOUT_S = 60.0


class Foreground:
    """A command with its standard input and output; stderr joins stdout, so that failures show in order."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        """The next line it prints; AssertionError when it ends instead. The test's own time-out is the
        limit."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, f"ended with {self.process.wait()} instead of printing a line"
        return text.rstrip("\n")

    def tell(self, text: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Closes its input and returns its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def foreground(argv: Sequence[str | Path], env: dict[str, str] | None = None) -> Iterator[Foreground]:
    """Starts a command and kills it at the end if it is still there. Removing its container is the
    caller's."""
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    )
    try:
        yield Foreground(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
