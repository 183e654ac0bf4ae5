"""mgpud's metrics on the pod's network, for a Prometheus in the cluster: mgpud serves its node alone."""

import asyncio
import ssl
import time
from pathlib import Path

from cluster.node.one_answer import Answer, serve

# Every pod of the cluster may ask, so frequent scrapes must not cost mgpud more.
_AGE_S = 1.0
_TIMEOUT_S = 5.0
_REQUEST = b"GET /metrics HTTP/1.1\r\nHost: mgpud\r\n\r\n"
_AWAY = Answer(status="503 Service Unavailable", body=b"mgpud does not answer\n")


class Metrics:
    """socket: mgpud's own, of which an answer is kept for a moment."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._lock = asyncio.Lock()
        self._kept: tuple[float, Answer] = (-_AGE_S, _AWAY)

    async def answer(self) -> Answer:
        async with self._lock:
            if time.monotonic() - self._kept[0] >= _AGE_S:
                self._kept = (time.monotonic(), await self._asked())
            return self._kept[1]

    async def _asked(self) -> Answer:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(self._socket)
                try:
                    writer.write(_REQUEST)
                    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return _AWAY
        return Answer(body=body) if head.startswith(b"HTTP/1.1 200 ") else _AWAY


async def run(address: str, socket: Path, tls: Path | None) -> None:
    """For ever: at HOST:PORT, encrypted with the tls.crt and tls.key of the folder `tls`. OSError when the
    address is taken, or these cannot be read.
    """
    context = None
    if tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tls / "tls.crt", tls / "tls.key")
    await serve(address, Metrics(socket).answer, context)
