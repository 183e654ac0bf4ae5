"""The list of one-line mistakes, each with the test that has to see it."""

import random
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import REPOSITORY
from tests.support.tsv import read

LIST = Path(__file__).with_name("mutants.tsv")
NOBODY = "-"
# What judges from outside: NVIDIA's headers, recordings of NVIDIA's libraries, programs that are not ours,
# and NVIDIA's driver.
LAB = "lab/tests/"
FOREIGN = ("tests/abi", "tests/recordings", "tests/foreign", LAB)


@dataclass(frozen=True)
class Mutant:
    """seen_by: a test that fails with the mistake. reason: why that test is ours; "-": it is foreign."""

    name: str
    path: str
    before: str
    after: str
    seen_by: str
    reason: str

    @property
    def foreign(self) -> bool:
        return self.seen_by.startswith(FOREIGN)

    @property
    def in_a_guest(self) -> bool:
        return self.seen_by.startswith(LAB)

    def text(self) -> str:
        """The source with the mistake in it. ValueError: the line is not there, or several times."""
        source = (REPOSITORY / self.path).read_text()
        if source.count(self.before) != 1:
            raise ValueError(
                f"{self.name}: {self.path} has {self.before!r} {source.count(self.before)} times, not once: "
                f"write the row of tests/mutants/mutants.tsv anew"
            )
        return source.replace(self.before, self.after)


def mutants() -> list[Mutant]:
    return [Mutant(**{name: text.replace("\\n", "\n") for name, text in row.items()}) for row in read(LIST)]


def sample(of: list[Mutant], commit: str, count: int) -> list[Mutant]:
    """The same for the same commit."""
    return random.Random(commit).sample(of, count)
