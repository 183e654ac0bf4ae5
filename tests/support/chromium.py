"""A Chromium without a screen, by DevTools' protocol: JSON objects on two pipes, each with a NUL after it."""

import base64
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mgpu_cli.kernel import die_with_parent
from tests.support.waiting import readable, until

ANSWER_MS = 60_000
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}


class Chromium:
    """One tab. said: what the page wrote on its console, and errors of its scripts."""

    def __init__(self, to: int, of: int) -> None:
        self._to, self._of = to, of
        self._number = 0
        self._had = b""
        self.said: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.tell(f"{domain}.enable")

    def _call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params}
        if session:
            asked["sessionId"] = session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while (found := self._next()).get("id") != self._number:
            self._hear(found)
        assert "error" not in found, f"{method}: {found['error']}"
        result: dict[str, Any] = found["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._had:
            assert readable(self._of, ANSWER_MS), "chromium does not answer"
            part = os.read(self._of, 1 << 20)
            assert part, "chromium has ended"
            self._had += part
        message, _, self._had = self._had.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _hear(self, found: dict[str, Any]) -> None:
        if found.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.said.append(json.dumps(found["params"]))

    def tell(self, method: str, **params: Any) -> dict[str, Any]:
        return self._call(method, self._session, **params)

    def open(self, url: str) -> None:
        found = self.tell("Page.navigate", url=url)
        assert "errorText" not in found, f"{url}: {found['errorText']}"

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.tell("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, f"{expression}: {found['exceptionDetails']}"
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Waits until it is true in the page."""
        until(lambda: bool(self.ask(expression)), f"in the page: {expression}")

    def press(self, key: str, *, shift: bool = False) -> None:
        text = {"Enter": "\r", " ": " "}.get(key, "")
        named = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 * shift}
        self.tell("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        self.tell("Input.dispatchKeyEvent", type="keyUp", **named)

    def look(self, width: int, height: int, scheme: str = "light", *, telephone: bool = False) -> None:
        """How large its window is, and what the reader's system prefers."""
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=telephone,
        )
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self.tell("Emulation.setEmulatedMedia", features=preferred)

    def picture(self) -> bytes:
        """A PNG of what the window shows."""
        return base64.b64decode(self.tell("Page.captureScreenshot", format="png")["data"])


@contextmanager
def chromium() -> Iterator[Chromium]:
    parent = os.getpid()
    its_read, to = os.pipe()
    of, its_write = os.pipe()

    def with_pipes() -> None:
        # 3 and 4 are where it looks for them; the pipes' own numbers may be these.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 5) for end in (its_read, its_write)]
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)
        die_with_parent(signal.SIGKILL, parent)

    home = Path(tempfile.mkdtemp(prefix="mgpu-chromium-"))
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-breakpad",
    ]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            ["chromium", *options, "--remote-debugging-pipe", f"--user-data-dir={home}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            close_fds=False,
            process_group=0,
            preexec_fn=with_pipes,
            env={**os.environ, "HOME": str(home)},
        )
    os.close(its_read)
    os.close(its_write)
    try:
        yield Chromium(to, of)
    finally:
        os.close(to)
        os.close(of)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # Its children are not ours to wait for, and may write a moment longer.
        until(lambda: _is_removed(home), f"{home} is removed")


def _is_removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
