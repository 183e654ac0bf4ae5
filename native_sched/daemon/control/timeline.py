"""What the scheduler did, as the reply to `timeline`."""

import time
from typing import Any

from native_sched.daemon.engine import Engine
from native_sched.daemon.engine_abi import ALL_CARDS, EventKind, Why
from native_sched.daemon.grants.grants import grant_id


def since(engine: Engine, number: int) -> dict[str, Any]:
    """The events from `number` on, oldest first; at most engine.MAX_EVENTS of them, so that they fit one
    packet.

    An event is [at_ns, since_ns, grant, kind, card or null for all of the container's, why]; arrays, because
    there are thousands.
    """
    events, after, lost = engine.events(number)
    return {
        "next": after,
        "lost": lost,
        "now_ns": time.monotonic_ns(),
        "events": [
            [
                event.at_ns,
                event.since_ns,
                grant_id(event.tenant),
                EventKind(event.kind).name.lower(),
                None if event.card == ALL_CARDS else event.card,
                Why(event.why).name.lower(),
            ]
            for event in events
        ],
    }
