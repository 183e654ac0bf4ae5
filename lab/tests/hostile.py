"""The hostile programs of tests/programs/hostile in containers under mgpu; docs/hostile-programs.md names
each with its judge.

The judge is RM's own account of the card, which may have no more than mgpud's list for longer than a look
takes; the words of the program; an online container beside it, whose copies go on with their data; and what
is left when the program has been killed.
"""

import queue
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from lab.claims import decides
from lab.guest import boxes, served
from lab.tests.loaded import version
from lab.tests.nv import MIB, Client
from lab.tests.peers import CAPS, OVER_BUS
from lab.tests.strangers import LOOK_S, OVER_MAX_S
from lab.tests.under_mgpu import LIMIT_S, PATIENCE_S, RMS_PAGE, free_at_rest, until
from tests.gpu.backend import PROGRAMS
from tests.gpu.product import Container, Product
from tests.support import rm_numbers as nv

# In place of a line: it is told to go on.
GO = "<"
KILLED = 137
EPERM, ENOMEM, EFAULT, EINVAL = 1, 12, 14, 22
CAP_MIB = 512
WHOLE = None


@dataclass(frozen=True)
class Try:
    """A program with its words, and its lines in their order, as regular expressions.

    BRANCH and UUIDS among the words are the driver's, and all cards'; SAID: the other one's last word. mib:
    what it has in the end, by both accounts, if that is known. noise: lines that say nothing. may_die: it may
    be killed for what it tries. lasts_s: how long it is looked at afterwards. after: another one, which stays
    beside it.
    """

    words: str
    says: tuple[str, ...]
    mib: int | None = None
    cap_mib: int | None = CAP_MIB
    qos: str = "online"
    capabilities: str = ""
    noise: str = "$."
    may_die: bool = False
    lasts_s: float = 0.0
    pids: int = 0
    cards: str = "0"
    after: "Try | None" = None


def used_bytes(some: Sequence[dict[str, Any]]) -> int:
    return sum(int(card["used_bytes"]) for each in some for card in each["cards"])


def containers() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = served.ask("list")["containers"]
    return found


class Room:
    """mgpu with an online container that copies when it is told to. With alone: without one."""

    def __init__(self, product: Product, outside: Sequence[Client], online: Container | None) -> None:
        self.product, self.outside, self.online = product, outside, online
        self.online_is_well()
        self.before = self.free_bytes()
        self.online_bytes, self.mgpud = used_bytes(containers()), boxes.serving()

    def free_bytes(self) -> int:
        return sum(client.free_bytes() for client in self.outside)

    def online_is_well(self) -> None:
        if self.online:
            boxes.tell(self.online)
            assert boxes.told(self.online) == {"intact": True}

    def words(self, one: Try, said: str) -> Iterator[str]:
        known = {
            "BRANCH": [version().partition(".")[0]],
            "UUIDS": [each.uuid().hex() for each in self.outside],
            "SAID": [said],
        }
        for word in one.words.split():
            yield from known.get(word, [word])

    def is_empty(self) -> bool:
        return len(containers()) == bool(self.online)

    def tried(self, one: Try) -> None:
        """Nothing is left of it afterwards."""
        with ExitStack() as stack:
            said = stack.enter_context(self._begun(one.after)) if one.after else ""
            stack.enter_context(self._begun(one, said))
            self.online_is_well()
        until(self.is_empty, "it goes on")
        until(lambda: self.before - self.free_bytes() <= RMS_PAGE, "its memory is not free again")
        assert boxes.serving() == self.mgpud, "another mgpud serves"
        self.online_is_well()

    @contextmanager
    def _begun(self, one: Try, said: str = "") -> Iterator[str]:
        """What it said last."""
        program, *words = self.words(one, said)
        with self.product.container(
            [str(PROGRAMS / program), *words],
            memory_mib=one.cap_mib,
            qos=one.qos,
            cards=one.cards,
            capabilities=one.capabilities,
            told=True,
            pids=one.pids,
        ) as box:
            watch = Watch(self, one, box)
            try:
                watch.goes()
            finally:
                print(f"{one.words}: {watch.said}, {time.monotonic() - watch.began:.1f} s", flush=True)
            yield " ".join(watch.said).rpartition(" ")[2]


