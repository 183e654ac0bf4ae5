"""A container's mount sources as the launcher resolves them. mgpud does not do it itself: it is often in a
mount namespace of its own, and must not wait for a file system that another program serves.
"""

import re

from oci_specs.reach import Host

# A container with more has the launcher do without mgpud: what mgpud does for one request is bounded.
PATHS_MAX = 64
_PID_NAMESPACE = re.compile(r"/proc/[0-9]{1,10}/ns/pid", re.ASCII)
_NO_MAJOR = -1
_MAJOR_MAX = (1 << 32) - 1


class NotHereError(Exception):
    """mgpud is not the one to do it: the launcher has its own Python do it."""


class ResolvedPaths(Host):
    """Asks nothing of the container's mount namespace itself: `missing` are the paths that the launcher is to
    look up.

    Until learn() has been told of them, what is said of them counts for nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._real: dict[str, str] = {}
        self._majors_of: dict[str, int] = {}
        self.missing: list[str] = []

    def resolve(self, path: str) -> str:
        found = self._real.get(path)
        if found is not None:
            return found
        # The launcher reads and writes no escapes but those of JSON's two own characters.
        if not path.isascii() or not path.isprintable():
            raise NotHereError
        if path not in self.missing:
            if len(self.missing) == PATHS_MAX:
                raise NotHereError
            self.missing.append(path)
        return path

    def character_major(self, path: str) -> int | None:
        major = self._majors_of.get(path, _NO_MAJOR)
        return None if major == _NO_MAJOR else major

    def is_rootless(self) -> bool:
        # Others cannot ask.
        return False

    def any_type_keeps_numbers(self) -> bool:
        # The launcher knows which runtime it is to become.
        raise NotHereError

    def is_own_pid_namespace(self, path: str) -> bool:
        # procfs is the same for both, who share the pid namespace.
        if path and not _PID_NAMESPACE.fullmatch(path):
            raise NotHereError
        return super().is_own_pid_namespace(path)

    def learn(self, found: object) -> None:
        """found: for each of the missing paths, in order, the path without links and the major of the
        character device that it is, -1 for anything else.
        """
        if not isinstance(found, list) or len(found) != len(self.missing):
            raise NotHereError
        for path, pair in zip(self.missing, found, strict=True):
            match pair:
                case [str(real), int(major)] if real.startswith("/") and _NO_MAJOR <= major <= _MAJOR_MAX:
                    self._real[path] = real
                    self._majors_of[real] = major
                case _:
                    raise NotHereError
        self.missing = []
