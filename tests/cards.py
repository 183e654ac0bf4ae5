"""Short ways to say cards, tenants and requests in tests of placement."""

import pytest

from native_sched.daemon.node.config import NodeConfig
from oci_specs import parse
from oci_specs.refusal import Refusal
from oci_specs.request import Memory, Qos, Request
from placement.place import CardState, Placement, Tenant, place

CONFIG = NodeConfig()
V100_MIB = 16160


def card(
    index: int,
    *tenants: Tenant,
    policy: str | None = None,
    owner: str | None = None,
    memory_mib: int = V100_MIB,
) -> CardState:
    return CardState(
        index=index,
        minor=index,
        uuid=f"GPU-{index:08d}-aaaa",
        name="Tesla V100-SXM2-16GB",
        memory_mib=memory_mib,
        policy=policy,
        policy_owner=owner,
        tenants=tenants,
    )


def tenant(
    qos: Qos = "online", memory_mib: int = 4096, core: int | None = None, name: str = "other"
) -> Tenant:
    return Tenant(container_id=name, qos=qos, memory_mib=memory_mib, core_percent=core)


def request(
    memory: int | None = None,
    core: int | None = None,
    *,
    qos: Qos = "online",
    count: int | None = 1,
    policy: str | None = None,
    uuids: tuple[str, ...] = (),
    candidates: tuple[str, ...] = (),
) -> Request:
    return Request(
        qos=qos,
        policy=policy,
        count=count,
        uuids=uuids,
        candidates=candidates,
        memory=None if memory is None else Memory(mib=memory),
        core_percent=core,
        whole_cards=memory is None and core is None,
    )


def from_keys(**keys: str) -> Request:
    names = {
        "gpu_mem": "aliyun.com/gpu-mem",
        "gpu_count": "aliyun.com/gpu-count",
        "vcuda_core": "tencent.com/vcuda-core",
        "vcuda_memory": "tencent.com/vcuda-memory",
        "memory": "vke.volcengine.com/mgpu-memory",
    }
    result = parse.request({names[name]: value for name, value in keys.items()}, {}, CONFIG)
    assert result is not None
    return result


def given_mib(placement: Placement) -> list[int]:
    return [share.memory_mib for share in placement.cards]


def indices(placement: Placement) -> list[int]:
    return [share.index for share in placement.cards]


def line(request: Request, *cards: CardState, config: NodeConfig = CONFIG) -> str:
    with pytest.raises(Refusal) as raised:
        place(request, cards, config)
    return raised.value.line()
