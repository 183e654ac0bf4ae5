"""Two containers on two simulated V100-16, as the user, the container and the operator see them.

Nothing of the host's is touched: containerd, mgpu and all their files live in a /run of this process's own,
which is gone when it ends. Exits 1 if anything seen is not as promised.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import NoReturn

from demo import colocation, seen, story
from demo.arbiter import Arbiter
from demo.containerd import Containerd
from demo.failure import DemoFailedError
from demo.report import Report
from mgpu_cli import kernel

LIMIT_S = 120
HOME = Path("/run/mgpu-demo")
PICTURES = Path(__file__).parents[1] / "build" / "demo"
IMAGE_TAR = Path(__file__).parents[1] / "build" / "image" / "mgpu-test.tar"
SUMMARY = """\
Two containers share two simulated V100 GPUs, each within a hard memory cap. Then an online service and an offline
trainer share one GPU's time. What the user, the container and the operator see is shown and checked."""


def main() -> int:
    options = argparse.ArgumentParser(prog="demo", description=__doc__)
    options.add_argument(
        "--image", type=Path, default=IMAGE_TAR, help="OCI or Docker archive of the test image"
    )
    image = options.parse_args().image.resolve()
    report = Report()
    signal.signal(signal.SIGALRM, _too_long)
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGINT, _interrupted)
    signal.alarm(LIMIT_S)
    began = time.monotonic()
    report.say(SUMMARY)
    try:
        _require(image)
        _own_run()
        with ExitStack() as stack:
            report.heading("Setting up: a private containerd, two simulated V100-16, the arbiter")
            # The arbiter first: it outlives the containers, which containerd removes when it stops.
            arbiter = stack.enter_context(Arbiter(HOME / "mgpu", "v100-16:2"))
            containerd = stack.enter_context(Containerd(HOME / "containerd"))
            containerd.import_image(image)
            report.command("mgpu devices", arbiter.mgpu("devices"))
            story.tell(report, containerd, arbiter)
            colocation.tell(report, containerd, arbiter, PICTURES)
            seen.nothing_left(report, arbiter)
    except DemoFailedError as failure:
        report.stopped(str(failure))
    except subprocess.TimeoutExpired as late:
        report.stopped(f"{late.cmd[0]} did not end within {late.timeout:.0f} s")
    except KeyboardInterrupt:
        report.stopped("interrupted")
    return report.conclude(time.monotonic() - began)


def _require(image: Path) -> None:
    if os.geteuid() != 0:
        raise DemoFailedError("the demo starts containers and must run as root")
    for program in ("containerd", "ctr", "runc"):
        if shutil.which(program) is None:
            raise DemoFailedError(f"{program} is not installed: apt-get install containerd runc")
    if not image.is_file():
        raise DemoFailedError(f"there is no image {image}: run it with make demo, which builds one")


def _own_run() -> None:
    # containerd's shims and ctr put sockets and fifos below /run/containerd whatever they are told.
    try:
        kernel.private_mounts()
        kernel.mount("tmpfs", Path("/run"), "tmpfs", flags=kernel.MS_NOSUID, data="mode=0755")
    except OSError as error:
        raise DemoFailedError(f"the demo needs a mount namespace of its own: {error.strerror}") from error
    HOME.mkdir(mode=0o700)


def _too_long(number: int, frame: FrameType | None) -> NoReturn:
    raise DemoFailedError(f"it took more than {LIMIT_S} s")


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    # Once is enough: a second ^C must not stop the removal of what the demo started.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise DemoFailedError("terminated")


if __name__ == "__main__":
    sys.exit(main())
