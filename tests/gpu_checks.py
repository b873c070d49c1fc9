"""What the tests on a GPU share: the same half-step on the device and on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from klnmf.backends.base import Fixed, RowTotals, Rule
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.cuda.backend import CudaBackend
from klnmf.data.sparse_data import InMemoryData
from strategies import Case

Array = np.ndarray


def on_both(
    data: InMemoryData, case: Case, mode: int, rule: Rule | None, **penalties: Any
) -> list[tuple[RowTotals, Array, RowTotals]]:
    """Totals of a half-step (None: none), the new x and its evaluation: on the GPU, on the CPU."""
    results = []
    for backend in (CudaBackend(data), CpuBackend(data, 2)):
        x, A = (backend.upload(f, m) for m, f in enumerate((case.W, case.H)))
        x, A = (x, A) if mode == 0 else (A, x)
        fixed = Fixed(mode, (A,), **penalties)
        before = backend.evaluate(x, fixed) if rule is None else backend.update_rows(x, fixed, rule)
        after = backend.evaluate(x, fixed)
        results.append((before, np.array(backend.download(x)), after))
    return results
