"""HAMi's own examples on a cluster that was installed with `hami: true`."""

from collections import Counter
from collections.abc import Iterator

import pytest
import yaml

from tests.kubernetes.cluster import Cluster, Object
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.timeout(600)

CASES: list[Object] = yaml.safe_load((REPOSITORY / "tests/cluster/hami_cases.yaml").read_text())
# Of the GPUs that the cases' numbers are about.
MIB = 16160


@pytest.fixture
def hami(cluster: Cluster) -> tuple[Cluster, str]:
    """With a node of GPUs that the cases are about."""
    if not any("nvidia.com/gpu" in node["status"]["capacity"] for node in cluster.get("nodes")["items"]):
        pytest.skip("the cluster was not installed with hami: true")
    of = Counter(card["node"] for card in cluster.cards() if card["memory_mib"] == MIB)
    if not of:
        pytest.skip(f"no node has GPUs of {MIB} MiB")
    [(node, _)] = of.most_common(1)
    return cluster, node


@pytest.fixture
def nvidias(anywhere: Cluster) -> Iterator[None]:
    """The RuntimeClass of clusters with HAMi: the API server refuses pods that name one that is not there."""
    if anywhere.succeeds("get", "runtimeclass", "nvidia"):
        yield
        return
    made = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "nvidia"}
    anywhere.apply(made | {"metadata": {"name": "nvidia"}})
    try:
        yield
    finally:
        anywhere.run("delete", "runtimeclass", "nvidia")


@pytest.mark.usefixtures("nvidias")
@pytest.mark.parametrize("row", CASES, ids=lambda row: str(row["case"]))
def test_example_runs_with_what_hami_gives_it(hami: tuple[Cluster, str], row: Object) -> None:
    cluster, node = hami
    limits = {name: str(number) for name, number in row["limits"].items() if name.startswith("nvidia.com/")}
    pod = cluster.pod("example", limits=limits, node=node, **row.get("spec", {}))
    variables = row.get("env", {})
    pod["spec"]["containers"][0]["env"] = [{"name": key, "value": value} for key, value in variables.items()]
    cluster.apply(pod)
    cluster.running("example")
    assert cluster.totals_mib("example") == [mib for mib, _ in row["has"]]
    [found] = [one for one in cluster.containers() if one["namespace"] == cluster.namespace]
    assert found["class"] == row.get("class", "online")