@dataclass
class Watch:
    """One of them under way."""

    room: Room
    one: Try
    box: Container
    lines: "queue.Queue[str]" = field(default_factory=queue.Queue)
    said: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    since: float = 0.0

    def __post_init__(self) -> None:
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        while line := self.box.line():
            self.lines.put(line.strip())
        self.lines.put("")

    def look(self) -> tuple[bool, int]:
        """Whether RM has no more than mgpud's list, and what it has by that list."""
        # What is made is in the list first, so that is read last.
        missing = self.room.before - self.room.free_bytes()
        listed = containers()
        over = missing - (used_bytes(listed) - self.room.online_bytes)
        agree = over <= RMS_PAGE
        self.since = 0.0 if agree else self.since or time.monotonic()
        assert agree or time.monotonic() - self.since < OVER_MAX_S, f"{over} bytes are in no list"
        mine = used_bytes([each for each in listed if each["container_id"] == self.box.name])
        assert self.one.cap_mib is None or mine <= self.one.cap_mib * MIB, f"has {mine} bytes"
        return agree, mine

    def agree(self) -> bool:
        agree, mine = self.look()
        return agree and (self.one.mib is None or mine == self.one.mib * MIB)

    def next_line(self) -> str:
        """Empty: it has ended."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                line = self.lines.get(timeout=LOOK_S)
            except queue.Empty:
                self.look()
                continue
            self.said.append(line)
            if not re.fullmatch(self.one.noise, line):
                return line
        raise AssertionError(f"says nothing more after {self.said}")

    def goes(self) -> None:
        """By its lines, as far as it lives."""
        for wanted in self.one.says:
            if wanted == GO:
                boxes.tell(self.box)
                continue
            line = self.next_line()
            if not line and self.one.may_die and self.box.process.wait(PATIENCE_S) == KILLED:
                return
            assert re.fullmatch(wanted, line), f"says {self.said}, not {wanted}"
        until(self.agree, f"what it has is not {self.one.mib} MiB")
        end = time.monotonic() + self.one.lasts_s
        while time.monotonic() < end:
            self.look()
            time.sleep(LOOK_S)


@contextmanager
def room(cards: int, alone: bool) -> Iterator[Room]:
    product, outside = boxes.product(), [Client(card=number) for number in range(cards)]
    for client in outside:
        free_at_rest(product, client)
    if alone:
        yield Room(product, outside, None)
        return
    with product.container(boxes.inside("copies"), memory_mib=256, told=True) as online:
        yield Room(product, outside, online)


def tried(tries: Sequence[Try], *, cards: int = 1, alone: bool = False) -> None:
    """All of them, whatever one of them comes to."""
    wrong = {}
    with room(cards, alone) as made:
        for one in tries:
            try:
                made.tried(one)
            except AssertionError as error:
                wrong[one.words] = str(error)
    assert not wrong, wrong


CALLS = (
    Try("ancestor 50", ("held 12 after 50",), 12),
    Try("neighbour", ("ready", GO, r"well \d+"), 0),
    Try("demand 256 4", ("asking",), lasts_s=3),
    # The simulated card has a bound of its own for them, and NVIDIA's driver has none.
    Try("doorbells 1", (), 0, lasts_s=5),
    Try("exit_inside 1", (r"done \d+",), 0),
    Try("signal_storm 1", (r"done \d+ \d+",), 0),
    Try("samples BRANCH", (r"done (\d+) of \1, 0 beside",), 0),
    Try("stalled_memory", (f"waits|answered {EFAULT}",), 0),
    Try("managed over", (f"{CAP_MIB * MIB} {ENOMEM}",), CAP_MIB),
    Try("managed swap 2", (r"none \d+|refused",), may_die=True),
    Try("outlive", ("made", "gone", GO, "ended"), 0),
    Try("fork_bomb 2", ("done",), noise=".*client.*", pids=64),
    Try("audit_slack", (r"lost|won \d+",), cap_mib=2560, may_die=True, lasts_s=5),
    Try("exports message", ("made", GO, "dropped"), 0),
    Try(
        "exports freed",
        (f"{nv.NV_ERR_OBJECT_NOT_FOUND} {nv.NV_ERR_NOT_SUPPORTED} {nv.NV_ERR_NOT_SUPPORTED} "
         f"{nv.NV_ERR_INVALID_PARAMETER}",),
        0,
    ),
    Try("exports flip", (r"done \d+",), 3),
    Try("foreign_handles other", ("0",), 0, after=Try("foreign_handles own", ("made",))),
    # The fourth is no call of a client's, and what is mapped by the last is no file.
    Try(
        "hand_over receive /run/lab/h SAID",
        (f"-{EPERM} -{EPERM} -{EPERM} 0 -{EPERM} -{EINVAL}",), 0,
        after=Try("hand_over send /run/lab/h", (r"sent \d+",)),
    ),
    Try(
        "exports receive /run/lab/e",
        (" ".join([str(nv.NV_ERR_INSUFFICIENT_PERMISSIONS)] * 3),), 0,
        after=Try("exports send /run/lab/e", ("listens",), 8),
    ),
    Try('knock packet /run/mgpu/mgpud.sock {"version":1,"verb":"list"}', (".*only root of this node.*",), 0),
    Try("knock packet /run/mgpu/mgpud.sock {", ("closed|.*only root of this node.*",), 0),
    Try("knock stream /run/mgpu/seccomp.sock {} fd", ("closed",), 0),
)  # fmt: skip
SOME = r"made [1-9]\d* status 0x\w+"
GROUPS = (
    Try("many_groups 300 groups", (SOME,), cap_mib=1024, qos="offline"),
    Try("many_groups 40 clients", (f"made 16 status {nv.NV_ERR_NO_MEMORY:#x}",), cap_mib=1024, qos="offline"),
    Try("many_groups 1100 channels", (SOME,), cap_mib=1024, qos="offline"),
    Try(
        "bare_groups",
        (f"made 0 status {nv.NV_ERR_INVALID_OBJECT_PARENT:#x} free {nv.NV_ERR_STATE_IN_USE:#x}",),
        qos="offline",
    ),
    Try("newcomer 4", ("ready", GO, "made 4"), qos="offline"),
    Try("self_kill 1", ("ready", r"done \d+"), 0, qos="offline"),
    *(Try(f"scribble {how} 20", ("ready",), qos="offline", lasts_s=2) for how in ("idle", "busy", "flip")),
    # There it is memory of a device, and no file that can be made shorter.
    Try("truncate", (f"{EINVAL} {EINVAL} {EINVAL} {EINVAL}", GO, "unmapped"), qos="offline"),
    Try("unregistered add", ("ready", GO, "0"), qos="offline", may_die=True, lasts_s=5),
    Try("unregistered end", ("ready", GO, "0", GO, "0"), qos="offline", lasts_s=2),
    Try("graphics", ("channel 0 draws 0", f"memory {CAP_MIB} regions {CAP_MIB}"), capabilities="graphics,utility"),
    Try("graphics", (f"channel 0 draws {nv.NV_ERR_INVALID_CLASS:#x}",), capabilities="compute"),
    # The emulated card has no decoder.
    Try("video", (f"channel 0 decoder {nv.NV_ERR_INVALID_CLASS:#x}",), capabilities="video,compute"),
)  # fmt: skip
DENIED, ABSENT = f"{nv.NV_ERR_INVALID_CLASS:#x}", f"{nv.NV_ERR_NOT_SUPPORTED:#x}"
NOT_ITS = f"{nv.NV_ERR_INSUFFICIENT_PERMISSIONS:#x}"
ALONE = (
    Try("profiler", (f"trace 0 profiler {DENIED} counters {ABSENT} foreign {DENIED} cards 1",)),
    Try("profiler", (f"trace 0 profiler 0 counters 0 foreign {nv.NV_ERR_INVALID_CLIENT:#x} cards 1",), cap_mib=WHOLE),
    Try("reached", (f"object {ABSENT} .*",)),
    Try("reached", (rf"object 0 space 0 token 0x\w+ memory 0 of {NOT_ITS}", GO, "freed 0"), cap_mib=WHOLE),
)  # fmt: skip
STRANGE = " ".join(
    f"{each:#x}" for each in (*[nv.NV_ERR_INVALID_ARGUMENT] * 3, nv.NV_ERR_INVALID_OBJECT_PARENT)
)
# What it says has the sizes of 580's structs.
OF_580 = (
    Try(
        "pairs",
        ("ready", GO, f"reach {OVER_BUS:#x} 0, others 0, links 0 hidden 0 listed 1", GO,
         "made 0 numbered 0 unlike 0", GO, f"strange {STRANGE}", GO, "again 0 0", GO, "mapped 0"),
        cap_mib=2048, cards="0,1",
    ),
)  # fmt: skip
TWO = (
    Try(
        "peers UUIDS",
        ("ready", GO, "enabled 0 mapped 0", GO, f"again {nv.NV_ERR_NO_MEMORY:#x}", GO, "after 0"),
        cap_mib=2048, cards="0,1",
    ),
)  # fmt: skip


@decides(long=True, limit_s=4 * LIMIT_S)
def calls_are_held() -> None:
    tried(CALLS)


@decides(long=True, limit_s=2 * LIMIT_S)
def groups_are_held() -> None:
    tried(GROUPS)


@decides(long=True, limit_s=LIMIT_S)
def whole_cards_are_held() -> None:
    tried(ALONE, alone=True)


# As tinygrad, it maps with a struct that 535 looks for elsewhere: nothing is mapped there.
@decides(cards=2, long=True, limit_s=LIMIT_S, rests_on=(CAPS,), since=550)
def two_cards_are_held() -> None:
    tried(TWO, cards=2, alone=True)


@decides(cards=2, long=True, limit_s=LIMIT_S, rests_on=(CAPS,), drivers=("580.142",))
def two_cards_of_580_are_held() -> None:
    tried(OF_580, cards=2, alone=True)


# By the name of the test.
ROOMS = {
    "calls": CALLS,
    "groups": GROUPS,
    "whole_cards": ALONE,
    "two_cards": TWO,
    "two_cards_of_580": OF_580,
}
