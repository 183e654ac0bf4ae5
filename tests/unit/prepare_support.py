"""What mgpud says to a launcher that asks it to prepare a container."""

import json
import os
from typing import Any

from native_sched.daemon.control.prepare import Prepare
from native_sched.daemon.control.server import Dialogue, Peer
from oci_specs import schemas
from tests.unit.arbiter_support import World
from tests.unit.spec_support import load

ASKING = {"mgpu.dev/memory-mib": "512"}


def talk(
    world: World,
    text: bytes,
    *answers: bytes,
    words: tuple[str, ...] = ("create", "--bundle", "/b", "c1"),
    exiting: bool = False,
    **told: Any,
) -> list[Any]:
    """What mgpud says in the end; its packets are as the schema has them."""
    verbs = world.arbiter.verbs()
    made = Prepare(
        verbs["admit"],
        verbs["release"],
        lambda message: schemas.validate("control", message),
        "/s",
        lambda: exiting,
    )
    message = {
        "version": 1,
        "verb": "prepare",
        "words": list(words),
        "folder": "/",
        "config": "/b/config.json",
        "hook": "/h",
        **told,
    }
    schemas.validate("control", message)
    dialogue: Dialogue = made.converse(message, Peer(os.getpid(), 0))
    assert next(dialogue) == []
    packets: list[bytes] = []
    try:
        for answer in (text, *answers):
            packets = dialogue.send(answer)
        dialogue.close()
    except StopIteration as end:
        packets = end.value
    reply = json.loads(packets[0])
    schemas.validate("prepare#reply", reply)
    if reply["action"] == "write":
        assert len(packets[1]) == reply["bytes"]
    return [reply, *map(json.loads, packets[1:])]


def as_text(**members: Any) -> bytes:
    return json.dumps({**load("runc-1.1-spec"), **members}).encode()
