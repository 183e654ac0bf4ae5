"""What the recorded driver answered, compared with what a container's program is answered."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.recordings.script import FIRST_HANDLE, HERE, Card, Row, Words
from tests.support.tsv import read

# Of each answer the recording has no more.
KEPT_BYTES = 96
WHOLE = "*"
Differing = dict[str, dict[str, str]]


def other_answers(version: str, path: Path = HERE / "answers.tsv") -> Differing:
    """By call and offset, or WHOLE: why a word is another one than it was on the recorded machine."""
    found: Differing = {}
    for row in read(path):
        for at in row["at"].split() if row["recording"] == version else ():
            found.setdefault(row["call"], {})[at] = row["reason"]
    return found


def answered(text: str) -> dict[int, bytes]:
    """By row, of what replay prints."""
    return {
        int(row): b"" if answer == "-" else bytes.fromhex(answer)
        for row, *_, answer in (line.split() for line in text.splitlines())
    }


def compared(
    rows: Sequence[Row], found: Mapping[int, bytes], card: Card, differing: Differing
) -> tuple[list[str], int]:
    """The words that are others, and how many are the same. A reason for a word that is the same is wrong
    too.
    """
    wrong, same, unused = [], 0, {(call, at) for call, offsets in differing.items() for at in offsets}
    for row in rows:
        reasons = differing.get(row.call, {})
        for at, got, wanted in _words(row, found.get(row.row, b""), card):
            if got == wanted:
                same += 1
                continue
            key = next((key for key in (f"{at:x}", WHOLE) if key in reasons), None)
            unused.discard((row.call, key or ""))
            if key is None:
                wrong.append(f"{row.row}: {row.call}: {got:#x} at {at:#x}, recorded {wanted:#x}")
    return [*wrong, *(f"{call}: {at} is as it was recorded" for call, at in sorted(unused))], same


def _words(row: Row, answer: bytes, card: Card) -> Iterator[tuple[int, int, int]]:
    """Offset, what a container's program got, what was recorded."""
    if row.answer is None:
        return
    known = dict(_known(row.answer, card))
    kept = min(KEPT_BYTES, row.params_bytes or row.bytes)
    answer = answer[:kept].ljust(kept + 4, b"\0")
    for at in range(0, kept, 4):
        wanted = known.get(at, 0)
        if wanted is not None:
            yield at, struct.unpack_from("<I", answer, at)[0], wanted


def _known(words: Words, card: Card) -> Iterator[tuple[int, int | None]]:
    """None: a number of the run's own, a client, a file or an address."""
    for at, value in words:
        if value.startswith("u"):
            yield from ((at + i, struct.unpack_from("<I", card.uuid, i)[0]) for i in range(0, 16, 4))
        elif value.startswith("g"):
            yield at, card.gpu_id
        elif value.startswith("h"):
            yield at, FIRST_HANDLE + int(value[1:])
        elif value[0] in "cf":
            yield at, None
        elif value == "Z":
            yield from ((at, None), (at + 4, None))
        else:
            yield at, int(value, 16)
