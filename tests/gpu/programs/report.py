"""A program's report: checks by name, the first error, one line of JSON, and an end in time.

Imported by its name alone, by programs beside it: a container's Python has no path to the tests.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

FOLDERS = ("", "/usr/local/nvidia/lib64/", "/usr/local/nvidia/lib/", "/usr/lib/x86_64-linux-gnu/")


class Report:
    """Ends the program after PROGRAM_LIMIT seconds (8): with the line if Python still runs, else without."""

    def __init__(self, name: str) -> None:
        self.name, self.error, self.step = name, "", "start"
        self.facts: dict[str, object] = {}
        self._said = threading.Lock()
        sys.excepthook = self._uncaught
        seconds = float(os.environ.get("PROGRAM_LIMIT", "8"))
        timer = threading.Timer(max(seconds - 1, 1), self._late)
        timer.daemon = True
        timer.start()
        faulthandler.dump_traceback_later(seconds, exit=True)

    def fail(self, text: str) -> None:
        self.error = self.error or text[:400]

    def _uncaught(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Such as a module that does not load."""
        traceback.print_exception(kind, error, trace)
        self.fail(f"{self.step}: {kind.__name__}: {error}")
        self.say()

    def _late(self) -> None:
        self.fail(f"hung in {self.step}")
        faulthandler.dump_traceback()
        self.say()
        os._exit(1)

    def check(self, name: str, call: Callable[[], object], needed: bool = True) -> object:
        """What the call gives is noted; what it raises too, and where it is needed as the error."""
        self.step = name
        try:
            self.facts[name] = value = call()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:400]
            self.facts[name] = {"failed": text}
            if needed:
                self.fail(f"{name}: {text}")
            return None
        return value

    def say(self) -> None:
        if self._said.acquire(blocking=False):
            line = {"program": self.name, "ok": not self.error, "error": self.error, **self.facts}
            sys.stdout.write(json.dumps(line, default=str) + "\n")
            sys.stdout.flush()

    def finish(self) -> NoReturn:
        """The line, and the ordinary end: what the libraries do then is of interest too."""
        self.step = "exit"
        self.say()
        sys.exit(1 if self.error else 0)


def library(name: str) -> ctypes.CDLL:
    first = ""
    for folder in FOLDERS:
        try:
            return ctypes.CDLL(folder + name, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            first = first or str(error)
    raise OSError(first)


class Cuda:
    """libcuda by name; a code other than 0 is raised."""

    def __init__(self) -> None:
        self._lib = library("libcuda.so.1")

    def code(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._lib, name)(*arguments))

    def __call__(self, name: str, *arguments: Any) -> int:
        code = self.code(name, *arguments)
        if code:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {code} {(text.value or b'?').decode()}")
        return code
