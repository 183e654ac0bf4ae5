"""From which node RM takes the host's memory: for a thread, and for one in a container of mgpu's."""

from lab.claims import decides
from lab.guest import boxes, nodes


@decides(
    "memory of class 0x3e comes from the node of the calling thread's policy, and else of its processor"
)
def nodes_are_the_threads() -> None:
    found = nodes.by_each_way()
    assert not nodes.wrong(found), found


@decides(long=True, limit_s=400)
def nodes_are_the_askers_under_mgpu() -> None:
    with boxes.product().container(boxes.inside("nodes", "0"), memory_mib=512) as box:
        found: nodes.Taken = {}
        for said in (boxes.told(box) for _ in nodes.WAYS):
            found[said["way"]] = nodes.placed(boxes.process(said["pid"]), said["address"])
    print(f"pages of each node: {found}")
    assert not nodes.wrong(found), found
