"""`python -m tools.abi`: the facts of NVIDIA's kernel driver interface, from header trees.
docs/driver-branches.md.
"""

import argparse
import sys
from pathlib import Path

from tools.abi import (
    coverage,
    from_known,
    from_nvproxy,
    from_observed,
    history,
    interface,
    layouts,
    neighbours,
    parity,
    store,
    tables,
)
from tools.abi.changes import changes
from tools.abi.from_tinygrad import Module
from tools.abi.measure import measure
from tools.abi.problem import Problem
from tools.abi.release import KINDS, Release
from tools.abi.tree import HeaderTree


def _measured(arguments: argparse.Namespace) -> Release:
    tree = HeaderTree(arguments.tree)
    return measure(tree, f"{history.TAG}{tree.version}")


def _facts(arguments: argparse.Namespace) -> int:
    release = _measured(arguments)
    for kind, (_, _) in KINDS.items():
        for key, value in sorted(release.facts[kind].items()):
            print(kind, *key, *value, sep="\t")
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    release = _measured(arguments)
    found = changes(store.load(arguments.facts), release, interface.read())
    print(f"{release.version}, against {found.since}")
    print(f"\nTo decide: {len(found.decide)}")
    print("".join(f"  {line}\n" for line in found.decide), end="")
    print(f"\nChanged, and mgpu names none of it: {len(found.other)}")
    print("".join(f"  {line}\n" for line in found.other), end="")
    return 0


def _add(arguments: argparse.Namespace) -> int:
    known = store.load(arguments.facts)
    release = _added(arguments, known)
    known.add(release)
    store.save(known, arguments.facts)
    print(f"{release.version}: {release.count()} facts, in {arguments.facts}")
    return 0


def _add_struct(arguments: argparse.Namespace) -> int:
    known = store.load(arguments.facts)
    like, _ = known.around(arguments.version)
    if like is None or arguments.version not in known.releases:
        raise Problem(f"{arguments.version}: not a known driver, {', '.join(known.versions)} are")
    release = known.releases[arguments.version]
    from_nvproxy.add(release, arguments.folder, arguments.struct, arguments.source, like)
    store.save(known, arguments.facts)
    print(f"{release.version}: {arguments.struct}, in {arguments.facts}")
    return 0


def _add_same(arguments: argparse.Namespace) -> int:
    known = store.load(arguments.facts)
    if arguments.known not in known.releases:
        raise Problem(f"{arguments.known}: not a known driver, {', '.join(known.versions)} are")
    if arguments.version not in known.releases:
        known.add(Release(arguments.version, arguments.source, complete=False))
    release, names = known.releases[arguments.version], arguments.structs.read_text().split()
    for name in names:
        from_known.add(release, known.releases[arguments.known], name)
    if arguments.source not in release.source:
        release.source += f"; {arguments.source}"
    store.save(known, arguments.facts)
    print(f"{release.version}: {len(names)} structs as in {arguments.known}, in {arguments.facts}")
    return 0


def _added(arguments: argparse.Namespace, known: store.Store) -> Release:
    if arguments.tinygrad is None and arguments.observed is None:
        return _measured(arguments)
    if arguments.version is None or arguments.source is None:
        raise Problem(
            "what is no header tree does not say its version nor where it is from: give --version and --source"
        )
    like, _ = known.around(arguments.version)
    if like is None:
        raise Problem(f"{arguments.version} is older than every known driver: its symbols are not known")
    if arguments.tinygrad is not None:
        release = Module(arguments.tree, arguments.tinygrad).release(arguments.version, like)
        release.source += f", {arguments.source}"
        return release
    return from_observed.release(arguments.tree, arguments.version, arguments.source, like)


def _judge(arguments: argparse.Namespace) -> int:
    verdict = neighbours.judge(store.load(arguments.facts), _measured(arguments))
    print("".join(f"{line}\n" for line in verdict.differs), end="")
    print(verdict.line())
    return 1 if verdict.differs else 0


def _rebuild(arguments: argparse.Namespace) -> int:
    known, built = store.load(arguments.facts), store.Store()
    for release in history.rebuilt(known, arguments.clone, arguments.tinygrad):
        built.add(release)
        print(f"{release.version}: {release.count()} facts")
    store.save(built, arguments.facts)
    return 0


def _parity(arguments: argparse.Namespace) -> int:
    rows, known = interface.read(arguments.interface), store.load(arguments.facts)
    found = [*parity.compare(rows, known), *layouts.compare(rows, known, layouts.measure())]
    print("".join(f"{difference.line()}\n" for difference in found), end="", file=sys.stderr)
    print(f"{len(parity.served(rows, known))} drivers, {len(found)} disagreements")
    return 1 if found else 0


def _coverage(arguments: argparse.Namespace) -> int:
    coverage.PAGE.write_text(coverage.page(interface.read(), store.load(arguments.facts)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.abi", description=__doc__)
    parser.add_argument(
        "--facts", type=Path, default=tables.FACTS, metavar="FOLDER", help="where they are kept"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("facts", _facts, "print what a header tree says"),
        ("diff", _diff, "what a header tree changes, and what a person has to decide"),
        ("judge", _judge, "whether a header tree fits the known drivers around it"),
        ("add", _add, "take a header tree into the facts"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("tree", type=Path, help="root of a source tree of open-gpu-kernel-modules")
        command.set_defaults(run=run)
        if name == "add":
            command.add_argument(
                "--tinygrad", metavar="MODULE", help="the tree is a folder with tinygrad: nv_610"
            )
            command.add_argument(
                "--observed", action="store_const", const=True, help="the tree is a table of calls"
            )
            command.add_argument("--version", help="the driver's")
            command.add_argument("--source", help="where it is from")
    command = commands.add_parser(
        "add-struct", help="where a struct's fields lie in a driver of which no header is known, by gVisor"
    )
    command.add_argument("folder", type=Path, help="pkg/abi/nvgpu of gVisor")
    command.add_argument("struct")
    command.add_argument("version", help="a known driver, which gVisor supports")
    command.add_argument("source", help="where the folder is from")
    command.set_defaults(run=_add_struct)
    command = commands.add_parser(
        "add-same", help="structs that a driver without headers has as a known one, by a source that says so"
    )
    command.add_argument("structs", type=Path, help="a file with their names")
    command.add_argument("version", help="the driver's")
    command.add_argument("known", help="the known driver")
    command.add_argument("source", help="what says so")
    command.set_defaults(run=_add_same)
    command = commands.add_parser("rebuild", help="measure every known driver anew")
    command.add_argument("clone", type=Path, help="a clone of NVIDIA's repository, with its tags")
    command.add_argument(
        "--tinygrad", type=Path, metavar="FOLDER", help="that has tinygrad: facts that are its are anew too"
    )
    command.set_defaults(run=_rebuild)
    command = commands.add_parser(
        "parity", help="where interface.def and our headers disagree with the facts"
    )
    command.add_argument("--interface", type=Path, default=interface.SOURCE)
    command.set_defaults(run=_parity)
    command = commands.add_parser("coverage", help="write docs/coverage.md anew")
    command.set_defaults(run=_coverage)
    return parser


def main() -> int:
    arguments = _parser().parse_args()
    try:
        run: int = arguments.run(arguments)
    except (Problem, OSError) as problem:
        print(f"tools.abi: {problem}", file=sys.stderr)
        return 2
    return run


if __name__ == "__main__":
    sys.exit(main())
