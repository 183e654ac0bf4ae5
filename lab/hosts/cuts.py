"""What files may be like after a cut: as before the command that ran, or as after it; none in between."""

from collections.abc import Mapping, Sequence

Tree = Mapping[str, bytes]

# Beside a file while it is written; an engine reads none of that name.
STAGED = ".mgpu-new"


def wrong(found: Tree, allowed: Sequence[Tree]) -> list[str]:
    """What is neither, in a line each. allowed: the state that the last command left, and the next one's."""
    paths = sorted({*found, *(path for tree in allowed for path in tree)})
    return [
        f"{path}: {_said(found.get(path))}, which no command left"
        for path in paths
        if not path.endswith(STAGED) and found.get(path) not in [tree.get(path) for tree in allowed]
    ]


def dangling(found: Tree, engines: Mapping[str, Sequence[str]]) -> list[str]:
    """Files of engines that name mgpu while something is missing that it takes to start a container there.

    engines: what each of them takes.
    """
    return [
        f"{path} names mgpu without {needed}"
        for path, all_needed in engines.items()
        for needed in all_needed
        if b"mgpu" in found.get(path, b"") and needed not in found
    ]


def staged(found: Tree) -> list[str]:
    """Files that were on their way."""
    return sorted(path for path in found if path.endswith(STAGED))


def _said(content: bytes | None) -> str:
    if content is None:
        return "is not there"
    if not content:
        return "is empty"
    return f"{len(content)} bytes" + (", all zero" if not content.strip(b"\0") else "")
