"""Triton: a sum of vectors, compiled here and now."""

import os
import tempfile

from report import Report

report = Report("triton_work")
folder = tempfile.TemporaryDirectory()
os.environ["TRITON_CACHE_DIR"] = folder.name
report.step = "import triton"
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402


# No annotations but those that Triton reads.
@triton.jit  # type: ignore[untyped-decorator]
def add(x_ptr, y_ptr, out_ptr, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(axis=0) * block + tl.arange(0, block)
    mask = place < n
    x = tl.load(x_ptr + place, mask=mask)
    y = tl.load(y_ptr + place, mask=mask)
    tl.store(out_ptr + place, x + y, mask=mask)


def added() -> str:
    n = 100_000
    x, y = torch.full((n,), 1.0, device="cuda"), torch.full((n,), 2.0, device="cuda")
    out = torch.zeros(n, device="cuda")
    add[(triton.cdiv(n, 1024),)](x, y, out, n, block=1024)
    torch.cuda.synchronize()
    if not bool((out == 3).all()):
        raise RuntimeError("wrong sum")
    return str(triton.__version__)


report.check("added", added)
report.finish()
