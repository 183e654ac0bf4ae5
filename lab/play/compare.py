"""Compares what two drivers answered to the same calls, and writes docs/driver-differences.md.

answers/550.163.01.tsv are NVIDIA's answers: case, call, result, with driver, kernel and date at the top.
others.tsv has what another driver or card of NVIDIA's answers otherwise; lab/tests/play.py plays all in a
guest. differences.tsv has each known difference of the simulated GPU, with its owner and who is wrong. A
difference without a row, and a row without its difference, fail tests/sim/test_driver_answers.py.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.play.player import DONE
from lab.play.script import QUIET

HERE = Path(__file__).parent
# What the recorded answers are of; others.tsv has the rest.
DRIVER, CHIP = "550.163.01", "ga102"
ANSWERS = HERE / "answers" / f"{DRIVER}.tsv"
OTHERS = HERE / "others.tsv"
DIFFERENCES = HERE / "differences.tsv"
STATUSES = HERE.parents[1] / "native_sched/nvidia/rm/facts/status.tsv"
PAGE = HERE.parents[1] / "docs/driver-differences.md"
FIRST_MADE = "Recorded: "

OWNERS = {
    "open": "The simulated GPU is wrong, and not mended yet",
    "cannot": "What a simulated GPU cannot be",
    "gsp": "Rests on an answer of the emulated firmware: not counted",
}

WRONG = {
    "simulated": "the simulated GPU",
    "neither": "neither",
    "unknown": "nobody knows",
}

Key = tuple[str, str, int]  # case, call, which one of this call in the case
Answers = dict[Key, str]
Differences = dict[Key, tuple[str, str]]  # simulated, NVIDIA's


@dataclass(frozen=True)
class Difference:
    case: str
    call: str
    which: int
    simulated: str
    nvidia: str
    owner: str
    wrong: str
    reason: str

    @property
    def key(self) -> Key:
        return self.case, self.call, self.which


def answers(lines: Iterable[str]) -> Answers:
    seen: Counter[tuple[str, str]] = Counter()
    found = {}
    for line in lines:
        fields = line.rstrip("\n").split("\t")
        if len(fields) == 3 and not line.startswith("#"):
            seen[fields[0], fields[1]] += 1
            found[fields[0], fields[1], seen[fields[0], fields[1]]] = fields[2]
    return found


def differ(simulated: Answers, nvidia: Answers) -> Differences:
    """A line of a macro that was done is in neither list."""
    found = {}
    for key in {**simulated, **nvidia}:
        done = "0x0" if key[1].startswith(QUIET) else "not played"
        pair = simulated.get(key, done), nvidia.get(key, done)
        if pair[0] != pair[1] and not set(pair) <= set(DONE):
            found[key] = pair
    return found


def known(path: Path = DIFFERENCES) -> list[Difference]:
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    return [Difference(row[0], row[1], int(row[2]), *row[3:]) for row in rows]


def others(path: Path = OTHERS) -> list[Difference]:
    """nvidia: what it answers there; owner: where, a driver's version or a chip. simulated: what it
    answers on the first driver and card.
    """
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    return [Difference(row[0], row[1], int(row[2]), row[3], row[4], row[5], "", row[6]) for row in rows]


def recorded(*on: str) -> Answers:
    """NVIDIA's answers on the first driver and card, or with what is said of others."""
    first = answers(ANSWERS.read_text().splitlines())
    return first | {row.key: row.nvidia for row in others() if row.owner in on}


def unlisted(found: Differences) -> list[Key]:
    """What differs and is not in the table so, and what is there and does not."""
    listed = {row.key: (row.simulated, row.nvidia) for row in known()}
    return [key for key in {**listed, **found} if listed.get(key) != found.get(key)]


def still_open(found: Differences) -> int:
    """Of differences those whose owner is nobody else."""
    owned = {row.key for row in known() if row.owner != "open"}
    return len(found.keys() - owned)


def named(result: str, names: dict[int, str]) -> str:
    """With NVIDIA's name of the status in front."""
    first, _, rest = result.partition(" ")
    if not first.startswith("0x"):
        return result
    name = names.get(int(first, 16), first).removeprefix("NV_ERR_")
    return f"{name} {rest}".strip()


def status_names() -> dict[int, str]:
    rows = [line.split("\t") for line in STATUSES.read_text().splitlines()[1:]]
    return {int(row[1], 16): row[0] for row in rows}


def _table(answered: str, told: str, rows: Iterable[tuple[str, Difference]]) -> list[str]:
    """Those of a case that have one reason are together. With each: what is told of it besides."""
    names = status_names()
    out = ["", f"| case | calls | the first: {answered} | {told} | why |", "|---|---|---|---|---|"]
    cases: dict[tuple[str, str, str], list[Difference]] = {}
    for besides, row in rows:
        cases.setdefault((besides, row.case, row.reason), []).append(row)
    for (besides, case, reason), of in cases.items():
        pair = f"`{of[0].call}`: {named(of[0].simulated, names)}, {named(of[0].nvidia, names)}"
        out.append(f"| {case.replace('.', ': ', 1)} | {len(of)} | {pair} | {besides} | {reason} |")
    return out


def page() -> str:
    """What people write stays: all above what was recorded."""
    rows = known()
    counts = Counter(row.owner for row in rows)
    made = ANSWERS.read_text().splitlines()
    out = [
        PAGE.read_text().partition(f"\n{FIRST_MADE}")[0],
        f"{FIRST_MADE}{made[0].lstrip('# ')}. {len(answers(made))} calls were played. "
        f"{len(rows)} of them differed: {counts['open']} are open, "
        f"{counts['cannot']} are what a simulated GPU cannot be, {counts['gsp']} rest on the emulated firmware.",
    ]
    for owner, title in OWNERS.items():
        some = [(WRONG[row.wrong], row) for row in rows if row.owner == owner]
        out += ["", f"## {title}", *_table("simulated, NVIDIA's", "who was wrong", some)]
    elsewhere = _table(f"{DRIVER} on {CHIP.upper()}, there", "where", ((row.owner, row) for row in others()))
    out += ["", "## What another driver or card of NVIDIA's answers otherwise", *elsewhere]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
