"""A containerd without containers: it answers the calls that mgpu makes, and says what a test has it say."""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from containerd_api import methods
from containerd_api.generated import (
    containers_pb2,
    events_pb2,
    introspection_pb2,
    namespaces_pb2,
    process_pb2,
    task_events_pb2,
    tasks_pb2,
    version_pb2,
)
from containerd_api.methods import Method

EVENTS: dict[str, Callable[..., Message]] = {
    "start": task_events_pb2.TaskStart,
    "exit": task_events_pb2.TaskExit,
    "oom": task_events_pb2.TaskOOM,
    "paused": task_events_pb2.TaskPaused,
    "resumed": task_events_pb2.TaskResumed,
}


class FakeContainerd:
    """mute: no call is answered while it is set. subscribed: a client listens to events."""

    def __init__(self) -> None:
        self.containers: dict[str, dict[str, dict[str, str]]] = {"default": {}, "k8s.io": {}}
        self.status: dict[str, int] = {}
        self.broken: dict[str, str] = {}
        self.mute = threading.Event()
        self.subscribed = threading.Event()
        self.calls: list[str] = []
        self.filters: list[str] = []
        self._events: queue.Queue[events_pb2.Envelope | None] = queue.Queue()
        self._ended = threading.Event()

    def add(
        self,
        namespace: str,
        container_id: str,
        status: int = process_pb2.RUNNING,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.containers.setdefault(namespace, {})[container_id] = dict(labels or {})
        self.status[container_id] = status

    def happen(self, kind: str, container_id: str, **members: Any) -> None:
        event = EVENTS[kind](container_id=container_id, **members)
        self.raw(kind, event.SerializeToString())

    def raw(self, kind: str, data: bytes) -> None:
        told = AnyMessage(type_url=f"containerd.events.Task{kind.title()}", value=data)
        self._events.put(events_pb2.Envelope(namespace="default", topic=f"/tasks/{kind}", event=told))

    def end_streams(self) -> None:
        self._events.put(None)

    def stop(self) -> None:
        self._ended.set()
        self.end_streams()

    def handlers(self) -> Iterator[grpc.GenericRpcHandler]:
        unary: list[tuple[Method[Any, Any], Callable[..., Any]]] = [
            (methods.VERSION, lambda request, context: version_pb2.VersionResponse(version="1.6.20")),
            (methods.NAMESPACES, self._namespaces),
            (methods.CONTAINER, self._container),
            (methods.TASK, self._task),
            (methods.TASKS, self._tasks),
            (methods.PLUGINS, self._plugins),
        ]
        for method, answer in unary:
            yield self._handler(method, grpc.unary_unary_rpc_method_handler, self._told(method, answer))
        yield self._handler(methods.EVENTS, grpc.unary_stream_rpc_method_handler, self._subscribe)

    def _told(self, method: Method[Any, Any], answer: Callable[..., Any]) -> Callable[..., Any]:
        def told(request: Any, context: grpc.ServicerContext) -> Any:
            self.calls.append(method.path)
            while self.mute.is_set() and not self._ended.is_set():
                self._ended.wait(0.05)
            return answer(request, context)

        return told

    @staticmethod
    def _handler(
        method: Method[Any, Any], kind: Callable[..., Any], answer: Callable[..., Any]
    ) -> grpc.GenericRpcHandler:
        _, service, name = method.path.split("/")
        made = kind(
            answer,
            request_deserializer=method.request.FromString,
            response_serializer=method.reply.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(service, {name: made})

    def _namespaces(self, _request: Any, _context: Any) -> Any:
        return namespaces_pb2.ListNamespacesResponse(
            namespaces=[namespaces_pb2.Namespace(name=name) for name in self.containers]
        )

    def _found(self, container_id: str, context: grpc.ServicerContext) -> dict[str, str]:
        namespace = dict(context.invocation_metadata())["containerd-namespace"]
        labels = self.containers[str(namespace)].get(container_id)
        if labels is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"container {container_id}: not found")
        assert labels is not None
        return labels

    def _container(self, request: Any, context: grpc.ServicerContext) -> Any:
        labels = self._found(request.id, context)
        runtime = containers_pb2.Container.Runtime(name="io.containerd.runc.v2")
        return containers_pb2.GetContainerResponse(
            container=containers_pb2.Container(id=request.id, labels=labels, image="i", runtime=runtime)
        )

    def _task(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._found(request.container_id, context)
        return tasks_pb2.GetResponse(process=self._process(request.container_id))

    def _process(self, container_id: str) -> Any:
        status: Any = self.status[container_id]
        return process_pb2.Process(id=container_id, pid=7, status=status)

    def _tasks(self, _request: Any, context: grpc.ServicerContext) -> Any:
        namespace = dict(context.invocation_metadata())["containerd-namespace"]
        return tasks_pb2.ListTasksResponse(tasks=map(self._process, self.containers[str(namespace)]))

    def _plugins(self, _request: Any, _context: Any) -> Any:
        names = ["io.containerd.grpc.v1/cri", "io.containerd.runtime.v2/task"]
        return introspection_pb2.PluginsResponse(
            plugins=[
                introspection_pb2.Plugin(
                    type=name.partition("/")[0],
                    id=name.partition("/")[2],
                    init_err=introspection_pb2.Failure(message=self.broken[name])
                    if name in self.broken
                    else None,
                )
                for name in names
            ]
        )

    def _subscribe(self, request: Any, _context: Any) -> Iterator[events_pb2.Envelope]:
        self.filters = list(request.filters)
        self.subscribed.set()
        try:
            while envelope := self._events.get():
                yield envelope
        finally:
            self.subscribed.clear()


@contextmanager
def serving(address: Path, fake: FakeContainerd | None = None) -> Iterator[FakeContainerd]:
    """A containerd at a socket's path. The path is there afterwards too, as after a crash."""
    fake = fake or FakeContainerd()
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers(list(fake.handlers()))
    server.add_insecure_port(f"unix:{address}")
    server.start()
    try:
        yield fake
    finally:
        fake.stop()
        server.stop(0).wait()
