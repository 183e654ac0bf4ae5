"""A kubelet as far as device plugins see it, made from its published protocol (v1beta1) and its manager's
ways:

it removes all sockets of its folder when it starts; it calls back on the registered socket, asks for options,
and follows one list at a time; messages are 4 MiB at most; a list that ends makes all of a resource
unhealthy; it picks ids in no order, and keeps what a container was given.
"""

import asyncio
import os
import random
import socket
import stat
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from cluster.kubelet import methods
from cluster.kubelet.methods import messages

CONNECT_S = 10.0


class FakeKubelet:
    """root: its state directory. registered: names of resources, in the order in which they came."""

    def __init__(self, root: Path) -> None:
        self.folder = root / methods.FOLDER
        self.registrations: list[str] = []
        self.refuses: set[str] = set()
        self.lists: dict[str, int] = {}
        self._devices: dict[str, dict[str, str]] = {}
        self._given: dict[tuple[str, str], set[str]] = {}
        self._plugins: dict[str, tuple[grpc.aio.Channel, asyncio.Task[None]]] = {}
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            if stat.S_ISSOCK(path.stat().st_mode):
                path.unlink()
        self._server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=messages.RegisterRequest.FromString,
            response_serializer=messages.Empty.SerializeToString,
        )
        service, _, method = methods.REGISTER.lstrip("/").partition("/")
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        self._server.add_insecure_port(f"unix:{self.folder / methods.KUBELET_SOCKET}")
        await self._server.start()

    async def stop(self) -> None:
        """As SIGKILL does: its socket stays behind."""
        for channel, following in list(self._plugins.values()):
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await channel.close()
        self._plugins.clear()
        self._devices.clear()
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
            left = socket.socket(socket.AF_UNIX)
            with left:
                left.bind(os.fspath(self.folder / methods.KUBELET_SOCKET))

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def hang_up(self, resource: str) -> None:
        """Its connection to one plugin breaks."""
        self._plugins[resource][1].cancel()

    async def _register(self, request: Any, context: Any) -> Any:
        name = request.resource_name
        self.registrations.append(name)
        if request.version != methods.VERSION or name in self.refuses:
            await context.abort(grpc.StatusCode.UNKNOWN, f"does not want {name}")
        path = self.folder / request.endpoint
        channel = grpc.aio.insecure_channel(
            f"unix:{path}", options=[("grpc.default_authority", "localhost")]
        )
        options = channel.unary_unary(
            f"/{methods.DEVICE_PLUGIN}/GetDevicePluginOptions",
            request_serializer=messages.Empty.SerializeToString,
            response_deserializer=messages.DevicePluginOptions.FromString,
        )
        given = await options(messages.Empty(), timeout=CONNECT_S, wait_for_ready=True)
        assert not given.pre_start_required
        assert not given.get_preferred_allocation_available
        old = self._plugins.pop(name, None)
        if old is not None:
            old[1].cancel()
        self._plugins[name] = channel, asyncio.create_task(self._follow(name, channel))
        return messages.Empty()

    async def _follow(self, name: str, channel: grpc.aio.Channel) -> None:
        call = channel.unary_stream(
            f"/{methods.DEVICE_PLUGIN}/ListAndWatch",
            request_serializer=messages.Empty.SerializeToString,
            response_deserializer=messages.ListAndWatchResponse.FromString,
        )(messages.Empty())
        try:
            async for response in call:
                self._devices[name] = {device.ID: device.health for device in response.devices}
                assert all(0 < len(device.ID) <= 63 for device in response.devices)
                self.lists[name] = self.lists.get(name, 0) + 1
        except grpc.aio.AioRpcError:
            pass
        finally:
            self._devices[name] = dict.fromkeys(self._devices.get(name, {}), methods.UNHEALTHY)

    def capacity(self, resource: str) -> int | None:
        """None: the resource is not known."""
        return None if resource not in self._devices else len(self._devices[resource])

    def allocatable(self, resource: str) -> int | None:
        if resource not in self._devices:
            return None
        return sum(health == methods.HEALTHY for health in self._devices[resource].values())

    async def allocate(self, container: str, **limits: int) -> dict[str, str]:
        """The annotations of a container with these limits, whose names have a "__" for "/"; LookupError
        where there is too little, which fails the pod.
        """
        annotations: dict[str, str] = {}
        for name, number in limits.items():
            resource = name.replace("__", "/")
            healthy = {each for each, health in self._devices[resource].items() if health == methods.HEALTHY}
            taken = {one for (_, of), ids in self._given.items() if of == resource for one in ids}
            free = sorted(healthy - taken)
            if len(free) < number:
                raise LookupError(f"Insufficient {resource}: {len(free)} of {number}")
            chosen = random.sample(free, number)
            call = self._plugins[resource][0].unary_unary(
                f"/{methods.DEVICE_PLUGIN}/Allocate",
                request_serializer=messages.AllocateRequest.SerializeToString,
                response_deserializer=messages.AllocateResponse.FromString,
            )
            request = messages.AllocateRequest(
                container_requests=[messages.ContainerAllocateRequest(devices_ids=chosen)]
            )
            reply = await call(request, timeout=CONNECT_S)
            [answer] = reply.container_responses
            self._given[container, resource] = set(chosen)
            annotations |= answer.annotations
        return annotations

    def free(self, container: str) -> None:
        """The container is gone."""
        for key in [key for key in self._given if key[0] == container]:
            del self._given[key]
