"""A derived recording as tests/programs/replay.c takes it: for so many cards, with what was not recorded
filled in.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from oci_specs.seccomp.notified import NOTIFY_CUBES
from tests.support.rm_numbers import NV2080_ENGINE_TYPE_COPY0
from tests.support.tsv import read

HERE = Path(__file__).parent
VERSION = "555.42.02"
RECORDING = HERE / f"libcuda-{VERSION}.tsv"
WITH_PARAMS_VERSION = "580.159.04"
WITH_PARAMS = HERE / f"libcuda-{WITH_PARAMS_VERSION}.tsv"
H200_VERSION = f"{WITH_PARAMS_VERSION}-h200"
H200 = HERE / f"libcuda-{H200_VERSION}.tsv"
FIRST_HANDLE = 0x5C000000
NO_STATUS = "ffff"
CONTROL, ALLOC = "NV_ESC_RM_CONTROL ", "NV_ESC_RM_ALLOC "
GRAPHICS, COPY0 = 0x1, NV2080_ENGINE_TYPE_COPY0
# RM classes of all architectures end alike.
CHANNEL, COMPUTE, COPY = "6f", "c0", "b5"
NO_ID = 0xFFFFFFFF
# Memory that is not mapped, and of which the recording says nothing else.
UNMAPPED_BYTES = 2 << 20
ALL_CARDS = 3
ATTACHES = "NV_ESC_RM_CONTROL 0x215"
# The first and the last call that cuInit makes of a card, one card after the other.
BEGINS_A_CARD, ENDS_A_CARD = "NV_ESC_RM_CONTROL 0x205", "NV_ESC_RM_CONTROL 0x20808159"
# The last rows of cuInit and of cuCtxCreate: with them the recordings of programs end that go no further.
INIT_ENDS, CONTEXT_ENDS = 247, 627


Words = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Row:
    """A call as it was recorded. words: by offset; status: where it is in the struct and what it was, if it
    has any; params and answer: words of its parameters before and after, if they were recorded.
    """

    row: int
    request: str
    file: int | None
    call: str
    words: Words
    bytes: int
    params_bytes: int
    status: tuple[int, int] | None
    errno: int
    closes: int | None
    params: Words | None
    answer: Words | None

    @property
    def opens(self) -> bool:
        return self.request == "open"

    def word(self, at: int) -> str:
        return dict(self.words).get(at, "0x0")

    def handle(self, at: int) -> int | None:
        word = self.word(at)
        return int(word[1:]) if word.startswith("h") else None

    def makes(self, kind: str) -> bool:
        return self.call.startswith("NV_ESC_RM_ALLOC 0xc") and self.call.endswith(kind)


@dataclass(frozen=True)
class Card:
    """As the container is told of it."""

    gpu_id: int
    uuid: bytes


def recorded(path: Path) -> list[Row]:
    rows = read(path)
    # Of the others those of RM_ALLOC were not recorded.
    with_params = [
        call
        for call in (CONTROL, ALLOC)
        if any(row.get("params", "-") != "-" and row["call"].startswith(call) for row in rows)
    ]
    return [_row(fields, tuple(with_params)) for fields in rows]


def _row(fields: dict[str, str], with_params: tuple[str, ...]) -> Row:
    words, expected = fields["words"], fields["expected"]
    opens = fields["request"] == "open"
    asks = fields["request"].startswith("0x")
    sizes = (
        [int(word, 0) for word in fields["bytes"].split()] if not opens and fields["bytes"] != "-" else []
    )
    status = expected.partition("=") if "=" in expected and not opens else None
    known = fields["call"].startswith(with_params) and len(sizes) > 1
    params = _words(fields["params"]) if known else None
    return Row(
        row=int(fields["row"]),
        request=fields["request"],
        file=None if opens else int(fields["file"][1:]),
        call=fields["call"],
        words=_words(words) if asks else ((0, words),),
        bytes=sizes[0] if sizes else 0,
        params_bytes=sizes[1] if len(sizes) > 1 else 0,
        status=(int(status[0], 16), int(status[2], 16)) if status else None,
        errno=int(expected.partition("=")[2]) if opens and expected != "-" else 0,
        closes=int(words.removeprefix("closes=f")) if words.startswith("closes=") else None,
        params=params,
        answer=params if fields.get("answer", "=") == "=" or not asks else _words(fields["answer"]),
    )


def _words(text: str) -> Words:
    return tuple(
        (int(at, 16), value)
        for at, _, value in (word.partition(":") for word in text.split() if ":" in word)
    )


def of_cards(rows: Sequence[Row], cards: int) -> list[Row]:
    """Without the calls about further cards: those that cuInit makes of each, and later ones on their
    objects.
    """
    if cards == ALL_CARDS:
        return list(rows)
    begins = [i for i, row in enumerate(rows) if row.call == BEGINS_A_CARD][cards]
    ends = max(i for i, row in enumerate(rows) if row.call == ENDS_A_CARD)
    foreign = {row.handle(8) for row in rows[begins:ends] if row.call.startswith("NV_ESC_RM_ALLOC ")} - {
        None
    }
    attached = 0
    kept = []
    for i, row in enumerate(rows):
        attached += row.call == ATTACHES
        another = (
            begins <= i <= ends
            or row.handle(4) in foreign
            or any(value.startswith("u") and int(value[1:]) >= cards for _, value in row.words)
            or (
                row.opens
                and row.call[len("nvidia") :].isdecimal()
                and int(row.call[len("nvidia") :]) >= cards
            )
            or (row.call == ATTACHES and attached > cards)
            or row.call == "NV_ESC_STATUS_CODE"
        )
        if not another:
            kept.append(row)
    opened = {row.row for row in kept if row.opens}
    return [replace(row, closes=row.closes if row.closes in opened else None) for row in kept]


class Composer:
    """Fills in what was not recorded: `filled` counts the fields by the table's rows, for people to read."""

    def __init__(self, rows: Sequence[Row], cards: Sequence[Card], fills: Path = HERE / "fills.tsv") -> None:
        self.rows, self.cards = rows, cards
        self.fills: dict[str, list[dict[str, str]]] = {}
        for fill in read(fills):
            self.fills.setdefault(fill["call"], []).append(fill)
        self.filled = 0
        self.devices = self.attached = self.memory = self.engine_object = self.channel = self.vaspace = 0

    def lines(self) -> Iterator[str]:
        for i, row in enumerate(self.rows):
            if row.opens:
                closes = -1 if row.closes is None else row.closes
                yield f"{row.row} open /dev/{row.call} {closes}"
                continue
            if row.request in ("close", "mmap"):
                where = f" {int(row.word(0), 16):x} {row.bytes:x}" if row.request == "mmap" else ""
                yield f"{row.row} {row.request} {row.file}{where}"
                continue
            unknown = self.fills.get(row.call, ()) if row.params is None else ()
            fills = [(int(f["at"], 16), self.value(f, i), int(f["bytes"])) for f in unknown]
            self.filled += len(fills)
            self.note(row)
            own, behind = self.words(row.words), self.words(row.params or ())
            if not row.params_bytes:
                own = ",".join(filter(None, (own, self.joined(fills))))
            else:
                behind = behind or self.joined(fills)
            status = f"{row.status[0]:x}" if row.status else NO_STATUS
            yield (
                f"{row.row} ioctl {row.file} {int(row.request, 16):x} {row.bytes} {own or '-'} "
                f"{row.params_bytes} {behind or '-'} {status} {int(notified(int(row.request, 16)))}"
            )

    def joined(self, fills: list[tuple[int, str, int]]) -> str:
        return ",".join(
            f"{at:x}:{value}{'*8' if width == 8 and value[0] not in 'CFZ' else ''}"
            for at, value, width in fills
        )

    def words(self, words: Words) -> str:
        found = []
        for at, value in words:
            if re.fullmatch(r"u\d+", value):
                uuid = self.cards[int(value[1:])].uuid
                found += [
                    f"{at + i:x}:{int.from_bytes(uuid[i : i + 4], 'little'):x}" for i in range(0, 16, 4)
                ]
            elif re.fullmatch(r"g\d+", value):
                found.append(f"{at:x}:{self.cards[int(value[1:])].gpu_id:x}")
            elif value.startswith("h"):
                found.append(f"{at:x}:{FIRST_HANDLE + int(value[1:]):x}")
            elif value.startswith("0x"):
                found.append(f"{at:x}:{value.removeprefix('0x')}")
            else:
                found.append(f"{at:x}:{value.upper()}")
        return ",".join(found)

    def note(self, row: Row) -> None:
        made = row.handle(8) or 0
        if row.call == "NV_ESC_RM_ALLOC 0x80":
            self.devices += 1
        elif row.call == ATTACHES:
            self.attached += 1
        elif row.call in ("NV_ESC_RM_ALLOC 0x40", "NV_ESC_RM_ALLOC 0x3e", "NV_ESC_RM_ALLOC_MEMORY"):
            self.memory = FIRST_HANDLE + made
        elif row.makes(COMPUTE) or row.makes(COPY):
            self.engine_object = FIRST_HANDLE + made
        elif row.call == "NV_ESC_RM_ALLOC 0xc46f":
            self.channel = FIRST_HANDLE + made
        elif row.call == "NV_ESC_RM_ALLOC 0x90f1":
            self.vaspace = FIRST_HANDLE + made

    def value(self, fill: dict[str, str], i: int) -> str:
        row, kind = self.rows[i], fill["value"]
        if kind.isdecimal():
            return f"{int(kind):x}"
        if kind in ("client", "parent", "file", "list", "control"):
            words = {"client": "C2", "parent": row.word(4), "file": f"F{row.file}", "list": "Z"}
            word = f"F{self.control_file()}" if kind == "control" else words[kind]
            return f"{FIRST_HANDLE + int(word[1:]):x}" if word.startswith("h") else word.upper()
        numbers = {
            "device": self.devices,
            "gpu_id": self.card(self.devices),
            "attached": self.card(self.attached) if self.attached < len(self.cards) else NOT_A_CARD,
            "none": NO_ID,
            "memory_block": memory_block_bytes(),
            "size": self.size(i) if kind == "size" else 0,
            "engine": self.engine(i) if kind == "engine" else 0,
            "mapped": self.mapped(i) if kind == "mapped" else 0,
            "memory": self.memory,
            "engine_object": self.engine_object,
            "channel": self.channel,
            "space": self.vaspace,
        }
        return f"{numbers[kind]:x}"

    def card(self, ordinal: int) -> int:
        return self.cards[min(ordinal, len(self.cards) - 1)].gpu_id

    def control_file(self) -> int:
        return next(
            row.file for row in self.rows if row.call == "NV_ESC_RM_ALLOC 0x80" and row.file is not None
        )

    def mapped(self, i: int) -> int:
        later = next(row for row in self.rows[i:] if row.call == "NV_ESC_RM_MAP_MEMORY")
        return FIRST_HANDLE + (later.handle(8) or 0)

    def size(self, i: int) -> int:
        """What the program maps of it, itself or on the card. A memory is mapped before the next is made."""
        made, largest = self.rows[i].handle(8), 0
        for row in self.rows[i + 1 :]:
            if row.call.startswith("NV_ESC_RM_ALLOC 0x40") or row.call.startswith("NV_ESC_RM_ALLOC 0x3e"):
                break
            if row.call == "UVM_CREATE_EXTERNAL_RANGE" or (
                row.call == "NV_ESC_RM_MAP_MEMORY" and row.handle(8) == made
            ):
                at = 8 if row.call.startswith("UVM") else 0x18
                largest = max(largest, int(row.word(at), 16))
            if row.call == "NV_ESC_RM_ALLOC_MEMORY":
                break
        return largest or UNMAPPED_BYTES

    def engine(self, i: int) -> int:
        group = self.rows[i].handle(8)
        channels = {row.handle(8) for row in self.rows if row.makes(CHANNEL) and row.handle(4) == group}
        computes = any(row.makes(COMPUTE) and row.handle(4) in channels for row in self.rows)
        return GRAPHICS if computes else COPY0


# The fourth card of the machine that was recorded.
NOT_A_CARD = 0x6400


def notified(cmd: int) -> bool:
    """Whether the filter hands a call to the mediator."""
    return any(cmd & mask == datum for mask, datum in NOTIFY_CUBES)


def differences(version: str = VERSION, path: Path = HERE / "differs.tsv") -> dict[str, tuple[str, str]]:
    """By row, or by call where all of a kind differ: the result that a container's program gets, and why."""
    return {
        row["row"]: (row["result"], row["reason"])
        for row in read(path)
        if row["recording"] in (version, "-")
    }


def expected(row: Row, differs: dict[str, tuple[str, str]]) -> str:
    for key in (str(row.row), row.call, row.call[:4]):
        if key in differs:
            return differs[key][0]
    if row.errno:
        return f"errno {row.errno}"
    return f"status {row.status[1]:#x}" if row.status else "status 0x0"


def memory_block_bytes() -> int:
    """The steps in which the kernel takes memory in; 0: it has none."""
    try:
        return int(Path("/sys/devices/system/memory/block_size_bytes").read_text(), 16)
    except FileNotFoundError:
        return 0
