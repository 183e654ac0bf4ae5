"""The vendors' published manifests, byte for byte."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster import Cluster, until
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.timeout(900)

MANIFESTS = sorted((REPOSITORY / "tests" / "cri" / "manifests").glob("*.yaml"))


@pytest.fixture
def seeds(anywhere: Cluster) -> Iterator[list[str]]:
    """The names of their pods, on the node with most GPUs: where there are more some may have one to
    themselves. Together they do not fit two GPUs.
    """
    files = [word for path in MANIFESTS for word in ("-f", str(path))]
    [(most, _)] = Counter(card["node"] for card in anywhere.cards()).most_common(1)
    with anywhere.alone(most):
        anywhere.run("apply", *files)
        try:
            until(lambda: len(_pods(anywhere)) == 5, "five pods are made")
            yield _pods(anywhere)
        finally:
            anywhere.run(
                "delete", *files, "--wait=true", "--cascade=foreground", "--grace-period=0", "--force"
            )


def _pods(cluster: Cluster) -> list[str]:
    names = ("mgpu-deployment", "tensorflow-mnist-multigpu")
    return [
        pod["metadata"]["name"]
        for pod in cluster.get("pods")["items"]
        if pod["metadata"]["labels"].get("app") in names
    ]


def test_all_run_under_their_caps_and_share_gpus(anywhere: Cluster, seeds: list[str]) -> None:
    anywhere.running(*seeds)
    memory_mib = {card["uuid"]: card["memory_mib"] for card in anywhere.cards()}
    found = [one for one in anywhere.containers() if one["pod"] in seeds]
    for pod in seeds:
        if pod.startswith("mgpu-deployment"):
            assert anywhere.totals_mib(pod) == [4096]
        else:
            [uuids] = anywhere.served(pod).values()
            # Four of a GPU's units, on each of two.
            assert anywhere.totals_mib(pod) == [
                4 * memory_mib[uuid] // (memory_mib[uuid] >> 10) for uuid in uuids
            ]
    shared = {
        card["uuid"]
        for one in found
        for card in one["cards"]
        for other in found
        if other is not one and card["uuid"] in [each["uuid"] for each in other["cards"]]
    }
    assert shared, "no two of them have a GPU in common"
