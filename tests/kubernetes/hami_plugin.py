"""Plays HAMi's device plugin on a node, in mgpu's image: some nvidia.com/gpu, and nothing behind them."""

import os
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from cluster.kubelet import methods
from cluster.kubelet.methods import messages

FOLDER = Path("/var/lib/kubelet/device-plugins")
SOCKET = "played-hami.sock"
GPUS = 20


def options(_request: object, _context: object) -> messages.DevicePluginOptions:
    return messages.DevicePluginOptions()


def follow(_request: object, context: Any) -> Iterator[messages.ListAndWatchResponse]:
    devices = [messages.Device(ID=f"vgpu-{number}", health=methods.HEALTHY) for number in range(GPUS)]
    yield messages.ListAndWatchResponse(devices=devices)
    while context.is_active():
        time.sleep(1)


def allocate(request: messages.AllocateRequest, _context: object) -> messages.AllocateResponse:
    each = [messages.ContainerAllocateResponse() for _ in request.container_requests]
    return messages.AllocateResponse(container_responses=each)


def main() -> None:
    path = FOLDER / SOCKET
    path.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(4))
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "GetDevicePluginOptions": unary(
            options, messages.Empty.FromString, messages.DevicePluginOptions.SerializeToString
        ),
        "ListAndWatch": stream(
            follow, messages.Empty.FromString, messages.ListAndWatchResponse.SerializeToString
        ),
        "Allocate": unary(
            allocate, messages.AllocateRequest.FromString, messages.AllocateResponse.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(methods.DEVICE_PLUGIN, handlers),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    with grpc.insecure_channel(f"unix:{FOLDER / methods.KUBELET_SOCKET}") as channel:
        register = channel.unary_unary(
            methods.REGISTER,
            request_serializer=messages.RegisterRequest.SerializeToString,
            response_deserializer=messages.Empty.FromString,
        )
        register(
            messages.RegisterRequest(
                version=methods.VERSION, endpoint=SOCKET, resource_name=os.environ["RESOURCE"]
            ),
            timeout=10,
        )
    server.wait_for_termination()


if __name__ == "__main__":
    main()
