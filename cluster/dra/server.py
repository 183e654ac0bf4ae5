"""The sockets on which kubelet finds the driver (pluginregistration v1) and asks it (DRA v1 and v1beta1)."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from cluster.dra import DRIVER
from cluster.dra.devices import name as device_name
from cluster.dra.host import Node
from cluster.dra.prepared import PreparedClaims
from cluster.kubelet.generated import dra_health_pb2, dra_pb2, pluginregistration_pb2
from oci_specs.refusal import Refusal

# As kubelet knows the services (DRAPluginService of k8s.io/kubelet/pkg/apis/dra/v1), the newest first.
VERSIONS = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}
REGISTRATION = "pluginregistration.Registration"
HEALTH = "v1alpha1.DRAResourceHealth"
TYPE = "DRAPlugin"
# kubelet takes health that is older than its time-out, 30 s unless told, for unknown.
HEALTH_S, HEALTH_TIMEOUT_S = 10.0, 30
_LOOK_S = 1.0
_OPTIONS = (("grpc.so_reuseport", 0),)


class Sockets:
    """Below kubelet's root directory: the driver's own socket, and the one by which kubelet finds it."""

    def __init__(self, node: Node, claims: PreparedClaims) -> None:
        self._node = node
        self._claims = claims
        self._own = _Socket(node.kubelet / "plugins" / DRIVER / "dra.sock", self._services())
        registration = _service(
            REGISTRATION,
            {
                "GetInfo": (self._info, pluginregistration_pb2.InfoRequest),
                "NotifyRegistrationStatus": (self._registered, pluginregistration_pb2.RegistrationStatus),
            },
        )
        self._found_by = _Socket(node.kubelet / "plugins_registry" / f"{DRIVER}-reg.sock", [registration])

    async def run(self) -> None:
        """For ever, once mgpud has answered; a socket that somebody removes is made anew."""
        await self._node.changed()
        try:
            while True:
                try:
                    await self._own.ensure()
                    # kubelet asks as soon as it sees this one.
                    await self._found_by.ensure()
                    self._node.conditions.clear("dra", "kubelet can find the DRA driver")
                except OSError as error:
                    self._node.conditions.set(
                        "dra", f"kubelet cannot find the DRA driver: {error}; trying again"
                    )
                await asyncio.sleep(_LOOK_S)
        finally:
            await self._found_by.stop()
            await self._own.stop()

    def _services(self) -> list[grpc.GenericRpcHandler]:
        calls = {
            "NodePrepareResources": (self._prepare, dra_pb2.NodePrepareResourcesRequest),
            "NodeUnprepareResources": (self._unprepare, dra_pb2.NodeUnprepareResourcesRequest),
        }
        health = grpc.method_handlers_generic_handler(
            HEALTH,
            {
                "NodeWatchResources": grpc.unary_stream_rpc_method_handler(
                    self._health,
                    request_deserializer=dra_health_pb2.NodeWatchResourcesRequest.FromString,
                    response_serializer=dra_health_pb2.NodeWatchResourcesResponse.SerializeToString,
                )
            },
        )
        return [*(_service(service, calls) for service in VERSIONS.values()), health]

    async def _info(self, _request: object, _context: object) -> Any:
        return pluginregistration_pb2.PluginInfo(
            type=TYPE, name=DRIVER, endpoint=str(self._own.path), supported_versions=list(VERSIONS)
        )

    async def _registered(self, request: Any, _context: object) -> Any:
        if request.plugin_registered:
            self._node.conditions.clear("dra-registered", "kubelet has registered the DRA driver")
        else:
            self._node.conditions.set("dra-registered", f"kubelet refuses the DRA driver: {request.error}")
        return pluginregistration_pb2.RegistrationStatusResponse()

    async def _prepare(self, request: Any, _context: object) -> Any:
        """Each claim by itself: kubelet shows the line of one that is refused in an event of its pod."""
        reply = dra_pb2.NodePrepareResourcesResponse()
        for asked in request.claims:
            # An entry without an error and devices stands for itself.
            answer = reply.claims[asked.uid]
            try:
                for allocated, cdi in await self._claims.prepare(asked.namespace, asked.name, asked.uid):
                    device = answer.devices.add(
                        request_names=[allocated.request],
                        pool_name=allocated.pool,
                        device_name=allocated.device,
                        cdi_device_ids=[cdi],
                    )
                    if allocated.share_id:
                        device.share_id = allocated.share_id
            except Refusal as refusal:
                answer.error = refusal.line()
        return reply

    async def _unprepare(self, request: Any, _context: object) -> Any:
        reply = dra_pb2.NodeUnprepareResourcesResponse()
        for asked in request.claims:
            answer = reply.claims[asked.uid]
            try:
                await self._claims.unprepare(asked.uid)
            except Refusal as refusal:
                answer.error = refusal.line()
        return reply

    async def _health(self, _request: object, _context: object) -> AsyncIterator[Any]:
        seen = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEALTH_S if seen else None):
                    seen = await self._node.changed(seen)
            yield self._healths()

    def _healths(self) -> Any:
        reply = dra_health_pb2.NodeWatchResourcesResponse()
        for card in self._node.inventory.cards if self._node.inventory else ():
            one = reply.devices.add(
                health=dra_health_pb2.HEALTHY if card.healthy else dra_health_pb2.UNHEALTHY,
                last_updated_time=int(time.time()),
                health_check_timeout_seconds=HEALTH_TIMEOUT_S,
                message="" if card.healthy else "it has fallen off the bus",
            )
            one.device.pool_name = self._node.name
            one.device.device_name = device_name(card.uuid)
        return reply


class _Socket:
    def __init__(self, path: Path, services: Sequence[grpc.GenericRpcHandler]) -> None:
        self.path = path
        self._services = services
        self._server: grpc.aio.Server | None = None
        self._inode = 0

    async def ensure(self) -> None:
        """Serves there, anew if the socket is not the one that it was. OSError."""
        with suppress(FileNotFoundError):
            if self._server is not None and os.stat(self.path).st_ino == self._inode:
                return
        await self.stop()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers(self._services)
        try:
            server.add_insecure_port(f"unix:{self.path}")
        except RuntimeError as error:
            raise OSError(f"no socket can be made at {self.path}") from error
        await server.start()
        self._server, self._inode = server, os.stat(self.path).st_ino

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None


def _service(service: str, calls: dict[str, tuple[Any, Any]]) -> grpc.GenericRpcHandler:
    """Unary calls: for each what answers it, and what it is asked."""
    return grpc.method_handlers_generic_handler(
        service,
        {
            call: grpc.unary_unary_rpc_method_handler(
                answer,
                request_deserializer=request.FromString,
                response_serializer=lambda reply: reply.SerializeToString(),
            )
            for call, (answer, request) in calls.items()
        },
    )
