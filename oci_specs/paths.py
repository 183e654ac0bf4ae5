"""Where the installed parts of mgpu lie: below the prefix (a venv of its own) that this interpreter belongs to."""

from __future__ import annotations

import os
import sys

from oci_specs.refusal import Refusal


def libexec(name: str) -> str:
    """Path of a program that users do not call themselves, such as "mgpu-hook"; Refusal if it is not installed."""
    return _find(os.path.join("libexec", "mgpu", name))


def lib(name: str) -> str:
    """Path of a library, such as "libmgpu_engine.so" or "sim/libcuda.so.1"; Refusal if it is not installed."""
    return _find(os.path.join("lib", "mgpu", name))


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
