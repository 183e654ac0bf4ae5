"""PyTorch's profiler, whose records of what the card does come by CUPTI."""

from __future__ import annotations

import collections

from report import Report

report = Report("torch_profile")
report.step = "import torch"
import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402


def measured() -> dict[str, object]:
    one = torch.ones(1024, 1024, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(4):
            product = one @ one
        copy = product.cpu()
        torch.cuda.synchronize()
    kernels: collections.Counter[str] = collections.Counter()
    total = 0.0
    for event in recorded.events():
        if str(event.device_type).endswith("CUDA"):
            took = event.time_range.elapsed_us()
            if took > 0:
                kernels[event.name[:60]] += 1
                total += took
    found: dict[str, object] = {
        "events": kernels.total(),
        "names": dict(kernels),
        "device_us": round(total, 1),
    }
    if float(copy[0, 0]) != 1024 or kernels.total() < 4:
        raise RuntimeError(f"too few: {found}")
    return found


report.check("measured", measured)
report.finish()
