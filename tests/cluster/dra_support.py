"""A kubelet as far as DRA drivers see it, from its published protocol and its manager's ways; allocated
claims; an API server that drops what features it has not.

kubelet finds a driver by a socket in its registry, asks it for its own socket and its services, and takes the
first of them that it knows. It prepares a claim once for all its pods, and again after a restart of its own.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from cluster.kubelet.generated import dra_health_pb2, dra_pb2, pluginregistration_pb2
from tests.cluster.api_server import ApiServer

Json = dict[str, Any]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
# Of kubelet 1.34 and 1.36, and of one that knows the older only.
SERVICES = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}
CALL_S = 45


class DraKubelet:
    """root: its state directory; knows: the services that it speaks, the newest first."""

    def __init__(self, root: Path, knows: Sequence[str] = tuple(SERVICES)) -> None:
        self.root = root
        self._knows = knows
        self._registry = root / "plugins_registry" / "mgpu.dev-reg.sock"

    def finds(self) -> bool:
        return self._registry.exists()

    def register(self, error: str = "") -> Any:
        """Asks the driver who it is and tells it whether it is taken; its PluginInfo."""
        path = "/pluginregistration.Registration"
        with self._channel(self._registry) as channel:
            info = self._call(
                channel,
                f"{path}/GetInfo",
                pluginregistration_pb2.InfoRequest(),
                pluginregistration_pb2.PluginInfo,
            )
            status = pluginregistration_pb2.RegistrationStatus(plugin_registered=not error, error=error)
            reply = pluginregistration_pb2.RegistrationStatusResponse
            self._call(channel, f"{path}/NotifyRegistrationStatus", status, reply)
        self._service = SERVICES[next(each for each in info.supported_versions if each in self._knows)]
        self._endpoint = Path(info.endpoint)
        return info

    def prepare(self, *claims: Json) -> Any:
        """The reply's claims, by uid."""
        request = dra_pb2.NodePrepareResourcesRequest(claims=map(asked, claims))
        with self._channel(self._endpoint) as channel:
            return self._call(
                channel,
                f"/{self._service}/NodePrepareResources",
                request,
                dra_pb2.NodePrepareResourcesResponse,
            ).claims

    def unprepare(self, *claims: Json) -> Any:
        request = dra_pb2.NodeUnprepareResourcesRequest(claims=map(asked, claims))
        with self._channel(self._endpoint) as channel:
            return self._call(
                channel,
                f"/{self._service}/NodeUnprepareResources",
                request,
                dra_pb2.NodeUnprepareResourcesResponse,
            ).claims

    def health(self) -> dict[str, int]:
        """The first that the driver tells of its devices' health."""
        with self._channel(self._endpoint) as channel:
            stream = channel.unary_stream(
                "/v1alpha1.DRAResourceHealth/NodeWatchResources",
                request_serializer=dra_health_pb2.NodeWatchResourcesRequest.SerializeToString,
                response_deserializer=dra_health_pb2.NodeWatchResourcesResponse.FromString,
            )(dra_health_pb2.NodeWatchResourcesRequest(), timeout=CALL_S)
            first = next(iter(stream))
            stream.cancel()
        return {each.device.device_name: each.health for each in first.devices}

    @staticmethod
    def _channel(path: Path) -> grpc.Channel:
        return grpc.insecure_channel(f"unix:{path}", options=(("grpc.use_local_subchannel_pool", 1),))

    @staticmethod
    def _call(channel: grpc.Channel, path: str, message: Any, reply: Any) -> Any:
        return channel.unary_unary(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,
        )(message, timeout=CALL_S, wait_for_ready=True)


def asked(claim: Json) -> Any:
    meta = claim["metadata"]
    return dra_pb2.Claim(namespace=meta["namespace"], uid=meta["uid"], name=meta["name"])


def allocated(
    name: str,
    devices: Sequence[Json],
    *,
    pods: Mapping[str, str],
    namespace: str = "team-a",
    uid: str = "",
    config: Sequence[Json] = (),
) -> Json:
    """A ResourceClaim as the scheduler leaves it. devices: members of the allocation's results besides driver
    and pool; pods: uids by name.
    """
    results = [{"request": "gpu", "driver": "mgpu.dev", "pool": "n1", **each} for each in devices]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-of-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.mgpu.dev"}}]}},
        "status": {
            "allocation": {"devices": {"results": results, "config": list(config)}},
            "reservedFor": [{"resource": "pods", "name": each, "uid": of} for each, of in pods.items()],
        },
    }


def parameters(source: str = "FromClaim", requests: Sequence[str] = (), **members: Any) -> Json:
    """An entry of an allocation's config."""
    value = {"apiVersion": "mgpu.dev/v1", "kind": "GpuConfig", **members}
    opaque = {"driver": "mgpu.dev", "parameters": value}
    return {"source": source, "requests": list(requests), "opaque": opaque}


def consumed(device: str, memory: str, core: str = "0", containers: str = "1", **members: Any) -> Json:
    """A result with consumable capacity: the scheduler writes every capacity of the device."""
    amounts = {"memory": memory, "core": core, "containers": containers}
    return {"device": device, "consumedCapacity": amounts, "shareID": f"share-of-{device}", **members}


def put(api: ApiServer, claim: Json) -> Json:
    return api.put(CLAIMS.format(claim["metadata"]["namespace"]), claim)


def without_features(value: Json, features: set[str]) -> Json:
    """A ResourceSlice as an API server keeps it that has these of DRAConsumableCapacity and
    DRADeviceTaints.
    """
    value = json.loads(json.dumps(value))
    for device in value["spec"].get("devices", []):
        if "DRAConsumableCapacity" not in features:
            device.pop("allowMultipleAllocations", None)
            for amount in device["capacity"].values():
                amount.pop("requestPolicy", None)
        if "DRADeviceTaints" not in features:
            device.pop("taints", None)
    return value
