"""Whether a runtime can make what is mounted into a container in a user namespace, as its root."""

from __future__ import annotations

import os
import stat

from oci_specs.members import member_number, member_object, member_objects, member_string
from oci_specs.reach import has_user_namespace, normal_path
from oci_specs.refusal import Refusal, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# path_resolution(7).
LINKS_MAX = 40


def check(spec: Mapping[str, Any], mounts: list[dict[str, Any]], bundle: str) -> None:
    """mounts: those of the grant. Refusal for one whose target is not there and cannot be made."""
    linux = member_object(spec, "linux")
    maps = [member_objects(linux, name) for name in ("uidMappings", "gidMappings")]
    # A namespace without mappings in the spec is another's, whose mappings are not known here.
    if not has_user_namespace(linux) or not all(maps):
        return
    root = os.path.join(bundle, member_string(member_object(spec, "root"), "path"))
    targets = [normal_path(mount["destination"]) for mount in mounts]
    above = {normal_path(member_string(mount, "destination")) for mount in member_objects(spec, "mounts")}
    for target in targets:
        folders = [target[:at] for at, letter in enumerate(target) if letter == "/" and at]
        # What lies below another mount is not the root's.
        if above.intersection(folders):
            continue
        there = _deepest(root, target)
        if there is not None and not _may_make(there, *maps):
            raise Refusal(
                "mount-target",
                f"{quoted(target)} is not in {quoted(root)}, and the container's root user, "
                f"{_on_host(0, maps[0])} on the host, may not make it there",
                "make an empty file of that name in the image, or give the folder to that user",
            )


def _on_host(number: int, maps: list[dict[str, Any]]) -> int | None:
    for each in maps:
        first = member_number(each, "containerID") or 0
        if first <= number < first + (member_number(each, "size") or 0):
            return (member_number(each, "hostID") or 0) + number - first
    return None


def _is_mapped(number: int, maps: list[dict[str, Any]]) -> bool:
    return any(
        0 <= number - (member_number(each, "hostID") or 0) < (member_number(each, "size") or 0)
        for each in maps
    )


def _may_make(folder: os.stat_result, uids: list[dict[str, Any]], gids: list[dict[str, Any]]) -> bool:
    """user_namespaces(7): capabilities count for an inode both of whose ids are mapped."""
    if not stat.S_ISDIR(folder.st_mode):
        return True  # the runtime's own error says more
    if _is_mapped(folder.st_uid, uids) and _is_mapped(folder.st_gid, gids):
        return True
    shift = 6 if folder.st_uid == _on_host(0, uids) else 3 if folder.st_gid == _on_host(0, gids) else 0
    return folder.st_mode >> shift & 3 == 3


def _deepest(root: str, target: str) -> os.stat_result | None:
    """The last folder that is there on the way to it, links followed in the root; None: all of it is."""
    left, at, links = target.split("/")[::-1], root, 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at) if at != root else at
            continue
        path = os.path.join(at, name)
        try:
            if stat.S_ISLNK(os.lstat(path).st_mode):
                links += 1
                if links > LINKS_MAX:
                    return None
                to = os.readlink(path)
                at = root if to.startswith("/") else at
                left += to.split("/")[::-1]
                continue
        except FileNotFoundError:
            return os.stat(at) if os.path.isdir(at) else None
        except OSError:
            return None  # the runtime's own error says more
        at = path
    return None
