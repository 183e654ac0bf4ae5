"""`make lab`: NVIDIA's own driver judges. docs/driver-lab.md says what is needed and what is seen."""

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from lab import collection, pairs, runner, shell, verdicts
from lab.error import LabError
from lab.guests import GuestSpec
from lab.places import BUILD, LAB
from lab.play import compare, simulated

CARD = BUILD / "meson/lab/card/mgpu-labcard"
RESULTS = LAB / "results"
# The first pair is tried on these, too: another firmware starts the GSP, and page tables have one level more.
OTHER_CHIPS = ("gh100",)
PLAYED = "play.answers_are_those_recorded"

Found = dict[str, list[verdicts.Verdict]]  # by pair and chip


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("tests", nargs=-1, metavar="[TEST]...")
@click.option("--pair", default=pairs.PAIRS[0].name, help="DRIVER-KERNEL, as lab/pairs.py has them.")
@click.option("--every-pair", is_flag=True, help="All tests on each of them, then on other chips.")
@click.option("--short", is_flag=True, help="Without the tests that start mgpud.")
@click.option("--all", "every", is_flag=True, help="The long ones too, which are left out unless named.")
@click.option("--shell", "interactive", is_flag=True, help="A prompt in the guest in place of tests.")
@click.option(
    "--card", type=click.Path(path_type=Path), default=CARD, help="The program that plays the card."
)
@click.option(
    "--engine", type=click.Path(path_type=Path), help="mgpu's engine, in place of the one that is installed."
)
@click.option(
    "--modules",
    type=click.Path(path_type=Path),
    help="A folder with nvidia.ko and nvidia-uvm.ko, built for the pair's kernel, in place of the pair's.",
)
@click.option("--chip", default="ga102")
@click.option("--cards", default=1)
@click.option("--memory-mib", default=4096)
def main(
    tests: tuple[str, ...],
    pair: str,
    every_pair: bool,
    short: bool,
    every: bool,
    interactive: bool,
    card: Path,
    engine: Path | None,
    modules: Path | None,
    chip: str,
    cards: int,
    memory_mib: int,
) -> None:
    """Run lab/tests in a guest with NVIDIA's driver. TEST: a file of lab/tests, or FILE.FUNCTION."""
    try:
        if every_pair and modules:
            raise LabError("--modules fit one kernel, not every pair's: name it by --pair")
        one = pairs.named(pair)
        chosen = pairs.PAIRS if every_pair else (pairs.with_driver(one, modules) if modules else one,)
        machines = [(each, chip) for each in chosen]
        if every_pair:
            machines += [(pairs.PAIRS[0], other) for other in OTHER_CHIPS]
        specs = [
            GuestSpec(each, card.absolute(), of, cards, memory_mib, engine=engine, modules=modules)
            for each, of in machines
        ]
        if interactive:
            sys.exit(shell.prompt(specs[0]))
        which = collection.every if tests or every or every_pair else collection.usual
        named = collection.tests(tests, collection.short if short else which)
        with _record(every_pair) as say:
            sys.exit(judge(specs, named, say))
    except LabError as error:
        print(f"lab: {error}", flush=True)
        sys.exit(1)


@contextmanager
def _record(kept: bool) -> Iterator[Callable[[str], None]]:
    """What says a line; of a run on every pair all lines are in a file by its date, too."""
    if not kept:
        yield _say
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y-%m-%d-%H%M')}.txt"
    with path.open("w", buffering=1) as file:

        def say(line: str) -> None:
            _say(line)
            file.write(f"{line}\n")

        say(f"lab: {time.strftime('%Y-%m-%d %H:%M')}, at a load of {os.getloadavg()[0]:.1f}")
        yield say
    _say(f"lab: all of it is in {path}")


def _say(line: str) -> None:
    print(line, flush=True)


def judge(specs: Sequence[GuestSpec], named: Sequence[collection.Named], say: Callable[[str], None]) -> int:
    """A guest that breaks ends its own tests. The exit status."""
    with ThreadPoolExecutor(1) as beside:
        # It waits for most of its time, and takes nothing from the guests.
        playing = beside.submit(_simulated) if any(test.name == PLAYED for test in named) else None
        found, failed = _judged(specs, named, say)
        for line in verdicts.disagreements(found):
            say(line)
        differences = None
        if playing and any(_played(spec, found[_machine(spec)]) for spec in specs):
            differs = playing.result()
            differences, unlisted = compare.still_open(differs), compare.unlisted(differs)
            for key in unlisted:
                say(f"lab: the simulated card answers otherwise than differences.tsv says: {key}")
            failed |= bool(unlisted)
    say(verdicts.last_line(found.values(), differences))
    return int(failed)


def _judged(
    specs: Sequence[GuestSpec], named: Sequence[collection.Named], say: Callable[[str], None]
) -> tuple[Found, bool]:
    """And whether anything failed."""
    found: Found = {}
    failed = False
    for spec in specs:
        judged = found.setdefault(_machine(spec), [])
        of_pair = [test for test in named if _is_for(test, spec, say)]
        for cards in sorted({max(test.claim.cards, spec.cards) for test in of_pair}):
            some = [test for test in of_pair if max(test.claim.cards, spec.cards) == cards]
            say(f"lab: {spec.pair.name}, {cards} x {spec.chip}")
            try:
                for verdict in runner.run(dataclasses.replace(spec, cards=cards), some, say):
                    judged.append(verdict)
                    failed |= verdict.state == verdicts.FAILED
            except LabError as error:
                say(f"lab: {error}")
                failed = True
    return found, failed


def _machine(spec: GuestSpec) -> str:
    return f"{spec.pair.name}, {spec.chip}"


def _is_for(test: collection.Named, spec: GuestSpec, say: Callable[[str], None]) -> bool:
    """Of a chip that it is not for the reason is said."""
    claim, driver = test.claim, spec.pair.driver
    for chip, reason in claim.not_on:
        if chip == spec.chip:
            say(f"lab: {test.name} is not for {chip}: {reason}")
            return False
    return driver.branch >= claim.since and driver.version in (claim.drivers or (driver.version,))


def _played(spec: GuestSpec, judged: Sequence[verdicts.Verdict]) -> bool:
    """Whether the answers with which the simulated card is compared were NVIDIA's in this very run."""
    if (spec.pair.driver.version, spec.chip) != (compare.DRIVER, compare.CHIP):
        return False
    return any(verdict.test == PLAYED and verdict.state != verdicts.FAILED for verdict in judged)


def _simulated() -> compare.Differences:
    """How the simulated card as it is built now differs from what is recorded."""
    with TemporaryDirectory(prefix="mgpu-lab-") as folder:
        return compare.differ(simulated.answers(Path(folder)), compare.recorded())


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("lab: root is needed, to make the guest's disks")
    main(prog_name="python -m lab")
