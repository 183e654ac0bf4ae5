"""The names that Docker and podman have for containers, which neither tells runtimes: the labels have them.

Docker is asked. A container of podman's is a child of conmon, which was told the name.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

from native_sched.daemon.grants.grants import Grant
from native_sched.daemon.node import process_id

_LOOK_S = 1.0


async def follow(grants: Iterable[Grant], found: dict[str, str]) -> None:
    """For ever: found has the name of each container by its id, empty where no engine knows it."""
    while True:
        await asyncio.sleep(_LOOK_S)
        living = {one.container_id: one.pid for one in grants if one.pid and _is_started(one)}
        for gone in found.keys() - living.keys():
            del found[gone]
        new = {each: pid for each, pid in living.items() if each not in found}
        if new:
            # An engine that does not answer keeps nobody else waiting.
            found.update(await asyncio.to_thread(_names, new))


def _is_started(grant: Grant) -> bool:
    """Until then a runtime's process is between conmon and it. Pods have names of their own."""
    return not grant.identity.pod and process_id.program(grant.pid or 0) not in (None, grant.program)


def _names(pids: Mapping[str, int]) -> dict[str, str]:
    """By id, of those that are known, and of all where no engine is left to ask."""
    found = {each: name for each, pid in pids.items() if (name := _of_conmon(pid))}
    if len(found) == len(pids):
        return found
    # As long to load as a scrape takes, and only needed where containers have no pod.
    from http.client import HTTPException

    from oci_specs.unix_http import docker_names

    try:
        known = docker_names()
    except (FileNotFoundError, ConnectionRefusedError):
        known = {}
    except (OSError, HTTPException, ValueError, TypeError, LookupError):
        return found
    return {each: known.get(each, "") for each in pids} | found


def _of_conmon(pid: int) -> str:
    """The name in the arguments of the process that watches over podman's container."""
    with suppress(OSError, ValueError):
        with open(f"/proc/{process_id.parent(pid)}/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read().split(b"\0")]
        if os.path.basename(words[0]) == "conmon":
            return words[words.index("-n") + 1]
    return ""
