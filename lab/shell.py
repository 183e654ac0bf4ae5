"""A prompt in the guest, for whoever wants to look at NVIDIA's own driver. ^A x ends it."""

import dataclasses
import subprocess

from lab import machine
from lab.guests import GuestSpec, prepared


def prompt(spec: GuestSpec) -> int:
    asking = dataclasses.replace(spec, append="lab.prompt quiet")
    with prepared(asking) as made, machine.plugged(made.programs, made.folder):
        print("lab: a prompt comes in half a minute; ^A x or poweroff -f ends the guest", flush=True)
        done = subprocess.run([*machine.TIED, *made.programs.qemu, "-serial", "mon:stdio"], check=False)
    return done.returncode
