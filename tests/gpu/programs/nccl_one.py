"""NCCL with one rank, and a tensor handed to another process by CUDA's IPC, which reads and writes it."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def other(given: Any, answers: Any) -> None:
    answers.put("up")
    tensor = given.get(timeout=20)
    answers.put(float(tensor.sum()))
    tensor.add_(1)
    torch.cuda.synchronize()
    answers.put("written")
    given.get(timeout=20)  # until the other side has read
    del tensor


def nccl() -> dict[str, object]:
    # Only this machine's own interface, so that nothing is looked for.
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_IB_DISABLE", "1")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl",
            init_method=f"file://{folder}/rendezvous",
            rank=0,
            world_size=1,
            device_id=torch.device("cuda", 0),
        )
        tensor = torch.full((1 << 20,), 3.0, device="cuda")
        dist.all_reduce(tensor)
        gathered = [torch.empty_like(tensor)]
        dist.all_gather(gathered, tensor)
        torch.cuda.synchronize()
        good = bool((tensor == 3).all()) and bool((gathered[0] == 3).all())
        version = ".".join(str(part) for part in torch.cuda.nccl.version())
        dist.destroy_process_group()
    if not good:
        raise RuntimeError("wrong sum")
    return {"version": version}


def main() -> None:
    from report import Report

    report = Report("nccl_one")
    context = mp.get_context("spawn")
    given, answers = context.Queue(), context.Queue()
    process = context.Process(target=other, args=(given, answers), daemon=True)
    process.start()
    report.check("nccl", nccl)

    def ipc() -> dict[str, object]:
        answers.get(timeout=20)
        tensor = torch.full((1 << 20,), 2.0, device="cuda")
        torch.cuda.synchronize()
        given.put(tensor)
        total = answers.get(timeout=20)
        answers.get(timeout=20)
        torch.cuda.synchronize()
        now = float(tensor[-1])
        given.put("read")
        process.join(10)
        if total != 2.0 * (1 << 20) or now != 3.0:
            raise RuntimeError(f"read {total}, then {now}")
        return {"sum": total, "after": now, "exit": process.exitcode}

    report.check("ipc", ipc)
    report.finish()


if __name__ == "__main__":
    main()
