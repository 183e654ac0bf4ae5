"""Where mgpu's installed parts lie: below the prefix (a venv) of this interpreter."""

import os
import sys

from oci_specs.refusal import Refusal


def libexec(name: str) -> str:
    """Path of an internal program, such as "mgpu-hook"; Refusal if it is not installed."""
    return _find(os.path.join("libexec", "mgpu", name))


def lib(name: str) -> str:
    """Path of a library, such as "libmgpu_engine.so"; Refusal if it is not installed."""
    return _find(os.path.join("lib", "mgpu", name))


def simcard() -> str:
    """Path of the simulated GPUs' program; Refusal where that product is not installed."""
    try:
        return libexec("mgpu-simcard")
    except Refusal as refusal:
        raise Refusal(
            "no-simulator",
            "simulated GPUs are not installed here",
            "install the package mgpu-sim, of this version of mgpu",
        ) from refusal


def _find(relative: str) -> str:
    # sys.prefix first: a venv's interpreter has it right even under -I, where the environment is not read.
    prefixes = [sys.prefix]
    if override := os.environ.get("MGPU_PREFIX"):
        prefixes.append(override)
    for prefix in prefixes:
        path = os.path.join(prefix, relative)
        if os.path.exists(path):
            return path
    raise Refusal(
        "not-installed",
        f"{relative} is not below {' or '.join(prefixes)}",
        "install mgpu again, or set MGPU_PREFIX to where it is installed",
    )
