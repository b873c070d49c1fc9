"""Some rows of a mode on the device of a worker: half-steps on NumPy arrays."""

from __future__ import annotations

import os

import numpy as np

from klnmf.backends.base import Fixed, Rule
from klnmf.backends.cpu import RowResults
from klnmf.backends.cuda.backend import CudaBackend
from klnmf.data.sparse_data import CountData, RowView
from klnmf.support.array_types import Array


def worker_has_device() -> bool:
    """Whether this process was given a GPU, as dask-cuda gives one to each of its workers."""
    return bool(os.environ.get("CUDA_VISIBLE_DEVICES")) and CudaBackend.available() is None


class OneMode(CountData):
    """Rows of one mode, as if they were all of X."""

    def __init__(self, view: RowView) -> None:
        self.shape, self.dtype = (view.n_rows, view.n_columns), np.dtype(np.float32)
        self._view = view

    def view(self, mode: int) -> RowView:
        """See :class:`CountData`."""
        assert mode == 0
        return self._view


class PartOnDevice:
    """A part of X that stays on the device, for rows of factors that come and go."""

    def __init__(self, view: RowView) -> None:
        self._backend = CudaBackend(OneMode(view))

    @staticmethod
    def can_do(x: Array, rule: Rule | None = None) -> bool:
        """Whether the device has what is needed: float32, rank and rule."""
        is_known = rule is None or type(rule) in CudaBackend.rules
        most = CudaBackend.most_components
        return x.dtype == np.float32 and is_known and (most is None or x.shape[1] <= most)

    def update(self, x: Array, fixed: Fixed, rule: Rule) -> tuple[Array, RowResults]:
        """Return x after a rule, and what it says of every row."""
        backend = self._backend
        factor = backend.upload(x, 0)
        backend.update_rows(factor, self._uploaded(fixed), rule)
        return backend.download(factor), backend.results_by_row(0)

    def evaluate(self, x: Array, fixed: Fixed, want_residual: bool) -> RowResults:
        """Return values and, if wanted, residuals and gaps."""
        backend = self._backend
        backend.evaluate(backend.upload(x, 0), self._uploaded(fixed), want_residual)
        return backend.results_by_row(0)

    def _uploaded(self, fixed: Fixed) -> Fixed:
        """Return the same with the other factor on the device; it is another one in every step."""
        return fixed._replace(mode=0, factors=(self._backend.upload(fixed.factors[0], 1),))
