"""What goes on in a thread of its own, beside a test."""

import threading
from typing import Self


class Beside:
    """Context manager; what ends go_on() is raised at the end of it, or by check()."""

    def __init__(self) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._broken: list[BaseException] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end.set()
        self._thread.join()
        if kind is None:
            self.check()

    def check(self) -> None:
        if self._broken:
            raise self._broken[0]

    def go_on(self) -> None:
        """Until _end is set."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self.go_on()
        except BaseException as error:
            self._broken.append(error)
