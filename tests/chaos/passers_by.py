"""Containers that come and go, one after the other, whatever happens to mgpud meanwhile."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.field import Field
from tests.support import load
from tests.support.bundle import bundle

MEMORY_MIB = 512


class PassersBy:
    """Context manager; what goes wrong with one of them is raised at its end."""

    def __init__(self, field: Field, at_once: int) -> None:
        self._field = field
        self._changed = threading.Condition()
        self._under_way = 0
        self._closed = False
        self._ending = False
        self._failed: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(at_once)]
        self.count = 0

    def __enter__(self) -> "PassersBy":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        if self._failed and kind is None:
            raise self._failed[0]

    @contextmanager
    def none_of_them(self) -> Iterator[None]:
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._under_way == 0)
        if self._failed:
            raise self._failed[0]
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ending or not self._closed)
                if self._ending or self._failed:
                    return
                self._under_way += 1
            try:
                self._one()
                self.count += 1
            except BaseException as error:
                self._failed.append(error)
            finally:
                with self._changed:
                    self._under_way -= 1
                    self._changed.notify_all()

    def _one(self) -> None:
        """Has the card execute some kernels, and ends."""
        env = {"MGPU_MEMORY_MIB": str(MEMORY_MIB), "MGPU_POLICY": "native-burst-share"}
        command = [load.INSIDE, "saturate", "--kernel-us", "500", "--kernels", "20", "-o", "json"]
        with bundle(*command, env=env, mounts=load.mounts()) as made:
            out = made.output(self._field.mgpu.runtime, timeout_s=60.0)
            assert json.loads(out.strip().splitlines()[-1])["devices"][0]["kernels"] == 20, out
