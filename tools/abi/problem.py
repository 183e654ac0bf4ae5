"""What a person who calls the tool has to be told, in one line."""

from __future__ import annotations


class Problem(Exception):
    """What, why, what to do."""
