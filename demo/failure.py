"""Why the demo cannot go on."""


class DemoFailedError(Exception):
    """The demo cannot go on; the text says why."""
