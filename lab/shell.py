"""A prompt in the guest, for whoever wants to look at NVIDIA's own driver."""

from __future__ import annotations

from lab.error import LabError
from lab.guests import Wish


def prompt(wish: Wish) -> int:
    raise LabError(f"no prompt on {wish.pair.name} yet")
