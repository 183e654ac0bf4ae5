"""One resource's device plugin: a socket of its own, on which kubelet asks for devices and allocates them."""

import os
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from cluster.kubelet import methods
from cluster.kubelet.methods import messages
from cluster.node.node import Node
from cluster.resources.table import Resource

# A container's ids come in one message; on the largest nodes they are more than gRPC's own limit.
_OPTIONS = (("grpc.max_receive_message_length", 64 << 20), ("grpc.so_reuseport", 0))
_AT_ONCE = 1000


def devices(number: int, healthy: bool) -> bytes:
    """A ListAndWatchResponse of so many devices, on the wire. An id says nothing: only their number
    counts.
    """
    health = methods.HEALTHY if healthy else methods.UNHEALTHY
    # Lists that follow one another on the wire are one list, and a long one takes much memory before it is
    # there.
    return b"".join(
        messages.ListAndWatchResponse(
            devices=[
                messages.Device(ID=str(each), health=health)
                for each in range(first, min(first + _AT_ONCE, number))
            ]
        ).SerializeToString()
        for first in range(0, number, _AT_ONCE)
    )


class Endpoint:
    """name: of its socket in kubelet's folder. streams: how many times kubelet follows it, 1 when all is
    well.
    """

    def __init__(self, node: Node, resource: Resource, folder: Path) -> None:
        self._node = node
        self.resource = resource
        # Short, since the path of a socket has 107 characters at most, and some kubelets' folders lie deep.
        self.name = f"mgpu-{zlib.crc32(resource.name.encode()):08x}.sock"
        self._path = folder / self.name
        self._server: grpc.aio.Server | None = None
        self._inode = 0
        self.streams = 0

    @property
    def is_there(self) -> bool:
        """Whether its socket is the one that kubelet would find: kubelet removes all of them when
        it starts.
        """
        try:
            return self._server is not None and os.stat(self._path).st_ino == self._inode
        except OSError:
            return False

    async def start(self) -> None:
        """Anew, if it serves already. OSError when the socket cannot be made."""
        await self.stop()
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            server.add_insecure_port(f"unix:{self._path}")
        except RuntimeError as error:
            raise OSError(f"no socket can be made at {self._path}") from error
        await server.start()
        self._server = server
        self._inode = os.stat(self._path).st_ino

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def _handlers(self) -> grpc.GenericRpcHandler:
        def of(request: Any) -> dict[str, Any]:
            return {"request_deserializer": request.FromString}

        def answer(reply: Any) -> dict[str, Any]:
            return {"response_serializer": reply.SerializeToString}

        return grpc.method_handlers_generic_handler(
            methods.DEVICE_PLUGIN,
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                    self._options, **of(messages.Empty), **answer(messages.DevicePluginOptions)
                ),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch, **of(messages.Empty)
                ),
                "Allocate": grpc.unary_unary_rpc_method_handler(
                    self._allocate, **of(messages.AllocateRequest), **answer(messages.AllocateResponse)
                ),
            },
        )

    async def _options(self, _request: object, _context: object) -> Any:
        return messages.DevicePluginOptions()

    async def _list_and_watch(self, _request: object, _context: object) -> AsyncIterator[bytes]:
        self.streams += 1
        try:
            seen, sent = 0, None
            while True:
                seen = await self._node.changed(seen)
                now = self.amount(), self._node.serving
                if now != sent:
                    sent = now
                    yield devices(*now)
        finally:
            self.streams -= 1

    def amount(self) -> int:
        return self.resource.amount(self._node.inventory) if self._node.inventory else 0

    async def _allocate(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Kubelet's count, for mgpud to read beside the container: no more is known of the pod here."""
        key = self.resource.annotation
        if self._node.inventory is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "mgpu: mgpud has not answered yet; try again")
        reply = messages.AllocateResponse()
        for one in request.container_requests:
            response = reply.container_responses.add()
            if key is not None:
                response.annotations[key] = str(len(set(one.devices_ids)))
        return reply
