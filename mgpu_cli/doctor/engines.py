"""What the engines' checks share: what is ours in an engine's configuration, and how annotations are
passed."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from oci_specs import vocabulary

RUNTIME = "mgpu-runtime"
SHIM = "containerd-shim-mgpu-v2"
SHIM_TYPE = "io.containerd.mgpu.v2"
# One key under our own prefix stands for all: what is misspelt must reach the runtime to be refused.
OWN_EXAMPLE = f"{vocabulary.OWN_PREFIX}anything"


def is_ours(program: object) -> bool:
    return isinstance(program, str) and PurePath(program).name == RUNTIME


def glob(pattern: str) -> re.Pattern[str]:
    """Go's path.Match, by which containerd compares annotations: * and ? do not cross a slash."""
    text, at = "", 0
    while at < len(pattern):
        character = pattern[at]
        end = pattern.find("]", at + 2)
        if character == "*":
            text += "[^/]*"
        elif character == "?":
            text += "[^/]"
        elif character == "[" and end > 0:
            text += pattern[at : end + 1].replace("\\", "\\\\")
            at = end
        else:
            text += re.escape(character)
        at += 1
    return re.compile(text)


def not_passed(patterns: Sequence[str]) -> list[str]:
    """The annotations of the vocabulary that none of the patterns lets through."""
    keys: Iterable[str] = [key.name for key in vocabulary.KEYS if key.source == vocabulary.ANNOTATION]
    compiled = [_compiled(each) for each in patterns]
    return sorted(
        name for name in {*keys, OWN_EXAMPLE} if not any(each and each.fullmatch(name) for each in compiled)
    )


def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return glob(pattern)
    except re.error:
        return None


def shown(names: Sequence[str]) -> str:
    """The names as far as a line holds them."""
    few = ", ".join("mgpu.dev/*" if name == OWN_EXAMPLE else name for name in names[:3])
    return few if len(names) <= 3 else f"{few} and {len(names) - 3} more"
