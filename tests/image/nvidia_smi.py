#!/usr/bin/env python3
"""What nvidia-smi is asked most, answered through NVML for simulated GPUs: NVIDIA's needs NVIDIA's libraries.

This is mgpu's own, with nothing of NVIDIA's in it. With a real GPU the node's nvidia-smi takes its place.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import pynvml as nvml

MIB = 1 << 20
OURS = "mgpu's look-alike of nvidia-smi, for simulated GPUs"
Query = tuple[Callable[[Any], object], str]


def memory(member: str) -> Callable[[Any], object]:
    return lambda gpu: getattr(nvml.nvmlDeviceGetMemoryInfo(gpu), member) // MIB


def use(member: str) -> Callable[[Any], object]:
    return lambda gpu: getattr(nvml.nvmlDeviceGetUtilizationRates(gpu), member)


QUERIES: dict[str, Query] = {
    "index": (nvml.nvmlDeviceGetIndex, ""),
    "name": (nvml.nvmlDeviceGetName, ""),
    "uuid": (nvml.nvmlDeviceGetUUID, ""),
    "driver_version": (lambda gpu: nvml.nvmlSystemGetDriverVersion(), ""),
    "memory.total": (memory("total"), "MiB"),
    "memory.used": (memory("used"), "MiB"),
    "memory.free": (memory("free"), "MiB"),
    "utilization.gpu": (use("gpu"), "%"),
}


def gpus() -> Iterator[Any]:
    for index in range(nvml.nvmlDeviceGetCount()):
        yield nvml.nvmlDeviceGetHandleByIndex(index)


def of(gpu: Any, name: str) -> object:
    return QUERIES[name][0](gpu)


def table() -> Iterator[str]:
    yield f"{OURS}; driver {nvml.nvmlSystemGetDriverVersion()}"
    yield "GPU  Name                              Memory used / total     Util"
    for gpu in gpus():
        held = f"{of(gpu, 'memory.used')}MiB / {of(gpu, 'memory.total')}MiB"
        yield f"{of(gpu, 'index')!s:>3}  {of(gpu, 'name')!s:<32}  {held:<22} {of(gpu, 'utilization.gpu')!s:>4}%"
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu):
            held = f"{(process.usedGpuMemory or 0) // MIB}MiB"
            yield f"     process {process.pid:<24}  {held}"


def query(names: list[str], form: list[str]) -> Iterator[str]:
    units = "nounits" not in form
    if "noheader" not in form:
        yield ", ".join(
            f"{name} [{QUERIES[name][1]}]" if QUERIES[name][1] and units else name for name in names
        )
    for gpu in gpus():
        yield ", ".join(f"{of(gpu, name)} {QUERIES[name][1] if units else ''}".rstrip() for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(prog="nvidia-smi", description=f"{OURS}.")
    parser.add_argument("-L", "--list-gpus", action="store_true")
    parser.add_argument("--query-gpu", metavar=",".join(QUERIES))
    parser.add_argument("--format", default="csv", metavar="csv[,noheader][,nounits]")
    asked = parser.parse_args()
    names = [name.strip() for name in asked.query_gpu.split(",")] if asked.query_gpu else []
    if unknown := [name for name in names if name not in QUERIES]:
        parser.error(f"{unknown[0]} is not known here: {', '.join(QUERIES)}")
    try:
        nvml.nvmlInit()
        if asked.list_gpus:
            lines: Iterator[str] = (
                f"GPU {of(gpu, 'index')}: {of(gpu, 'name')} (UUID: {of(gpu, 'uuid')})" for gpu in gpus()
            )
        else:
            lines = query(names, asked.format.split(",")) if names else table()
        print("\n".join(lines))
    except nvml.NVMLError as error:
        raise SystemExit(f"nvidia-smi: {error}") from None


if __name__ == "__main__":
    main()
