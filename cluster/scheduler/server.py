"""The extender's HTTP server: the verbs of the protocol, health and metrics."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from cluster.api.errors import ApiProblem
from cluster.process.conditions import Conditions
from cluster.scheduler.counters import Counters
from cluster.scheduler.extender import Extender
from cluster.scheduler.state import State
from oci_specs.refusal import Refusal

# All names of a cluster of 5,000 nodes are some 100 KiB, and a pod's object at most 1.5 MiB.
_BODY_MAX_BYTES = 8 << 20

_Verb = Callable[[Mapping[str, Any]], Awaitable[Any]]


def protocol(extender: Extender, counters: Counters) -> web.Application:
    """The verbs: any caller may bind pods."""
    app = web.Application(client_max_size=_BODY_MAX_BYTES)
    verbs: dict[str, _Verb] = {
        "filter": extender.filter,
        "prioritize": extender.prioritize,
        "preempt": extender.preempt,
        "bind": extender.bind,
    }
    for name, verb in verbs.items():
        app.router.add_post(f"/{name}", _handler(name, verb, counters))
    return app


def add_health(app: web.Application, state: State, counters: Counters, conditions: Conditions) -> None:
    """/healthz, /readyz and /metrics."""

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="".join(f"{line}\n" for line in conditions.lines() or ["ok"]))

    async def readyz(request: web.Request) -> web.Response:
        if state.is_ready:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="nodes and pods are not listed yet\n")

    async def metrics(request: web.Request) -> web.Response:
        counters.ready.set(state.is_ready)
        counters.reservations.set(len(state.reservations))
        return web.Response(body=counters.text(), headers={"Content-Type": counters.content_type})

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)


def _handler(name: str, verb: _Verb, counters: Counters) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        begun = time.perf_counter()
        try:
            args = json.loads(await request.read())
            answer = await verb(args if isinstance(args, dict) else {})
            outcome = "bound"
        except (ValueError, RecursionError):
            return web.Response(status=400, text="the call is not JSON\n")
        except Refusal as refusal:
            answer, outcome = _failed(name, refusal.line()), "refused"
        except ApiProblem as problem:
            answer, outcome = _failed(name, f"mgpu: {problem}; the scheduler tries again"), "failed"
        if answer is None:
            # prioritize and preempt have no member for an error: the status says it.
            return web.Response(status=503, text="not now\n")
        if name == "bind":
            counters.bindings.labels(outcome).inc()
        counters.seconds.labels(name).observe(time.perf_counter() - begun)
        return web.Response(body=json.dumps(answer).encode(), content_type="application/json")

    return handle


def _failed(name: str, line: str) -> dict[str, Any] | None:
    return {"Error": line} if name in ("filter", "bind") else None
