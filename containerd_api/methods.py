"""containerd's calls as data: the path on the wire, and what is sent and answered.

The generated service stubs are not used: they carry no types and refuse to load under another grpcio than the
one that they were generated with.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from containerd_api.generated import (
    containers_pb2,
    events_pb2,
    introspection_pb2,
    namespaces_pb2,
    tasks_pb2,
    version_pb2,
)

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True)
class Method(Generic[Request, Reply]):
    """One call; path is /PACKAGE.SERVICE/METHOD."""

    path: str
    request: type[Request]
    reply: type[Reply]


VERSION = Method("/containerd.services.version.v1.Version/Version", Empty, version_pb2.VersionResponse)
NAMESPACES = Method(
    "/containerd.services.namespaces.v1.Namespaces/List",
    namespaces_pb2.ListNamespacesRequest,
    namespaces_pb2.ListNamespacesResponse,
)
CONTAINER = Method(
    "/containerd.services.containers.v1.Containers/Get",
    containers_pb2.GetContainerRequest,
    containers_pb2.GetContainerResponse,
)
TASK = Method("/containerd.services.tasks.v1.Tasks/Get", tasks_pb2.GetRequest, tasks_pb2.GetResponse)
TASKS = Method(
    "/containerd.services.tasks.v1.Tasks/List", tasks_pb2.ListTasksRequest, tasks_pb2.ListTasksResponse
)
PLUGINS = Method(
    "/containerd.services.introspection.v1.Introspection/Plugins",
    introspection_pb2.PluginsRequest,
    introspection_pb2.PluginsResponse,
)
EVENTS = Method(
    "/containerd.services.events.v1.Events/Subscribe", events_pb2.SubscribeRequest, events_pb2.Envelope
)
