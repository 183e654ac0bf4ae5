"""JAX: a compiled product, with a small part of the card's memory."""

from __future__ import annotations

import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.05")

from report import Report

report = Report("jax_work")
report.step = "import jax"
begin = time.monotonic()
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

report.facts["import_s"] = round(time.monotonic() - begin, 1)


def device() -> str:
    found = jax.devices()[0]
    if found.platform not in ("gpu", "cuda"):
        raise RuntimeError(f"platform {found.platform}")
    return str(found.device_kind)


def product() -> float:
    one = jnp.ones((256, 256), dtype=jnp.float32)
    out = jax.jit(lambda x: jnp.tanh(x @ x * 0) + x)(one).block_until_ready()
    total = float(out.sum())
    if total != 65536.0:
        raise RuntimeError(f"sum {total}")
    return total


report.check("device", device)
report.check("product", product)
report.finish()
