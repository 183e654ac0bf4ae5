"""Taichi, as it comes from PyPI: its own compiler makes kernels for a card, and launches them.

Prints one JSON document. A simulated card runs no machine code, so a field stays zero.
"""

import json

import pynvml
import taichi as ti


def used_mib() -> int:
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    return int(pynvml.nvmlDeviceGetMemoryInfo(card).used) >> 20


def main() -> None:
    pynvml.nvmlInit()
    before = used_mib()
    ti.init(arch=ti.cuda, offline_cache=False)
    field = ti.field(ti.f32, shape=1 << 20)
    field.fill(3)
    ti.sync()
    seen = {
        "arch": ti.lang.impl.current_cfg().arch.name,
        "takes_memory": used_mib() > before,
        "value": field[5],
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
