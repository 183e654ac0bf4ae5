"""What the engine counts as refused, as Python sees it."""

from enum import IntEnum


class Refused(IntEnum):
    """enum mgpu_refused: what mgpu itself refuses a tenant's calls for."""

    MEMORY = 0
    CARD = 1
    CLASS = 2
    HANDLE = 3
    SCHEDULING = 4
    UNSUPPORTED = 5
    FORM = 6
    PERMISSION = 7
    SHARE = 8
