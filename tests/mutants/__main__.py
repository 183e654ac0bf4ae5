"""`make mutants`: builds each mistake and says which test sees it. --all: which of all suites that judge from
outside do; NAME: of these alone.
"""

import sys

import click
from rich.console import Console
from rich.table import Table

from tests.mutants.mutant import FOREIGN, Mutant, mutants
from tests.mutants.world import NotRunError, seen

SUITES = {
    "facts": ("tests/abi/test_parity.py", "tests/abi/test_places.py", "tests/abi/test_channel.py"),
    "recordings": ("tests/recordings",),
    "tinygrad": ("tests/foreign/test_tinygrad.py",),
    "numba": ("tests/foreign/test_numba.py",),
    "cuda-core": ("tests/foreign/test_cuda_core.py",),
}


def _said(mutant: Mutant, *tests: str) -> str | None:
    try:
        return seen(mutant, *tests)
    except NotRunError as error:
        return f"not run: {error}"


def _by(mutant: Mutant, every: bool) -> dict[str, str | None]:
    if not every:
        return {mutant.seen_by: _said(mutant, mutant.seen_by)}
    suites = {name: _said(mutant, *tests) for name, tests in SUITES.items()}
    return (
        suites
        if mutant.foreign and not mutant.in_a_guest
        else {**suites, mutant.seen_by: _said(mutant, mutant.seen_by)}
    )


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--all", "every", is_flag=True, help="Run every foreign suite, not only the test that is listed."
)
def main(names: tuple[str, ...], every: bool) -> None:
    console, missed, foreign = Console(width=160), [], 0
    table = Table("mistake", "in", "seen by", "which says")
    for mutant in mutants():
        if names and mutant.name not in names:
            continue
        found = {by: text for by, text in _by(mutant, every).items() if text}
        if not found or any(text.startswith("not run") for text in found.values()):
            missed.append(mutant.name)
        foreign += any(by in SUITES or by.startswith(FOREIGN) for by in found)
        for by, text in found.items() or [("nothing", "")]:
            table.add_row(mutant.name, mutant.path, by, text.splitlines()[0] if text else "")
        console.print(f"{mutant.name}: {', '.join(found) or 'nothing'}")
    console.print(table)
    console.print(f"{foreign} seen from outside; missed: {', '.join(missed) or 'none'}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
