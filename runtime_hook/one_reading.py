"""The JSON of a spec, as every runtime reads it. What some read otherwise is refused.

Of members of one name Python and runc take the last, runc joining objects, and crun the first. runc takes a
member's name in any case (encoding/json). A string ends at a NUL for crun and for libseccomp.
"""

from __future__ import annotations

from oci_specs.refusal import Refusal, quoted
from runtime_hook import quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# The members of a spec that mgpu reads or writes. Names of maps, such as annotations, runc takes as they are.
MEMBERS = frozenset(
    (
        *("access", "action", "allow", "ambient", "annotations", "architectures", "args", "bounding"),
        *("capabilities", "cgroupsPath", "effective", "inheritable", "permitted"),
        *("createContainer", "createRuntime", "defaultAction", "defaultErrnoRet", "destination", "devices"),
        *("env", "errnoRet", "flags", "hooks", "index", "linux", "listenerMetadata", "listenerPath"),
        *("major", "minor", "mounts", "names", "namespaces", "op", "options", "path", "poststart"),
        *("poststop", "prestart", "process", "resources", "root", "seccomp", "source", "startContainer"),
        *("syscalls", "timeout", "type", "value", "valueTwo"),
    )
)
_FOLDED = frozenset(name.casefold() for name in MEMBERS)
HINT = "give each member once and by its own name, as engines do"


def loads(text: str) -> Any:
    """The value that text spells. ValueError or RecursionError if it is not JSON; Refusal."""
    odd: list[tuple[dict[str, Any], str]] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise _refused("names a member twice")
        for name in found:
            if name not in MEMBERS and name.casefold() in _FOLDED:
                odd.append((found, name))
        return found

    value = quick_json.loads(text, members)
    annotations = value.get("annotations") if isinstance(value, dict) else None
    for holder, name in odd:
        if holder is not annotations:
            raise _refused(f"has a member {quoted(name)}, which only some runtimes take for its like")
    if "\\u0000" in text and any("\0" in string for string in _strings(value)):
        raise _refused("has a string with a NUL, where only some runtimes take it to end")
    return value


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _refused(what: str) -> Refusal:
    return Refusal("bad-spec", f"the container's spec {what}", HINT)
