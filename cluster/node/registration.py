"""Has kubelet know every resource, however often either of them starts anew."""

import asyncio
import os

import grpc
import grpc.aio

from cluster.kubelet import methods
from cluster.kubelet.methods import messages
from cluster.node.endpoint import Endpoint
from cluster.node.node import Node
from cluster.resources import table

LOOK_S = 1.0
# kubelet calls back while it is registered with, for 10 s at most.
REGISTER_TIMEOUT_S = 15.0
# How long a plugin may go without being followed before it registers once more, and how long at most.
PATIENCE_S, PATIENCE_MAX_S = 5.0, 60.0
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)


class Registration:
    """run() keeps kubelet's list of this node's resources as mgpud's inventory is."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.folder = node.kubelet / methods.FOLDER
        self._socket = self.folder / methods.KUBELET_SOCKET
        self._endpoints: dict[str, Endpoint] = {}
        self._kubelet: tuple[int, ...] | None = None
        # For each resource when it is registered once more unless kubelet follows it, and the pause after.
        self._due: dict[str, tuple[float, float]] = {}

    async def run(self) -> None:
        """For ever; ends its endpoints with itself."""
        try:
            await self._node.changed()
            while True:
                await self._look()
                await asyncio.sleep(LOOK_S)
        finally:
            await asyncio.gather(*(each.stop() for each in self._endpoints.values()))

    async def _look(self) -> None:
        conditions, kubelet = self._node.conditions, self._seen()
        if kubelet is None:
            conditions.set("kubelet", f"kubelet is away: no socket at {self._socket}; it is waited for")
            return
        conditions.clear("kubelet", "kubelet is back")
        if kubelet != self._kubelet:
            self._kubelet = kubelet
            self._due.clear()
        await self._offer()
        for endpoint in list(self._endpoints.values()):
            try:
                await self._keep(endpoint)
            except OSError as error:
                conditions.set(
                    endpoint.name, f"{endpoint.resource.name} is not offered: {error}; trying again"
                )

    def _seen(self) -> tuple[int, ...] | None:
        """Identity of kubelet's socket: kubelet makes another at each start."""
        try:
            found = os.stat(self._socket)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_ctime_ns

    async def _offer(self) -> None:
        """One endpoint for each resource that the node's settings have kubelet count."""
        assert self._node.inventory is not None  # run() waited for it
        wanted = {
            each.name: each
            for each in table.offered(self._node.inventory, opt_in=self._node.opt_in)
            if each.by == "kubelet"
        }
        for name in self._endpoints.keys() - wanted.keys():
            await self._endpoints.pop(name).stop()
        for name in wanted.keys() - self._endpoints.keys():
            self._endpoints[name] = Endpoint(self._node, wanted[name], self.folder)

    async def _keep(self, endpoint: Endpoint) -> None:
        name, now = endpoint.resource.name, asyncio.get_running_loop().time()
        if not endpoint.is_there:
            await endpoint.start()
            self._due.pop(name, None)
        at, pause_s = self._due.get(name, (now, PATIENCE_S))
        if endpoint.streams:
            self._due[name] = now + PATIENCE_S, PATIENCE_S
            self._node.conditions.clear(endpoint.name, f"{name} is offered")
        elif now >= at:
            self._due[name] = now + pause_s, min(2 * pause_s, PATIENCE_MAX_S)
            await self._register(endpoint)

    async def _register(self, endpoint: Endpoint) -> None:
        """OSError in kubelet's words when it refuses or does not answer."""
        request = messages.RegisterRequest(
            version=methods.VERSION,
            endpoint=endpoint.name,
            resource_name=endpoint.resource.name,
            options=messages.DevicePluginOptions(),
        )
        async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=_OPTIONS) as channel:
            call = channel.unary_unary(
                methods.REGISTER,
                request_serializer=messages.RegisterRequest.SerializeToString,
                response_deserializer=messages.Empty.FromString,
            )
            try:
                await call(request, timeout=REGISTER_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                why = " ".join((error.details() or error.code().name).split())
                raise OSError(f"kubelet does not register it ({why})") from error
