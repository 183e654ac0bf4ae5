"""How a refusal reaches the user: engines show what is in the runtime's --log file, people see stderr."""

from __future__ import annotations

import os
import time

from runtime_hook import quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oci_specs.refusal import Refusal


def report(refusal: Refusal, log: str) -> None:
    """Writes the refusal's line to stderr and, unless log is "", as a JSON record to the end of the file
    log."""
    line = refusal.line()
    if log:
        record = {
            "level": "error",
            # podman puts the runtime's name before what its log says: "mgpu: mgpu: " would come of it.
            "msg": line.removeprefix("mgpu: ") if log.endswith("/oci-log") else line,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        _append(log, quick_json.dumps(record) + "\n")
    _write(2, line + "\n")


def _append(path: str, text: str) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except (OSError, ValueError):
        return
    try:
        # runc's default log is /dev/stderr, where the line goes anyway.
        if not os.path.samestat(os.fstat(file), os.fstat(2)):
            _write(file, text)
    except OSError:
        pass
    finally:
        os.close(file)


def _write(file: int, text: str) -> None:
    try:
        os.write(file, text.encode("utf-8", "backslashreplace"))
    except OSError:
        # A closed stderr must not hide the refusal behind another error.
        pass
