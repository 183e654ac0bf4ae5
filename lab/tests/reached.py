"""NV50_THIRD_PARTY_P2P: memory that a NIC's driver is given, natively and under mgpu."""

from lab.claims import decides
from lab.guest import boxes, reaching
from lab.tests.nv import Client
from lab.tests.under_mgpu import LIMIT_S
from tests.support.rm_numbers import NV_ERR_NOT_SUPPORTED


@decides(
    "A NIC's driver is given memory for the process whose client NV503C_CTRL_CMD_REGISTER_PID names, whoever "
    "made the object, until the memory is freed"
)
def given_for_the_process_that_is_named() -> None:
    client = Client()
    memory, thing = reaching.filled(client), reaching.made_by_a_child(client)
    assert reaching.known(client, thing, memory) == [0, 0]
    assert reaching.asked()[0] < 0, "given though the process is not named"
    assert [reaching.name_process(client, thing) for _ in range(2)] == [0, 0]
    assert reaching.asked() == (0, reaching.PATTERN)
    assert not reaching.taken_back()
    assert client.free(memory) == 0
    assert reaching.taken_back()
    client.close()


@decides(long=True, limit_s=LIMIT_S)
def whole_cards_memory_is_given_under_mgpu() -> None:
    """A share has none of it."""
    product = boxes.product()
    for memory_mib in (512, None):
        with product.container(boxes.inside("reached"), memory_mib=memory_mib) as box:
            said = boxes.told(box)
            if memory_mib:
                assert said == {"made": NV_ERR_NOT_SUPPORTED}
            else:
                assert said == {"made": 0, "known": [0, 0], "given": [0, reaching.PATTERN], "taken": True}
