"""A derived recording played in a container, and what its calls came to."""

from collections.abc import Sequence

from sim import cards
from tests.recordings.script import Card, Composer, Row
from tests.support import host
from tests.support.arbiter import Arbiter
from tests.support.bundle import bundle
from tests.support.programs import Programs, inside

ENV = {"MGPU_MEMORY_MIB": "6144"}


def played(
    mgpu: Arbiter, built: Programs, rows: Sequence[Row], *how: str, env: dict[str, str] | None = None
) -> tuple[str, Composer]:
    """What the program printed."""
    there = [
        Card(card.gpu_id, bytes.fromhex(card.uuid.removeprefix("GPU-").replace("-", "")))
        for card in cards.cards(mgpu.root / "sim" / "admin.sock")
    ]
    composer = Composer(rows, there)
    with host.home("rec") as folder:
        (folder / "script").write_text("\n".join(composer.lines()) + "\n")
        mount = {"destination": "/script", "type": "bind", "source": str(folder), "options": ["rbind", "ro"]}
        command = (inside("replay"), "/script/script", *how)
        said = ENV | {"MGPU_GPUS": str(len(there))} | (env or {})
        with bundle(*command, env=said, mounts=[built.oci_mount, mount]) as made:
            return made.output(mgpu.runtime), composer


def came_to(out: str) -> dict[int, str]:
    found = {}
    for line in out.splitlines():
        row, result, error, status, unmapped, *_ = line.split()
        found[int(row)] = f"status {int(status, 16):#x}" if result == "0" else f"errno {error}"
        if unmapped != "0":
            found[int(row)] += f", mmap errno {unmapped}"
    return found
