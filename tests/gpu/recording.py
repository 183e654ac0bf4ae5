"""The recorded start of a libcuda, played on a card: natively and in a container, which have to come to the
same.
"""

import subprocess
from pathlib import Path

from tests.gpu.backend import PROGRAMS
from tests.gpu.product import Product, environment
from tests.gpu.results import Result, Results
from tests.recordings.script import RECORDING, Card, Composer, of_cards, recorded
from tests.recordings.script import differences as refusals

CAP_MIB = 8192
# What an argument of a program may have at most; the script is longer.
PIECE_BYTES = 96 << 10
SHOWN = 40


def played(
    product: Product,
    results: Results,
    out: Result,
    *,
    cap_mib: int = CAP_MIB,
    path: Path = RECORDING,
    patience_s: float = 60,
) -> None:
    """What mgpu refuses on purpose (differs.tsv) may come to that inside alone.

    On a driver of another version or a card of another chip calls fail natively too; what counts is the
    difference.

    A simulated card has no driver below to compare with: there it is played twice.
    """
    uuid, gpu_id = product.first_card()
    rows = of_cards(recorded(path), 1) if path == RECORDING else recorded(path)
    script = "\n".join(Composer(rows, [Card(gpu_id, uuid)]).lines()) + "\n"
    inside = _inside(product, script, cap_mib, patience_s)
    natively = product.driver == "nvidia"
    outside = _natively(script) if natively else _inside(product, script, cap_mib, patience_s)
    calls = {row.row: row.call for row in rows}
    refused = refusals(path.stem.partition("-")[2])
    different = {
        row: came
        for row, came in differences(came_to(inside), came_to(outside)).items()
        if refused.get(calls.get(row, ""), ("",))[0] != came[0]
    }
    for row, (here, there) in different.items():
        results.log(f"row {row}, {calls.get(row)}: {here} inside, {there} natively")
    out.figures = {
        "calls": len(rows),
        "succeed_natively": sum(line == "status 0x0" for line in came_to(outside).values()),
        "fail_inside_alone": [
            f"{row} {calls.get(row)}: {here}"
            for row, (here, there) in different.items()
            if there == "status 0x0"
        ],
        "differ": [f"{row} {calls.get(row)}: {here} / {there}" for row, (here, there) in different.items()][
            :SHOWN
        ],
    }
    if unplayed := [text for text in (inside, outside) if not came_to(text)]:
        results.log(f"the recording said:\n{unplayed[0]}")
        out.verdict = f"does not play: {unplayed[0].strip()[-200:]}"
    else:
        out.verdict = f"{len(different)} calls differ" if different else "the same inside and natively"


def pieces(script: str) -> list[str]:
    return [script[at : at + PIECE_BYTES] for at in range(0, len(script), PIECE_BYTES)]


def _inside(product: Product, script: str, cap_mib: int, patience_s: float) -> str:
    put = 'for piece; do printf "%s" "$piece"; done > /tmp/script'
    command = ["sh", "-c", f"{put}; exec {PROGRAMS / 'replay'} /tmp/script", "sh", *pieces(script)]
    with product.container(command, memory_mib=cap_mib) as box:
        return box.end(patience_s).out


def _natively(script: str) -> str:
    done = subprocess.run(
        [PROGRAMS / "replay", "/dev/stdin"],
        input=script,
        capture_output=True,
        text=True,
        check=False,
        env=environment("nvidia"),
    )
    return done.stdout or done.stderr


def came_to(text: str) -> dict[int, str]:
    """By row: RM's status, or an errno."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 5 and words[0].isdigit():
            row, result, error, status, unmapped = words
            found[int(row)] = f"status {int(status, 16):#x}" if result == "0" else f"errno {error}"
            if unmapped != "0":
                found[int(row)] += f", mmap errno {unmapped}"
    return found


def differences(inside: dict[int, str], natively: dict[int, str]) -> dict[int, tuple[str, str]]:
    return {
        row: (inside.get(row, "nothing"), natively.get(row, "nothing"))
        for row in sorted(inside.keys() | natively.keys())
        if inside.get(row) != natively.get(row)
    }
