"""Real cards, from an NVML that answers as its documentation says."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pynvml
import pytest

from native_sched.daemon.node import inventory
from native_sched.daemon.node.inventory import CardInfo
from oci_specs.refusal import Refusal

GPU_IS_LOST = pynvml.NVML_ERROR_GPU_IS_LOST


class NvmlError(Exception):
    value = 999


def fake(**functions: object) -> ModuleType:
    module = ModuleType("pynvml")
    shut = []
    vars(module).update(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: shut.append(True),
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPciInfo=lambda index: SimpleNamespace(domain=0, bus=0x17 + index, device=0),
        nvmlDeviceGetMinorNumber=lambda index: index,
        nvmlDeviceGetUUID=lambda index: f"GPU-{index}",
        nvmlDeviceGetName=lambda _index: "NVIDIA H200",
        nvmlDeviceGetMemoryInfo=lambda _index: SimpleNamespace(total=143771 << 20),
        nvmlSystemGetDriverVersion=lambda: "580.95.05",
        nvmlDeviceGetMigMode=lambda _index: (0, 0),
        nvmlDeviceGetComputeMode=lambda _index: 0,
        nvmlDeviceGetArchitecture=lambda _index: 9,
        NVML_COMPUTEMODE_DEFAULT=0,
        NVML_ERROR_GPU_IS_LOST=GPU_IS_LOST,
        shut=shut,
    )
    vars(module).update(functions)
    return module


def test_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    version, cards, _ = inventory.nvml()
    assert version == "580.95.05"
    assert [(card.index, card.minor, card.uuid, card.memory_mib) for card in cards] == [
        (0, 0, "GPU-0", 143771),
        (1, 1, "GPU-1", 143771),
    ]
    assert {card.architecture for card in cards} == {"hopper"}
    # What RM calls the card: 0000:17:00 is 0x1700.
    assert [card.gpu_id for card in cards] == [0x1700, 0x1800]
    assert module.shut == [True]


def test_exclusive_process_mode_is_reported(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    modes = {0: 0, 1: 3}
    monkeypatch.setitem(sys.modules, "pynvml", fake(nvmlDeviceGetComputeMode=modes.__getitem__))
    for card in inventory.nvml().cards:
        inventory.see_compute_mode(card)
    [line] = capfd.readouterr().err.splitlines()
    assert "event=compute-mode-exclusive card=1 mode=3" in line
    assert "nvidia-smi -i GPU-1 -c DEFAULT" in line


def test_missing_driver_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake()

    def init() -> None:
        raise NvmlError("Driver Not Loaded")

    vars(module)["nvmlInit"] = init
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with pytest.raises(Refusal, match="Driver Not Loaded"):
        inventory.nvml()


def test_mig_instances_are_cards_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def instance(index: int, number: int) -> tuple[int, int]:
        if number == 1:
            raise NvmlError("Not Found")
        return index, number

    module = fake(
        nvmlDeviceGetMigMode=lambda index: (index == 1, index == 1),
        nvmlDeviceGetMaxMigDeviceCount=lambda _index: 3,
        nvmlDeviceGetMigDeviceHandleByIndex=instance,
        nvmlDeviceGetGpuInstanceId=lambda device: 7 + device[1],
        nvmlDeviceGetComputeInstanceId=lambda _device: 0,
        nvmlDeviceGetUUID=lambda device: (
            f"MIG-{device[1]}" if isinstance(device, tuple) else f"GPU-{device}"
        ),
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(
            total=(17920 if isinstance(device, tuple) else 143771) << 20
        ),
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    cards = inventory.nvml().cards
    assert [(card.index, card.minor, card.uuid, card.memory_mib, card.instance) for card in cards] == [
        (0, 0, "GPU-0", 143771, None),
        (1, 1, "MIG-0", 17920, (7, 0)),
        (2, 1, "MIG-2", 17920, (9, 0)),
    ]
    # The card below is the same to RM.
    assert [card.gpu_id for card in cards] == [0x1700, 0x1800, 0x1800]


def test_compute_instances_of_one_gpu_instance_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    instances = [(1, 0), (1, 1), (1, 2), (2, 0)]

    def instance(_index: int, number: int) -> tuple[int, int]:
        if number >= len(instances):
            raise NvmlError("Not Found")
        return instances[number]

    module = fake(
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetMigMode=lambda _index: (1, 1),
        nvmlDeviceGetMaxMigDeviceCount=lambda _index: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=instance,
        nvmlDeviceGetGpuInstanceId=lambda device: device[0],
        nvmlDeviceGetComputeInstanceId=lambda device: device[1],
        nvmlDeviceGetUUID=lambda device: f"MIG-{device}",
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(
            total=(60000 if device[0] == 1 else 17920) << 20
        ),
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    cards = inventory.nvml().cards
    assert [(card.instance, card.memory_mib) for card in cards] == [
        ((1, 0), 20000),
        ((1, 1), 20000),
        ((1, 2), 20000),
        ((2, 0), 17920),
    ]


def test_mig_that_nvml_does_not_know_of_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(_index: int) -> None:
        raise NvmlError("Not Supported")

    monkeypatch.setitem(sys.modules, "pynvml", fake(nvmlDeviceGetMigMode=unsupported))
    assert [card.instance for card in inventory.nvml().cards] == [None, None]


def test_lost_card_is_left_out_and_the_others_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(index: int) -> int:
        if index == 0:
            error = NvmlError("GPU is lost")
            error.value = GPU_IS_LOST
            raise error
        return index

    monkeypatch.setitem(sys.modules, "pynvml", fake(nvmlDeviceGetHandleByIndex=handle))
    assert [(card.index, card.uuid) for card in inventory.nvml().cards] == [(0, "GPU-1")]


def test_other_error_of_a_card_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(_index: int) -> int:
        raise NvmlError("Unknown Error")

    monkeypatch.setitem(sys.modules, "pynvml", fake(nvmlDeviceGetHandleByIndex=handle))
    with pytest.raises(NvmlError):
        inventory.nvml()


def card(index: int, uuid: str) -> CardInfo:
    return CardInfo(index=index, minor=index, uuid=uuid, name="H200", memory_mib=1024, gpu_id=index)


@pytest.mark.parametrize(
    ("found", "known", "used", "numbers"),
    [
        (["a", "b"], {}, [], {"a": 0, "b": 1}),
        # The first card is gone, and NVML counts from 0 again.
        (["b"], {"a": 0, "b": 1}, [], {"b": 1}),
        (["b", "c"], {"a": 0, "b": 1}, [], {"b": 1, "c": 2}),
        (["c", "b"], {"b": 1}, [0], {"c": 2, "b": 1}),
        (["a", "b"], {"b": 0}, [], {"a": 1, "b": 0}),
    ],
)
def test_cards_keep_their_numbers(
    found: list[str], known: dict[str, int], used: list[int], numbers: dict[str, int]
) -> None:
    cards = [card(index, uuid) for index, uuid in enumerate(found)]
    assert {each.uuid: each.index for each in inventory.numbered(cards, known, used)} == numbers


def test_gpus_that_are_let_go_of_are_not_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NVML opens a GPU when its handle is asked for."""
    for place in ("0000:17:00.0", "0000:18:00.0", "0001:17:00.0"):
        (tmp_path / place).mkdir()
    opened = []

    def handle(place: bytes) -> int:
        opened.append(place)
        return 1

    module = fake(
        nvmlDeviceGetHandleByIndex=lambda _index: pytest.fail("by its number"),
        nvmlDeviceGetHandleByPciBusId=handle,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(inventory, "GPUS_DIR", str(tmp_path))
    assert [card.uuid for card in inventory.nvml({0x1700, 1 << 16 | 0x1700}).cards] == ["GPU-1"]
    assert opened == [b"0000:18:00.0"]
