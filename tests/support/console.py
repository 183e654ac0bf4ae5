"""Examples in Markdown: blocks marked `console`, in which a line "$ COMMAND" is followed by what it
prints."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROMPT = "$ "
ANYTHING = "..."


class Step(NamedTuple):
    """A command and the lines shown below it, in which "..." stands for anything."""

    command: str
    output: str


def steps(markdown: str) -> list[Step]:
    """All commands of all console blocks, in order."""
    return [step for block in _BLOCK.findall(markdown) for step in _steps_of(block)]


def _steps_of(block: str) -> Iterator[Step]:
    for part in re.split(rf"^{re.escape(PROMPT)}", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Step(command, output)


def matches(shown: str, printed: str) -> bool:
    """Whether printed is what is shown. Spaces at the ends of lines and text are not compared."""
    pattern = ".*?".join(re.escape(piece) for piece in _tidy(shown).split(ANYTHING))
    return re.fullmatch(pattern, _tidy(printed), re.DOTALL) is not None


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
