"""The hostile attempts of tests/programs/hostile on whatever card there is, judged by what the driver itself
counts.

The suite under tests/hostile judges by the simulated card's account, which says nothing of NVIDIA's driver.
Those with `decides` are what only that driver can decide. tests/hostile/test_gpu.py and bringup.sh run them
where there is a card.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.rm_numbers import NV_ERR_INVALID_ARGUMENT, NV_ERR_NO_MEMORY

CAP_MIB = 512
# Of programs with contexts of CUDA's, which take some of it; and what they allocate at a time.
CUDA_CAP_MIB, PIECE_MIB = 4096, 256
MIB = 1 << 20
EPERM, ENOMEM, ENOSYS, INVALID_ARGUMENT, NO_MEMORY = 1, 12, 38, NV_ERR_INVALID_ARGUMENT, NV_ERR_NO_MEMORY
Judge = Callable[[list[int], str], bool]


@dataclass(frozen=True)
class Attempt:
    """judge: from the numbers of its line, and the line. One that is killed for what it tries has been held
    too.

    decides: what of the driver it shows; empty: decided on the simulated card, and run here besides. covered:
    what the card has less of in the end is in the ledger.
    """

    name: str
    argv: tuple[str, ...]
    judge: Judge
    decides: str = ""
    cap_mib: int = CAP_MIB
    covered: bool = False


def numbers(line: str) -> list[int]:
    found = []
    for word in line.split():
        try:
            found.append(int(word, 0))
        except ValueError:
            continue
    return found


def anything(_: list[int], line: str) -> bool:
    return bool(line)


def not_made(said: list[int], line: str) -> bool:
    return "made" not in line and bool(said) and said[0] in (EPERM, ENOSYS)


def uvm_keeps(name: str, argv: tuple[str, ...], judge: Judge, decides: str) -> Attempt:
    return Attempt(name, ("uvm_keeps", *argv), judge, decides, CUDA_CAP_MIB, covered=True)


def something_was_kept(said: list[int], _: str) -> bool:
    return len(said) == 3 and min(said[:2]) > 0


def within_the_cap(said: list[int], _: str) -> bool:
    return len(said) == 3 and said[1] <= CAP_MIB * MIB and said[2] == NO_MEMORY


ATTEMPTS: tuple[Attempt, ...] = (
    Attempt(
        "takes all it can",
        ("greedy",),
        lambda said, _: len(said) == 2 and said[0] <= CAP_MIB * MIB and said[1] == NO_MEMORY,
        "what the driver rounds up to, and what it takes itself",
    ),
    Attempt(
        "every type byte", ("other_type",), lambda said, _: said[2:] == [0], "which bits the driver looks at"
    ),
    Attempt("escapes that nothing needs", ("other_ways",), lambda said, _: len(said) == 3 and said[1] == 0),
    Attempt(
        "class changed by a thread", ("flip", "class", "1"), anything, "what the kernel reads after CONTINUE"
    ),
    Attempt("size changed by a thread", ("flip", "size", "1"), anything),
    Attempt("pointer changed by a thread", ("flip", "pointer", "1"), anything),
    Attempt("control changed by a thread", ("flip", "control", "1"), anything),
    Attempt("root client turned into memory", ("reclass",), anything, "the audit by GET_PID_INFO"),
    Attempt(
        "clients and cards of others by name",
        ("strangers",),
        lambda said, _: said == [0],
        "that events, devices and open cards are refused by whose they are",
    ),
    Attempt("another file under the descriptor", ("dup2_race", "1"), lambda said, _: said == [0]),
    Attempt(
        "sizes that make no sense",
        ("sizes",),
        lambda said, _: len(said) == 2 and said[1] <= CAP_MIB * MIB,
        "zero, huge and overlapping sizes in RM itself",
    ),
    Attempt("int 0x80", ("foreign_calls", "i386"), not_made, "the driver's compat entry"),
    Attempt("x32", ("foreign_calls", "x32"), not_made, "the driver's compat entry"),
    Attempt("io_uring", ("foreign_calls", "io_uring"), not_made),
    Attempt(
        "sixteen TiB of virtual memory",
        ("tables", "virtual", "16"),
        within_the_cap,
        "that page tables asked for lazily are not made",
    ),
    Attempt(
        "sparse virtual memory, and some that fails late",
        ("tables", "sparse", "64"),
        within_the_cap,
        "what RM reserves for tables, and what a failed call leaves in its pool",
    ),
    Attempt(
        "thousands of address spaces",
        ("tables", "spaces", "20000"),
        within_the_cap,
        "what an address space takes by itself",
    ),
    Attempt(
        "a mapping longer than its object",
        ("tables", "dma"),
        lambda said, line: within_the_cap(said, line) and said[0] == INVALID_ARGUMENT,
    ),
    Attempt(
        "managed memory above the cap",
        ("managed", "over"),
        lambda said, _: len(said) == 2 and said[0] <= CAP_MIB * MIB and said[1] == ENOMEM,
        "that mmap() of nvidia-uvm at its offset makes a range, and says ENOMEM",
    ),
    Attempt(
        "nvidia-uvm under the descriptor of mmap()",
        ("managed", "swap", "5"),
        lambda _, line: bool(line) and "kept" not in line,
        "what the kernel maps after CONTINUE",
    ),
    Attempt("filters of its own", ("nested",), lambda said, _: said[-1:] == [NO_MEMORY]),
    Attempt("a tracer", ("puppet", "1"), anything),
    Attempt(
        "thousands of files",
        ("open_close", "2000"),
        lambda _, line: line.startswith("done"),
        "how long the driver takes to let go of a file",
    ),
    uvm_keeps(
        "groups freed while nvidia-uvm has their channels",
        ("groups", "12"),
        something_was_kept,
        "whether what a registration retains is charged until it is gone",
    ),
    uvm_keeps(
        "memory freed while nvidia-uvm has it mapped",
        ("memory", "32", str(PIECE_MIB)),
        # Where nothing was mapped each is gone as it is freed.
        lambda said, line: (
            something_was_kept(said, line) and (said[0] * PIECE_MIB <= CUDA_CAP_MIB or not said[2])
        ),
        "that a mapping outlives the object, and its charge does",
    ),
    uvm_keeps(
        "files of nvidia-uvm in messages alone",
        ("message", "4", str(5 * PIECE_MIB)),
        something_was_kept,
        "that such a file keeps what it has mapped, and is not taken for closed",
    ),
)
DECIDED_ON_A_CARD = tuple(one for one in ATTEMPTS if one.decides)
# Enough to see that they are run and judged.
ON_A_SIMULATED_CARD = tuple(
    one
    for one in ATTEMPTS
    if one.argv[0] in ("greedy", "other_type", "foreign_calls", "tables", "uvm_keeps")
)
