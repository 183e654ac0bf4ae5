"""Real cards, from an NVML that answers as its documentation says."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from native_sched.daemon.node import inventory
from oci_specs.refusal import Refusal


class NvmlError(Exception):
    pass


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
        shut=shut,
    )
    vars(module).update(functions)
    return module


def test_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    version, cards = inventory.nvml()
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
    inventory.nvml()
    [line] = capfd.readouterr().err.splitlines()
    assert "event=compute-mode-exclusive card=1 mode=3" in line
    assert "nvidia-smi -i 1 -c DEFAULT" in line


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
    _, cards = inventory.nvml()
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
    cards = inventory.nvml()[1]
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
    assert [card.instance for card in inventory.nvml()[1]] == [None, None]
