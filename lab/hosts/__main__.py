"""`make hosts`: mgpu on Debian's kernels, on a node that its package set up, and as power is cut."""

import os
import sys
import time

import click

from lab.error import LabError
from lab.guests import SYSTEMD
from lab.hosts import kernels, node, power

DEBIAN_12 = "6.1"
# The steps on a kernel alone, and on a node with systemd and engines, with their limits in the guest's
# time: those before power is cut, and those after it.
QUICK = (
    (("kernel:host", 60), ("kernel:up", 200), ("kernel:caps_and_kills", 400), ("kernel:is_left", 120)),
    (("kernel:up", 200), ("kernel:comes_back", 200)),
)
PACKAGE = (
    (
        ("acceptance:host", 60),
        ("setup:package", 900),
        ("setup:image", 120),
        ("acceptance:containers", 900),
        ("acceptance:is_left", 300),
    ),
    (("acceptance:comes_back", 600),),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("releases", nargs=-1, metavar="[RELEASE]...")
@click.option("--package", is_flag=True, help="By apt and systemd, with Docker and containerd.")
@click.option("--cuts", default=0, help="Cut power so often while engines' settings are written.")
@click.option("--seed", default=1, help="Of the cuts.")
def main(releases: tuple[str, ...], package: bool, cuts: int, seed: int) -> None:
    """Boot a guest with each of the kernels, such as 5.10 or 6.12; all of them unless named."""
    try:
        if cuts:
            kernel = kernels.named(releases[0] if releases else DEBIAN_12)
            wrong = power.tried(kernel, cuts, seed, lambda line: print(f"hosts: {line}", flush=True))
            print("\n".join(wrong), flush=True)
            sys.exit(1 if wrong else 0)
        chosen = [kernels.named(name) for name in releases] or list(kernels.KERNELS)
        failed = [kernel for kernel in chosen if not _well(kernel, package)]
    except LabError as error:
        print(f"hosts: {error}", flush=True)
        sys.exit(1)
    print(f"hosts: {len(chosen) - len(failed)} of {len(chosen)} kernels", flush=True)
    sys.exit(1 if failed else 0)


def _well(kernel: kernels.Kernel, package: bool) -> bool:
    boots, start = (PACKAGE, SYSTEMD) if package else (QUICK, node.QUICK)
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{kernel.release}  {time.monotonic() - began:4.0f} s  {what}", flush=True)

    try:
        made = node.fresh(kernel, "package" if package else "kernel")
        for number, steps in enumerate(boots, start=1):
            with made.booted(f"boot-{number}", start) as guest:
                say("is up")
                for step, limit_s in steps:
                    guest.does(step, limit_s)
                    say(step)
            say("power is cut")
    except (LabError, node.Failed) as error:
        say(f"failed: {error}")
        return False
    return True


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("hosts: root is needed, to make the guest's disks")
    main(prog_name="python -m lab.hosts")
