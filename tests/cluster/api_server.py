"""An API server in memory, for what no published artefact serves: objects of any kind in JSON, versions,
watches, bindings, and trouble on demand.

Rules are those of "Kubernetes API Concepts" (resource versions, 409 on a stale write, 410 on a version that
was compacted) and of RFC 7386 for merge patches. It checks nothing else of an object.
"""

from __future__ import annotations

import asyncio
import bisect
import copy
import json
import threading
import uuid
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

Object = dict[str, Any]
_T = TypeVar("_T")
# (namespace or "", name)
_Key = tuple[str, str]


@dataclass
class _Kind:
    objects: dict[_Key, Object] = field(default_factory=dict)
    # (version, type, object), oldest first.
    events: list[tuple[int, str, Object]] = field(default_factory=list)
    compacted: int = 0


@dataclass
class Trouble:
    """What requests meet for whom `matches` (method, path) says yes: `status`, after `delay_s`; 0 leaves the
    answer as it is. times: how often, -1 for ever.
    """

    matches: Callable[[str, str], bool]
    status: int = 0
    delay_s: float = 0.0
    times: int = -1


class ApiServer:
    """Use running(). Methods without an underscore may be called from any thread."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, str]] = []
        self.troubles: list[Trouble] = []
        # What is kept of an object that is written: an API server drops members of features that are off.
        self.keeps: Callable[[Object], Object] = lambda value: value
        self._kinds: dict[str, _Kind] = {}
        self._version = 0
        self._changed = asyncio.Condition()
        self._loop = asyncio.new_event_loop()
        self._watchers: set[asyncio.Task[Any]] = set()

    def put(self, path: str, value: Object) -> Object:
        """Make or replace an object as an administrator. path: of its collection, as
        "/api/v1/namespaces/default/pods".
        """
        return self._run(self._store(_Path(path + "/" + value["metadata"]["name"]), value, keep=True))

    def get(self, path: str) -> Object | None:
        where = _Path(path)
        found = self._kind(where).objects.get(where.key)
        return copy.deepcopy(found)

    def there(self, path: str) -> Object:
        found = self.get(path)
        assert found is not None, path
        return found

    def all(self, path: str) -> list[Object]:
        """Those of a collection; of all namespaces if the path names none."""
        where = _Path(path, collection=True)
        return [copy.deepcopy(one) for one in self._chosen(where, "", "")]

    def remove(self, path: str) -> None:
        self._run(self._drop(_Path(path)))

    def compact(self) -> None:
        """Forget all events, and hang up on who watches: their version is too old now."""
        self._run(self._compact())

    def hang_up(self) -> None:
        """Break all watches, as a load balancer does."""
        self._run(self._hang_up())

    def kubeconfig(self, folder: Path) -> Path:
        cluster = {"name": "memory", "cluster": {"server": self.url}}
        context = {"name": "memory", "context": {"cluster": "memory", "user": "memory"}}
        path = folder / "kubeconfig.json"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [cluster],
                    "contexts": [context],
                    "users": [{"name": "memory", "user": {}}],
                    "current-context": "memory",
                }
            )
        )
        return path

    # Below: in the loop's thread.

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _kind(self, where: _Path) -> _Kind:
        return self._kinds.setdefault(where.kind, _Kind())

    async def _event(self, where: _Path, event: str, value: Object) -> None:
        self._version += 1
        value["metadata"]["resourceVersion"] = str(self._version)
        self._kind(where).events.append((self._version, event, copy.deepcopy(value)))
        async with self._changed:
            self._changed.notify_all()

    async def _store(self, where: _Path, value: Object, *, keep: bool = False) -> Object:
        value = copy.deepcopy(self.keeps(value))
        meta = value.setdefault("metadata", {})
        meta["name"] = where.name
        if where.namespace:
            meta["namespace"] = where.namespace
        kind = self._kind(where)
        old = kind.objects.get(where.key)
        for member, made in (
            ("uid", str(uuid.uuid4())),
            ("creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")),
        ):
            if old is not None:
                meta[member] = old["metadata"][member]
            elif not (keep and member in meta):
                meta[member] = made
        kind.objects[where.key] = value
        await self._event(where, "ADDED" if old is None else "MODIFIED", value)
        return copy.deepcopy(value)

    async def _drop(self, where: _Path) -> Object:
        value = self._kind(where).objects.pop(where.key)
        await self._event(where, "DELETED", value)
        return value

    async def _compact(self) -> None:
        for kind in self._kinds.values():
            kind.compacted = self._version
            kind.events.clear()
        self._version += 1
        await self._hang_up()

    async def _hang_up(self) -> None:
        for watcher in list(self._watchers):
            watcher.cancel()

    def _chosen(self, where: _Path, labels: str, fields: str) -> list[Object]:
        return [
            value
            for (namespace, _name), value in sorted(self._kind(where).objects.items())
            if where.namespace in ("", namespace) and _selected(value, labels, fields)
        ]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        for trouble in list(self.troubles):
            if trouble.times and trouble.matches(request.method, request.path):
                trouble.times -= 1
                await asyncio.sleep(trouble.delay_s)
                if trouble.status:
                    return _status(trouble.status, "Trouble", f"trouble {trouble.status} was asked for")
        collection = request.method == "POST" or _Path(request.path).is_collection
        where = _Path(request.path, collection=collection)
        if request.method == "GET" and where.is_collection:
            return await (self._watch if request.query.get("watch") else self._list)(request, where)
        return await self._one(request, where)

    async def _list(self, request: web.Request, where: _Path) -> web.Response:
        query = request.query
        found = self._chosen(where, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        return web.json_response(
            {"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": found}
        )

    async def _watch(self, request: web.Request, where: _Path) -> web.StreamResponse:
        kind, seen = self._kind(where), int(request.query.get("resourceVersion", "0") or 0)
        labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watchers.add(task)
        try:
            while True:
                if seen < kind.compacted:
                    await _send(response, "ERROR", _failure(410, "Expired", "too old resource version"))
                    return response
                news = bisect.bisect_right(kind.events, seen, key=lambda one: one[0])
                for version, event, value in kind.events[news:]:
                    seen = version
                    if where.namespace in ("", value["metadata"].get("namespace", "")) and _selected(
                        value, labels, fields
                    ):
                        await _send(response, event, value)
                async with self._changed:
                    if not kind.events or kind.events[-1][0] <= seen:
                        await self._changed.wait()
        finally:
            self._watchers.discard(task)

    async def _one(self, request: web.Request, where: _Path) -> web.Response:
        objects = self._kind(where).objects
        old = objects.get(where.key)
        body = json.loads(await request.read() or b"{}")
        if request.method == "POST":
            if where.subresource == "binding":
                return await self._bind(where, body)
            if where.subresource == "eviction":
                return await self._evict(where, body)
            meta = body["metadata"]
            name = meta.get("name") or meta["generateName"] + uuid.uuid4().hex[:5]
            made = where.named(name)
            if made.key in objects:
                return _status(409, "AlreadyExists", f'{where.plural} "{name}" already exists')
            return web.json_response(await self._store(made, body), status=201)
        applied = "apply-patch" in request.headers.get("Content-Type", "")
        if old is None and not applied:
            return _status(404, "NotFound", f'{where.plural} "{where.name}" not found')
        match request.method:
            case "GET":
                return web.json_response(old)
            case "DELETE":
                return web.json_response(await self._drop(where))
            case "PUT":
                new = body
            case _:
                new = _merged(old or {}, body)
        version = body.get("metadata", {}).get("resourceVersion")
        if old is not None and version not in (None, old["metadata"]["resourceVersion"]):
            return _status(409, "Conflict", "the object has been modified; apply your changes to the latest")
        return web.json_response(await self._store(where, new))

    async def _evict(self, where: _Path, eviction: Object) -> web.Response:
        """Without budgets and without a grace: the pod is gone at once. trouble 429 is what a budget
        answers.
        """
        pod = self._kind(where).objects.get(where.key)
        if pod is None:
            return _status(404, "NotFound", f'pods "{where.name}" not found')
        uid = eviction.get("deleteOptions", {}).get("preconditions", {}).get("uid")
        if uid not in (None, pod["metadata"]["uid"]):
            return _status(409, "Conflict", "Precondition failed: UID in precondition")
        await self._drop(where)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def _bind(self, where: _Path, binding: Object) -> web.Response:
        pod = self._kind(where).objects.get(where.key)
        if pod is None:
            return _status(404, "NotFound", f'pods "{where.name}" not found')
        node = binding["target"]["name"]
        uid = binding["metadata"].get("uid")
        if uid not in (None, pod["metadata"]["uid"]):
            return _status(409, "Conflict", "Precondition failed: UID in precondition")
        if pod["spec"].get("nodeName"):
            said = f"pod {where.name} is already assigned to node {pod['spec']['nodeName']}"
            return _status(
                409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{where.name}": {said}'
            )
        new = copy.deepcopy(pod)
        new["spec"]["nodeName"] = node
        new["metadata"].setdefault("annotations", {}).update(binding["metadata"].get("annotations", {}))
        await self._store(where, new)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)


class _Path:
    """A path of the API: /api/v1 or /apis/GROUP/VERSION, then namespaces/NS, a plural, a name, a
    subresource.
    """

    def __init__(self, path: str, *, collection: bool = False) -> None:
        parts = path.strip("/").split("/")
        skip = 2 if parts[0] == "api" else 3
        prefix, rest = parts[:skip], parts[skip:]
        self.namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            self.namespace, rest = rest[1], rest[2:]
        self.plural = rest[0]
        self.kind = "/".join([*prefix, self.plural])
        self.name = rest[1] if len(rest) > 1 else ""
        self.subresource = rest[2] if len(rest) > 2 else ""
        self.is_collection = not self.name or (collection and not self.name)

    @property
    def key(self) -> _Key:
        return self.namespace, self.name

    def named(self, name: str) -> _Path:
        other = copy.copy(self)
        other.name, other.is_collection = name, False
        return other


def _failure(code: int, reason: str, message: str) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def _status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response(_failure(code, reason, message), status=code)


async def _send(response: web.StreamResponse, event: str, value: Object) -> None:
    await response.write(json.dumps({"type": event, "object": value}).encode() + b"\n")


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    new = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            new.pop(name, None)
        else:
            new[name] = _merged(new.get(name), value)
    return new


def _selected(value: Object, labels: str, fields: str) -> bool:
    """Equality alone: a=b, a==b, a!=b."""
    for term in filter(None, labels.split(",")):
        if not _holds(term, value["metadata"].get("labels", {}).get):
            return False
    return all(_holds(term, lambda path: _member(value, path)) for term in filter(None, fields.split(",")))


def _holds(term: str, member: Callable[[str], Any]) -> bool:
    name, wanted = term.replace("==", "=").split("=")
    if name.endswith("!"):
        return (member(name[:-1]) or "") != wanted
    return (member(name) or "") == wanted


def _member(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


@contextmanager
def running(port: int = 0) -> Generator[ApiServer]:
    """On loopback, in a thread of its own."""
    server = ApiServer()
    started = threading.Event()
    loop = server._loop

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", server.serve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        return runner

    def main() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(server._hang_up())
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    assert started.wait(10), "the API server in memory does not start"
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
