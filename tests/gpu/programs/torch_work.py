"""PyTorch: a product in bf16, a CUDA graph, streams, pinned and registered memory, timing; in two children
beside it the allocator by cudaMallocAsync and that by expandable segments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from typing import Any

# By its name, which is a retired one of ours.
PINNED = {"pin_memory": True}
ALLOCATORS = {"async": "backend:cudaMallocAsync", "expandable": "expandable_segments:True"}


def child(kind: str) -> int:
    """Allocates, frees, allocates more, and says by which allocator."""
    import torch

    kept = [torch.full((1 << 20,), float(i), device="cuda") for i in range(4)]
    del kept[1]
    kept.append(torch.full((24 << 20,), 2.0, device="cuda"))
    total = sum(float(each[-1]) for each in kept)
    found: dict[str, object] = {"total": total, "backend": torch.cuda.get_allocator_backend()}
    if kind == "expandable":
        snapshot = torch.cuda.memory_snapshot()
        found["expandable"] = any(segment.get("is_expandable") for segment in snapshot)
        good = found["expandable"]
    else:
        good = found["backend"] == "cudaMallocAsync"
    del kept
    torch.cuda.empty_cache()
    print(json.dumps({"ok": bool(good) and total == 7.0, **found}), flush=True)
    return 0


def number(code: Any) -> int:
    """Of an error that may be an enum."""
    return int(getattr(code, "value", code))


def main() -> None:
    from report import Report

    report = Report("torch_work")
    children = {
        kind: subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), kind],
            env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for kind, conf in ALLOCATORS.items()
    }
    begin = time.monotonic()
    report.step = "import torch"
    import torch

    report.facts["import_s"] = round(time.monotonic() - begin, 1)

    def matmul() -> str:
        one = torch.ones(1024, 1024, device="cuda", dtype=torch.bfloat16)
        product = one @ one
        torch.cuda.synchronize()
        assert bool((product == 1024).all()), "wrong product"
        return str(torch.cuda.get_device_name())

    def graph() -> float:
        static = torch.zeros(256, 256, device="cuda")
        weight = torch.eye(256, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                out = static @ weight + 1
        torch.cuda.current_stream().wait_stream(side)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            out = static @ weight + 1
        for value in (3.0, 5.0):
            static.fill_(value)
            recorded.replay()
        torch.cuda.synchronize()
        assert bool((out == 6).all()), "wrong replay"
        return float(out[0, 0])

    def streams() -> float:
        several = [torch.cuda.Stream(priority=place % 2 - 1) for place in range(4)]
        parts = []
        for stream in several:
            with torch.cuda.stream(stream):
                parts.append(torch.ones(1 << 20, device="cuda").cumsum(0)[-1])
        for stream in several:
            stream.synchronize()
        total = sum(float(part) for part in parts)
        assert total == 4 * (1 << 20), total
        return total

    def pinned() -> bool:
        host = torch.empty(1 << 20, **PINNED)
        host.fill_(3)
        there = host.to("cuda", non_blocking=True)
        back = torch.empty(1 << 20, **PINNED)
        back.copy_(there, non_blocking=True)
        torch.cuda.synchronize()
        assert bool((back == 3).all()), "wrong copy"
        return bool(host.is_pinned())

    def host_registered() -> bool:
        host = torch.full((1 << 20,), 2.0)
        size = host.numel() * host.element_size()
        runtime = torch.cuda.cudart()
        code = number(runtime.cudaHostRegister(host.data_ptr(), size, 0))
        assert code == 0, f"cudaHostRegister: {code}"
        there = host.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        good = bool((there == 2).all())
        code = number(runtime.cudaHostUnregister(host.data_ptr()))
        assert code == 0, f"cudaHostUnregister: {code}"
        assert good, "wrong copy"
        return good

    def events() -> float:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        one = torch.ones(2048, 2048, device="cuda", dtype=torch.bfloat16)
        first.record()
        for _ in range(10):
            _ = one @ one
        last.record()
        last.synchronize()
        blocking = torch.cuda.Event(blocking=True)
        blocking.record()
        blocking.synchronize()
        took = first.elapsed_time(last)
        assert took > 0, took
        return float(round(took, 4))

    for name, call in (
        ("matmul", matmul), ("graph", graph), ("streams", streams), ("pinned", pinned), ("registered", host_registered),
        ("events_ms", events),
    ):  # fmt: skip
        report.check(name, call)

    def awaited(kind: str) -> dict[str, object]:
        text, _ = children[kind].communicate()
        last = [line for line in text.splitlines() if line.startswith("{")]
        found: dict[str, object] = json.loads(last[-1]) if last else {"ok": False, "said": text[-400:]}
        if children[kind].returncode or not found["ok"]:
            raise RuntimeError(f"{children[kind].returncode}: {found}")
        return found

    for kind in ALLOCATORS:
        report.check(kind, partial(awaited, kind))
    report.finish()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(child(sys.argv[1]))
    main()
