"""A container with numba, or several processes, that engines checkpoint and restore."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.arbiter import Arbiter
from tests.support.bundle import Bundle
from tests.support.commands import TIMEOUT_S, Done, attempt
from tests.support.foreign import foreign_bundle
from tests.support.waiting import readable, until

CAP_MIB = 1024


@dataclass
class Carried:
    """A detached container with pipes as its input and output, and where its checkpoint goes."""

    made: Bundle
    images: Path
    to: int
    inside: int
    out: int
    said: int

    def call(self, mgpu: Arbiter, verb: str, *args: str) -> Done:
        argv = [str(word) for word in self.made.argv(mgpu.runtime, verb, *args, self.made.container)]
        with tempfile.TemporaryFile("w+") as err:
            done = subprocess.run(
                argv,
                stdin=self.inside,
                stdout=self.out,
                stderr=self.out if verb == "run" else err,
                check=False,
            )
            err.seek(0)
            return Done(tuple(argv), done.returncode, "", err.read())

    def start(self, mgpu: Arbiter) -> str:
        assert not self.call(mgpu, "run", "--detach", "--bundle", str(self.made.path)).status
        return self.line()

    def line(self) -> str:
        assert readable(self.said, int(TIMEOUT_S * 1000)), "it says nothing"
        return str(json.loads(os.read(self.said, 1 << 16)))

    def look(self) -> str:
        os.write(self.to, b"\n")
        return self.line()

    def reclaim(self, mgpu: Arbiter) -> str:
        """Where its memory is, by mgpud."""
        [row] = [row for row in mgpu.containers() if row["container_id"] == self.made.container]
        return str(row["reclaim"]["state"])

    def leave(self, mgpu: Arbiter) -> None:
        """Moved off its GPUs, saved and gone."""
        mgpu.mgpu("evict", self.made.container)
        done = self.save(mgpu)
        assert not done.status, done
        until(lambda: mgpu.containers() == [], "it is gone there")

    def save(self, mgpu: Arbiter) -> Done:
        return self.call(mgpu, "checkpoint", "--image-path", str(self.images))

    def restore(self, mgpu: Arbiter, *args: str) -> Done:
        return self.call(
            mgpu, "restore", *args, "--bundle", str(self.made.path), "--image-path", str(self.images)
        )


@contextmanager
def numba(
    images: Path, *, new_privileges: bool = False, annotations: dict[str, str] | None = None
) -> Iterator[Carried]:
    """images: where its checkpoint goes."""
    inside, to = os.pipe()
    said, out = os.pipe()
    with foreign_bundle("evicted_numba.py", memory_mib=CAP_MIB, annotations=annotations) as made:
        made.edit(lambda config: config["process"].update(noNewPrivileges=not new_privileges))
        try:
            yield Carried(made, images, to, inside, out, said)
        finally:
            attempt(*made.argv("runc", "delete", "--force", made.container))
    for fd in (inside, to, said, out):
        os.close(fd)
