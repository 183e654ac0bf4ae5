"""The driver as a part of the node process."""

import asyncio
from pathlib import Path

from cluster.dra.host import Node
from cluster.dra.prepared import PreparedClaims
from cluster.dra.publish import Slices
from cluster.dra.server import Sockets

# Where container engines look for CDI specs that do not outlive a boot.
CDI = Path("/var/run/cdi")


async def run(node: Node, cdi: Path = CDI) -> None:
    """Until it is cancelled. Its ResourceSlices stay for the driver's next start, and kubelet removes them
    where that does not come.
    """
    assert node.api is not None  # without an API server there are no claims
    claims = PreparedClaims(node, node.api, cdi)
    slices = Slices(node, node.api)
    async with asyncio.TaskGroup() as group:
        for part in (Sockets(node, claims), slices):
            group.create_task(part.run())
        group.create_task(claims.keep())
        group.create_task(claims.follow_pods())
