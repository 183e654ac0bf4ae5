"""Uses of nvidia-ml-py, unmodified, run as `python nvml_cases.py CASE` where ioctls reach a card. Prints
JSON.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

import pynvml


def cards() -> Any:
    pynvml.nvmlInit()
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        pci = pynvml.nvmlDeviceGetPciInfo(handle)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        for same in (
            pynvml.nvmlDeviceGetHandleByUUID(uuid),
            pynvml.nvmlDeviceGetHandleByPciBusId(pci.busId),
        ):
            assert pynvml.nvmlDeviceGetIndex(same) == index
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        assert (memory.total, memory.free, memory.used) == (second.total, second.free, second.used)
        found.append(
            {
                "name": pynvml.nvmlDeviceGetName(handle),
                "uuid": uuid,
                "minor": pynvml.nvmlDeviceGetMinorNumber(handle),
                "pci": pci.busId,
                "capability": pynvml.nvmlDeviceGetCudaComputeCapability(handle),
                "total": memory.total,
                "used": memory.used,
                "processes": [
                    [process.pid, process.usedGpuMemory]
                    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
                ],
                "older": [
                    [process.pid, process.usedGpuMemory]
                    for process in pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
                ],
                "graphics": pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
            }
        )
    driver, cuda = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetCudaDriverVersion()
    pynvml.nvmlShutdown()
    return {"cards": found, "driver": driver, "cuda": cuda}


def errors() -> Any:
    """Names of the errors that misuse and unmeasured things end in."""
    raised = []

    def note(function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except pynvml.NVMLError as error:
            raised.append(type(error).__name__)

    note(pynvml.nvmlDeviceGetCount)
    pynvml.nvmlInit()
    note(pynvml.nvmlDeviceGetHandleByIndex, 99)
    note(pynvml.nvmlDeviceGetHandleByUUID, "GPU-none")
    note(pynvml.nvmlDeviceGetName, pynvml.c_nvmlDevice_t())
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for function in (
        pynvml.nvmlDeviceGetPowerUsage,
        pynvml.nvmlDeviceGetFanSpeed,
        pynvml.nvmlDeviceGetMigMode,
    ):
        note(function, handle)
    note(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    assert pynvml.nvmlSystemGetProcessName(os.getpid()).endswith(("python", "python3", "python3.11"))
    pynvml.nvmlShutdown()
    note(pynvml.nvmlShutdown)
    return raised


def absent() -> Any:
    """What monitors ask of cards that do not have it."""
    pynvml.nvmlInit()
    one = pynvml.nvmlDeviceGetHandleByIndex(0)
    answers = set()
    for name in (
        *("AccountingMode", "Attributes_v2", "BridgeChipInfo", "EncoderStats", "FBCStats", "PcieSpeed"),
        *("GspFirmwareVersion", "RetiredPagesPendingStatus", "RowRemapperHistogram", "SupportedEventTypes"),
    ):
        try:
            getattr(pynvml, f"nvmlDeviceGet{name}")(one)
        except pynvml.NVMLError as error:
            answers.add(type(error).__name__)
    return sorted(answers)


def peers() -> Any:
    """What the first card is to the second, of its kind, and to the third; and its links."""
    pynvml.nvmlInit()
    one, other, third = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(3))

    def link(number: int) -> dict[str, Any]:
        return {
            "active": pynvml.nvmlDeviceGetNvLinkState(one, number),
            "version": pynvml.nvmlDeviceGetNvLinkVersion(one, number),
            "can": [pynvml.nvmlDeviceGetNvLinkCapability(one, number, kind) for kind in range(3)],
            "type": pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(one, number),
        }

    try:
        unlinked = str(pynvml.nvmlDeviceGetNvLinkState(third, 0))
    except pynvml.NVMLError as error:
        unlinked = type(error).__name__
    there = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(one, 0)
    return {
        "ways": [
            [pynvml.nvmlDeviceGetP2PStatus(one, card, index) for index in range(5)]
            for card in (other, third)
        ],
        "levels": [pynvml.nvmlDeviceGetTopologyCommonAncestor(one, card) for card in (one, other)],
        "nearest": [
            len(pynvml.nvmlDeviceGetTopologyNearestGpus(one, level))
            for level in (pynvml.NVML_TOPOLOGY_MULTIPLE, pynvml.NVML_TOPOLOGY_HOSTBRIDGE)
        ],
        "links": [link(0), link(1)],
        "ends": there.busId == pynvml.nvmlDeviceGetPciInfo(other).busId,
        "unlinked": unlinked,
    }


def utilization() -> Any:
    """What each of a card's processes and the card did, once it has been busy for a while; then at rest."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    at_rest = pynvml.nvmlDeviceGetUtilizationRates(handle)
    load = [sys.argv[2], "saturate", "--kernel-us", "1000", "--queue", "64", "--seconds", "600"]
    with subprocess.Popen(load, stdout=subprocess.DEVNULL) as busy:
        while pynvml.nvmlDeviceGetUtilizationRates(handle).gpu < 90:
            time.sleep(0.02)
        processes = pynvml.nvmlDeviceGetProcessUtilization(handle, 0)
        gpustat = subprocess.run(
            [sys.executable, "-m", "gpustat", "--json"], capture_output=True, text=True, check=True
        ).stdout
        other = pynvml.nvmlDeviceGetUtilizationRates(pynvml.nvmlDeviceGetHandleByIndex(1))
        busy.terminate()
        busy.wait()
    while pynvml.nvmlDeviceGetUtilizationRates(handle).gpu:
        time.sleep(0.02)
    return {
        "at_rest": [at_rest.gpu, at_rest.memory],
        "pids": [process.pid == busy.pid for process in processes],
        "used": [process.smUtil for process in processes],
        "gpustat": [gpu["utilization.gpu"] for gpu in json.loads(gpustat)["gpus"]],
        "other": [other.gpu, other.memory],
        "newest_us": processes[0].timeStamp,
    }


def fork() -> Any:
    """A child goes on with its parent's handle."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(1)
    name = pynvml.nvmlDeviceGetName(handle)
    child = os.fork()
    if child == 0:
        os._exit(pynvml.nvmlDeviceGetName(handle) != name)
    status = os.waitpid(child, 0)[1]
    return [status, pynvml.nvmlDeviceGetName(handle)]


def no_driver() -> Any:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return type(error).__name__
    return None


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
