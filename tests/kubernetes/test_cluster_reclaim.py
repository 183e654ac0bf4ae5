"""Memory that online does not use, as a resource: it gives way, comes back, and its pod's events say so."""

import pytest

from tests.kubernetes.cluster import Cluster, KubectlError, until

pytestmark = pytest.mark.timeout(900)

MEMORY = "mgpu.dev/memory-mib"
RECLAIMABLE = "mgpu.dev/reclaimable-memory-mib"
# Of a simulated GPU; a process's own context is some 200 MiB.
CONTEXT_MIB = 240
_HOLDS = (
    "import ctypes as c, time; cuda = c.CDLL('libcuda.so.1'); context, at = c.c_void_p(), c.c_uint64();"
    " assert not cuda.cuInit(0) and not cuda.cuCtxCreate_v2(c.byref(context), 0, 0);"
    " assert not cuda.cuMemAlloc_v2(c.byref(at), c.c_size_t(64 << 20));"
    " assert not cuda.cuMemcpyHtoD_v2(at, b'data', c.c_size_t(4)); print('holds', flush=True);"
    " time.sleep(1e6)"
)


def _offered(cluster: Cluster) -> int:
    return sum(
        int(node["status"]["allocatable"].get(RECLAIMABLE, "0")) for node in cluster.get("nodes")["items"]
    )


@pytest.fixture
def lending(cluster: Cluster) -> Cluster:
    if not _offered(cluster):
        pytest.skip("no node has offline_overcommit = true")
    return cluster


def test_memory_gives_way_to_online_and_comes_back(lending: Cluster) -> None:
    webs = {f"web-{card['node']}-{card['index']}": card for card in lending.cards()}
    lending.apply(
        *(
            lending.pod(name, limits={MEMORY: str(card["memory_mib"])}, node=card["node"])
            for name, card in webs.items()
        )
    )
    lending.running(*webs)
    batch = lending.pod("batch", limits={RECLAIMABLE: "1024"})
    batch["spec"]["containers"][0]["command"] = ["python3", "-c", _HOLDS]
    lending.apply(batch)
    lending.running("batch")
    until(lambda: "holds" in lending.run("logs", "batch"), "it holds memory that online was granted")
    for name, card in webs.items():
        assert lending.allocates(name, card["memory_mib"] - CONTEXT_MIB)
    until(lambda: "GPUMemoryEvicted" in lending.events("batch"), "its memory gave way")
    until(lambda: "GPUMemoryRestored" in lending.events("batch"), "its memory is back")
    assert lending.restarts("batch") == 0


def test_more_than_online_leaves_is_not_promised(lending: Cluster) -> None:
    lending.apply(lending.pod("batch", limits={RECLAIMABLE: str(_offered(lending) + 1)}))
    until(lambda: RECLAIMABLE in lending.unschedulable("batch"), "it waits, and says why")
    assert lending.phase("batch") == "Pending"


def test_online_pod_does_not_get_it(lending: Cluster) -> None:
    with pytest.raises(KubectlError) as refused:
        lending.apply(
            lending.pod("web", limits={RECLAIMABLE: "1024"}, annotations={"mgpu.dev/qos": "online"})
        )
    assert 'mgpu.dev/qos is "online"' in str(refused.value)
