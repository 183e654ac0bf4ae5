"""Which versions of NVIDIA's driver mgpu has a table of the interface for: the engine knows."""

import ctypes
from dataclasses import dataclass

from oci_specs import paths


@dataclass(frozen=True)
class Row:
    """version: the driver's version at which the newest of the sizes in use appeared; empty where none is
    known. known: all branches and their first versions, for people to read.
    """

    version: str
    known: str


def row(driver_version: str) -> Row:
    """Refusal or OSError where the engine is not installed."""
    engine = ctypes.CDLL(paths.lib("libmgpu_engine.so"))
    engine.mgpu_rm_known.restype = ctypes.c_char_p
    found = engine.mgpu_rm_row(driver_version.encode())
    major, minor = divmod(found, 1 << 16)
    return Row("" if found < 0 else f"{major}.{minor:02}", engine.mgpu_rm_known().decode())
