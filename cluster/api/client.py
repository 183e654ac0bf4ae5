"""One connection to the API server, over lightkube."""

import json
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager
from functools import cache
from types import TracebackType
from typing import Any, Literal, Protocol, Self, cast

import httpx2
from lightkube import AsyncClient, KubeConfig
from lightkube.core import resource
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.generic_resource import (
    Generic,
    create_global_resource,
    create_namespaced_resource,
)
from lightkube.types import CascadeType, PatchType

from cluster.api.errors import ApiProblem
from cluster.api.kinds import Kind

Object = dict[str, Any]
EventType = Literal["ADDED", "MODIFIED", "DELETED"]

FIELD_MANAGER = "mgpu"
# Shorter than the least that API servers grant a watch by themselves, so that a dead connection is noticed.
WATCH_SECONDS = 240


class Api(Protocol):
    """The rest of cluster/'s view of an API server. Every method raises ApiProblem."""

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object: ...

    async def list(
        self, kind: Kind, *, labels: Mapping[str, str] | None = None, fields: Mapping[str, str] | None = None
    ) -> tuple[list[Object], str]:
        """Of all namespaces, and the version that a watch goes on from."""
        ...

    def watch(
        self,
        kind: Kind,
        version: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[tuple[EventType, Object]]:
        """Changes since `version`, without an end."""
        ...

    async def create(self, kind: Kind, value: Object) -> Object:
        """The name and namespace are the object's own, those of its parent for a subresource."""
        ...

    async def merge(
        self, kind: Kind, name: str, patch: Object, namespace: str | None = None, *, status: bool = False
    ) -> Object:
        """A JSON merge patch (RFC 7386): None deletes a member. status: to the status subresource."""
        ...

    async def apply(self, kind: Kind, value: Object) -> Object:
        """Server-side apply as the field manager "mgpu", which takes members over from other managers."""
        ...

    async def replace(self, kind: Kind, value: Object) -> Object:
        """409 when value's metadata.resourceVersion is no longer the object's."""
        ...

    async def delete(self, kind: Kind, name: str, namespace: str | None = None) -> None: ...


class Client:
    """An Api. kubeconfig: a path; without one, $KUBECONFIG, ~/.kube/config or the pod's service account."""

    def __init__(self, kubeconfig: str | None = None) -> None:
        try:
            config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
            self._client = AsyncClient(config, field_manager=FIELD_MANAGER)
        except (ConfigError, OSError, ValueError) as error:
            raise ApiProblem(0, "", f"no way to the API server: {error}; set KUBECONFIG") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        with _as_problems():
            return _object(await self._client.get(_resource(kind), name, namespace=namespace))

    async def list(
        self, kind: Kind, *, labels: Mapping[str, str] | None = None, fields: Mapping[str, str] | None = None
    ) -> tuple[list[Object], str]:
        with _as_problems():
            found = self._client.list(
                _resource(kind),
                namespace="*" if kind.namespaced else None,
                labels=_terms(labels),
                fields=_terms(fields),
                chunk_size=500,
            )
            objects = [_object(one) async for one in found]
            return objects, found.resourceVersion

    async def watch(
        self,
        kind: Kind,
        version: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[tuple[EventType, Object]]:
        with _as_problems():
            async for event, value in self._client.watch(
                _resource(kind),
                namespace="*" if kind.namespaced else None,
                labels=_terms(labels),
                fields=_terms(fields),
                server_timeout=WATCH_SECONDS,
                resource_version=version,
            ):
                yield cast(EventType, event), _object(value)

    async def create(self, kind: Kind, value: Object) -> Object:
        meta = value["metadata"]
        made = _resource(kind)(value)
        with _as_problems():
            if kind.subresource:
                return _object(await self._client.create(made, meta["name"], namespace=meta["namespace"]))
            return _object(await self._client.create(made))

    async def merge(
        self, kind: Kind, name: str, patch: Object, namespace: str | None = None, *, status: bool = False
    ) -> Object:
        target = _resource(kind)
        with _as_problems():
            return _object(
                await self._client.patch(
                    target.Status if status else target,
                    name,
                    patch,
                    namespace=namespace,
                    patch_type=PatchType.MERGE,
                )
            )

    async def apply(self, kind: Kind, value: Object) -> Object:
        meta = value["metadata"]
        with _as_problems():
            return _object(
                await self._client.patch(
                    _resource(kind),
                    meta["name"],
                    {"apiVersion": kind.api_version, "kind": kind.name, **value},
                    namespace=meta.get("namespace"),
                    patch_type=PatchType.APPLY,
                    force=True,
                )
            )

    async def replace(self, kind: Kind, value: Object) -> Object:
        with _as_problems():
            return _object(await self._client.replace(_resource(kind)(value)))

    async def delete(self, kind: Kind, name: str, namespace: str | None = None) -> None:
        with _as_problems():
            await self._client.delete(
                _resource(kind), name, namespace=namespace, cascade=CascadeType.BACKGROUND
            )


def _object(value: Any) -> Object:
    """lightkube's objects are dicts as well."""
    return dict(value)


def _terms(equal: Mapping[str, str] | None) -> Any:
    return dict(equal) if equal else None


@contextmanager
def _as_problems() -> Generator[None]:
    try:
        yield
    except ApiError as error:
        status = error.status
        raise ApiProblem(
            status.code or 0, status.reason or "", status.message or "the API server refused"
        ) from error
    except httpx2.HTTPStatusError as error:
        code = error.response.status_code
        raise ApiProblem(code, "", f"the API server answered {code}") from error
    except (httpx2.HTTPError, OSError) as error:
        raise ApiProblem(0, "", f"the API server is away: {str(error) or type(error).__name__}") from error
    except (json.JSONDecodeError, ValueError) as error:
        raise ApiProblem(0, "", f"the API server's answer is malformed: {error}") from error


@cache
def _resource(kind: Kind) -> Any:
    """lightkube's class for objects of the kind, which stay plain JSON."""
    if not kind.subresource:
        create = create_namespaced_resource if kind.namespaced else create_global_resource
        return create(kind.group, kind.version, kind.name, kind.plural)

    class Subresource(resource.NamespacedSubResource, Generic):  # type: ignore[misc]
        _api_info = resource.ApiInfo(
            resource=resource.ResourceDef(kind.group, kind.version, kind.name),
            parent=resource.ResourceDef("", "v1", ""),
            plural=kind.plural,
            verbs=["post"],
            action=kind.subresource,
        )

    return Subresource
