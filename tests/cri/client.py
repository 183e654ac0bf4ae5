"""A client of the container runtime interface, by runtime.proto as it stands beside this file."""

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

# The tests fork and exec all the time, and never call from a forked process: gRPC's own care for that is in
# the way.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PROTO = Path(__file__).with_name("runtime.proto")
TIMEOUT_S = 60.0
# A server that is restarted is back within a second, and gRPC's own first wait is as long.
_OPTIONS = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500))

CallError = grpc.RpcError


class Client:
    """Calls by name: `client.call("StopContainer", container_id=…, timeout=0)`. Use it as a context."""

    def __init__(self, address: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix://{address}", options=_OPTIONS)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, method: str, *, timeout_s: float = TIMEOUT_S, **members: Any) -> Any:
        """The reply of a method; members are those of its request, nested messages as dicts. CallError.

        A server that is away is waited for, one that goes away in the middle of the call is not.
        """
        found = _methods()[method]
        remote = self._channel.unary_unary(
            f"/{found.containing_service.full_name}/{method}",
            request_serializer=GetMessageClass(found.input_type).SerializeToString,
            response_deserializer=GetMessageClass(found.output_type).FromString,
        )
        request = GetMessageClass(found.input_type)(**members)
        return remote(request, timeout=timeout_s, wait_for_ready=True)


def code(error: Exception) -> str:
    """The name of a failed call's status, such as "UNAVAILABLE"; "" for another error."""
    return str(error.code().name) if isinstance(error, grpc.Call) else ""


def compile_proto() -> bytes:
    """runtime.proto as protoc describes it: a serialized FileDescriptorSet."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "runtime.binpb")
        status = protoc.main(
            ["protoc", f"--proto_path={PROTO.parent}", f"--descriptor_set_out={made}", PROTO.name]
        )
        assert status == 0, f"protoc does not take {PROTO}"
        return made.read_bytes()


@functools.cache
def _methods() -> dict[str, MethodDescriptor]:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(compile_proto()).file:
        pool.Add(file)
    services = pool.FindFileByName(PROTO.name).services_by_name.values()
    return {method.name: method for service in services for method in service.methods}
