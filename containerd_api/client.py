"""One containerd, asked over its socket. Times are bounded; failures are ContainerdError in one line."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType

import grpc
import grpc.aio

from containerd_api import methods
from containerd_api.generated import process_pb2, task_events_pb2
from containerd_api.methods import Method, Reply, Request

TIMEOUT_S = 2.0
MESSAGE_MAX_BYTES = 4 << 20
_OPTIONS: Sequence[tuple[str, str | int]] = (
    # Its name is a path, which Go's HTTP/2 takes for no host.
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MESSAGE_MAX_BYTES),
    # The watcher reconnects by itself, at its own pace.
    ("grpc.enable_retries", 0),
)
_TaskEvent = (
    task_events_pb2.TaskStart
    | task_events_pb2.TaskExit
    | task_events_pb2.TaskOOM
    | task_events_pb2.TaskPaused
    | task_events_pb2.TaskResumed
)
_EVENTS: dict[str, type[_TaskEvent]] = {
    "start": task_events_pb2.TaskStart,
    "exit": task_events_pb2.TaskExit,
    "oom": task_events_pb2.TaskOOM,
    "paused": task_events_pb2.TaskPaused,
    "resumed": task_events_pb2.TaskResumed,
}


class ContainerdError(Exception):
    """It does not answer, or answers that it does not want to."""


@dataclass(frozen=True)
class Container:
    id: str
    namespace: str
    labels: dict[str, str]
    image: str
    runtime: str


@dataclass(frozen=True)
class Task:
    """status: "created", "running", "stopped", "paused", "pausing" or "unknown"; pid: containerd's."""

    container_id: str
    pid: int
    status: str
    exit_status: int


@dataclass(frozen=True)
class Plugin:
    """error: why it does not work; empty if it does."""

    type: str
    id: str
    error: str
    exports: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """kind: "start", "exit", "oom", "paused" or "resumed"; exit_status: of an exit; exec_id: of an exec."""

    namespace: str
    kind: str
    container_id: str
    exit_status: int = 0
    exec_id: str = ""


class Containerd:
    """A connection to the containerd at a socket's path; an asynchronous context manager.

    async with Containerd("/run/containerd/containerd.sock") as containerd:
        print(await containerd.version())
    """

    def __init__(self, address: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._address = address
        self._timeout_s = timeout_s

    async def __aenter__(self) -> "Containerd":
        self._channel = grpc.aio.insecure_channel(f"unix:{self._address}", options=_OPTIONS)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def version(self) -> str:
        return (await self._call(methods.VERSION, methods.VERSION.request())).version

    async def namespaces(self) -> list[str]:
        reply = await self._call(methods.NAMESPACES, methods.NAMESPACES.request())
        return sorted(each.name for each in reply.namespaces)

    async def container(self, namespace: str, container_id: str) -> Container | None:
        """None: there is none of that name."""
        try:
            reply = await self._call(
                methods.CONTAINER, methods.CONTAINER.request(id=container_id), namespace=namespace
            )
        except _NotFoundError:
            return None
        found = reply.container
        return Container(found.id, namespace, dict(found.labels), found.image, found.runtime.name)

    async def task(self, namespace: str, container_id: str) -> Task | None:
        """None: nothing of it runs, or has run and waits to be deleted."""
        try:
            reply = await self._call(
                methods.TASK, methods.TASK.request(container_id=container_id), namespace=namespace
            )
        except _NotFoundError:
            return None
        return _task(reply.process, container_id)

    async def tasks(self, namespace: str) -> list[Task]:
        reply = await self._call(methods.TASKS, methods.TASKS.request(), namespace=namespace)
        return [_task(each, each.id) for each in reply.tasks]

    async def plugins(self) -> list[Plugin]:
        reply = await self._call(methods.PLUGINS, methods.PLUGINS.request())
        return [
            Plugin(each.type, each.id, each.init_err.message, dict(each.exports)) for each in reply.plugins
        ]

    async def events(self) -> AsyncIterator[Event]:
        """What happens to the tasks of all namespaces from now on, for as long as the connection lasts."""
        call = self._channel.unary_stream(
            methods.EVENTS.path,
            request_serializer=methods.EVENTS.request.SerializeToString,
            response_deserializer=methods.EVENTS.reply.FromString,
        )(methods.EVENTS.request(filters=[f'topic=="/tasks/{kind}"' for kind in _EVENTS]))
        try:
            async for envelope in call:
                kind = envelope.topic.rpartition("/")[2]
                if kind in _EVENTS:
                    yield _event(envelope.namespace, kind, envelope.event.value)
        except grpc.aio.AioRpcError as error:
            raise ContainerdError(_line(error)) from error
        finally:
            call.cancel()

    async def _call(
        self, method: Method[Request, Reply], request: Request, *, namespace: str | None = None
    ) -> Reply:
        call = self._channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.reply.FromString,
        )
        metadata = (("containerd-namespace", namespace),) if namespace else ()
        try:
            reply: Reply = await call(request, timeout=self._timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            failed = _NotFoundError if error.code() is grpc.StatusCode.NOT_FOUND else ContainerdError
            raise failed(_line(error)) from error
        return reply


class _NotFoundError(ContainerdError):
    pass


def _line(error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "it does not answer in time"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return "there is no answer"
    return " ".join((error.details() or error.code().name).split())


def _task(process: process_pb2.Process, container_id: str) -> Task:
    known = process_pb2.Status.keys()
    status = known[process.status] if 0 <= process.status < len(known) else "UNKNOWN"
    return Task(container_id, process.pid, status.lower(), process.exit_status)


def _event(namespace: str, kind: str, data: bytes) -> Event:
    """ContainerdError for what is no such event."""
    try:
        told = _EVENTS[kind].FromString(data)
    except Exception as error:  # DecodeError, whichever of protobuf's implementations is in use
        raise ContainerdError(f"a {kind} event that cannot be read") from error
    if isinstance(told, task_events_pb2.TaskExit):
        exec_id = told.id if told.id != told.container_id else ""
        return Event(namespace, kind, told.container_id, told.exit_status, exec_id)
    return Event(namespace, kind, told.container_id)
