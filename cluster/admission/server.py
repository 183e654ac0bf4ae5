"""The webhook's server: AdmissionReviews over HTTPS, and how it is with it for kubelet's probes."""

import asyncio
import os
import ssl
import sys
from collections.abc import Callable

from aiohttp import web

from cluster.admission import review
from cluster.admission.certificates import Pair
from cluster.admission.names import Settings
from cluster.admission.trust import Trust
from cluster.api.errors import ApiProblem
from oci_specs.refusal import Refusal

# An API server takes requests of 3 MiB, and a review of an update has the object twice.
REVIEW_MAX_BYTES = 7 * 1024 * 1024
ROUND_S = 60
# After an API server that was away.
AGAIN_S = 5


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def load(context: ssl.SSLContext, pair: Pair) -> None:
    """Into use for every connection from now on. Nothing of a key comes to a disk."""
    file = os.memfd_create("mgpu-admission")
    try:
        os.write(file, pair.key + pair.certificate)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


def application(settings: Settings, is_ready: Callable[[], bool]) -> web.Application:
    made = web.Application(client_max_size=REVIEW_MAX_BYTES)

    async def mutate(request: web.Request) -> web.Response:
        return await _answer(request, settings, review.mutate)

    async def validate(request: web.Request) -> web.Response:
        return await _answer(request, settings, review.validate)

    async def readyz(_: web.Request) -> web.Response:
        if is_ready():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the API server does not know this webhook's authority yet\n")

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    made.router.add_post("/mutate", mutate)
    made.router.add_post("/validate", validate)
    made.router.add_get("/readyz", readyz)
    made.router.add_get("/livez", livez)
    return made


async def _answer(
    request: web.Request, settings: Settings, form: Callable[[bytes, Settings], review.Object]
) -> web.Response:
    try:
        return web.json_response(form(await request.read(), settings))
    except Refusal as refusal:
        say(refusal.line())
        return web.Response(status=400, text=refusal.line() + "\n")
    except web.HTTPRequestEntityTooLarge:
        line = Refusal(
            "large-review",
            f"this admission review has more than {REVIEW_MAX_BYTES} bytes",
            "no API server sends so many",
        ).line()
        say(line)
        return web.Response(status=413, text=line + "\n")


async def keep(trust: Trust, round_s: float = ROUND_S, again_s: float = AGAIN_S) -> None:
    """Trust, for ever: one line for each thing that is in the way, once."""
    said = ""
    while True:
        try:
            await trust.keep()
            line = ""
        except (ApiProblem, Refusal) as problem:
            line = str(problem)
        if line and line != said:
            say(line)
        said = line
        await asyncio.sleep(again_s if line else round_s)


async def serve(settings: Settings, trust: Trust, context: ssl.SSLContext, host: str, port: int) -> None:
    """Until cancelled. OSError: the port is taken.

    The port opens with the first certificate, so that no probe meets a server without one.
    """
    keeping = asyncio.create_task(keep(trust))
    runner = web.AppRunner(application(settings, lambda: trust.is_ready), access_log=None)
    try:
        while not trust.is_ready:
            await asyncio.wait([keeping], timeout=0.1)
            if keeping.done():
                await keeping
        await runner.setup()
        await web.TCPSite(runner, host, port, ssl_context=context, shutdown_timeout=5).start()
        await keeping
    finally:
        keeping.cancel()
        await runner.cleanup()
