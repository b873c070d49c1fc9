"""What "auto" is in tests with ``--cuda``."""

from __future__ import annotations

from typing import Any

import numpy as np

from klnmf.backends.cpu import CpuBackend
from klnmf.backends.cuda.backend import CudaBackend


class CudaOrCpu(CudaBackend):
    """The GPU for data in float32, the CPU for others."""

    dtypes = ("float32",)

    def __new__(cls, data: Any, n_threads: int | None = None) -> Any:
        if data.dtype == np.float32:
            return super().__new__(cls)
        return CpuBackend(data, n_threads)
