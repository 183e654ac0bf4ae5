"""A service manager of the tests' own: systemd, as a user's manager, with the units that mgpu installs."""

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import host
from tests.support.commands import run
from tests.support.processes import daemon
from tests.support.waiting import until

SYSTEMD = Path("/lib/systemd/systemd")
# systemd(1): end at once.
EXIT = signal.SIGRTMIN + 24
# It does not start on a machine without it (sd_booted(3)).
BOOTED = Path("/run/systemd/system")
# Of a unit's settings, those by which a service is started, watched and started again. Of the others a user's
# manager knows few, and test_install_hardening.py tests them.
KEPT = re.compile(
    r"Type|NotifyAccess|FileDescriptorStore\w+|Environment|Exec\w+|Restart|RestartSec|Timeout\w+|WatchdogSec"
    r"|StartLimitIntervalSec|Wants|After|Description"
)


@dataclass(frozen=True)
class Manager:
    runtime_dir: Path

    def call(self, *words: str) -> str:
        """Of systemctl; CommandFailedError when it fails."""
        return run("env", f"XDG_RUNTIME_DIR={self.runtime_dir}", "systemctl", "--user", *words)

    def shown(self, unit: str, name: str) -> str:
        return self.call("show", "--value", f"--property={name}", unit).strip()


def reduced(unit: str) -> str:
    """A unit's text, with what a user's manager can give it."""
    lines = [
        line
        for line in unit.splitlines()
        if re.match(r"\[(Unit|Service)\]", line) or KEPT.fullmatch(line.partition("=")[0])
    ]
    return "\n".join(lines).replace("[Unit]", "[Unit]\nDefaultDependencies=no") + "\n"


@contextmanager
def managing(units: Mapping[str, str]) -> Iterator[Manager]:
    """A running systemd that knows these units, by their names. For tests that have a /run of their own."""
    with host.home("sysd") as base, ExitStack() as stack:
        stack.callback(host.remove_cgroups, base.name)
        (base / "units").mkdir()
        for name, text in {**units, "none.target": "[Unit]\n"}.items():
            (base / "units" / name).write_text(text)
        BOOTED.mkdir(parents=True)
        stack.callback(BOOTED.rmdir)
        hierarchy = host.CGROUPS / "systemd"
        cgroup = (hierarchy if hierarchy.is_dir() else host.CGROUPS) / base.name
        cgroup.mkdir()
        log = base / "systemd.log"
        manager = Manager(base)
        within = ["sh", "-c", 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"', "sh", os.fspath(cgroup)]
        process = stack.enter_context(
            daemon(
                [*within, SYSTEMD, "--user", "--unit=none.target"],
                log=log,
                ready=(base / "systemd" / "private").exists,
                env={
                    "XDG_RUNTIME_DIR": os.fspath(base),
                    "SYSTEMD_UNIT_PATH": os.fspath(base / "units"),
                    "SYSTEMD_LOG_TARGET": "console",
                },
            )
        )
        until(lambda: manager.call("is-active", "none.target").strip() == "active", "systemd is up")
        try:
            yield manager
        finally:
            process.send_signal(EXIT)
