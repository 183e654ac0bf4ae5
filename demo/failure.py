"""Why the demo cannot go on."""

from __future__ import annotations


class DemoFailedError(Exception):
    """The demo cannot go on; the text says why."""
