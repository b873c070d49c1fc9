"""Row problems on an NVIDIA GPU: the verbs, on CuPy arrays."""

from __future__ import annotations

import math
import threading
from functools import cache
from typing import Any, ClassVar

import numpy as np

from klnmf.backends.base import Fixed, Improve, Multiply, RowTotals, Rule, Solve
from klnmf.backends.cpu import RowResults, effective_threads
from klnmf.backends.cuda.device_data import DeviceData
from klnmf.backends.cuda.factors import CudaFactor, CudaFactors, add_columns
from klnmf.backends.cuda.modules import MOST_COMPONENTS
from klnmf.backends.cuda.rows import NULL, DeviceRows
from klnmf.data.sparse_data import CountData

DONE, WAITS = 1, 4  # of a row, see kernels/layout.cu
# Sweeps over the model of a step at most, and the share of the first one's largest move at which
# they end: flat around these values.
SWEEPS, LAST_MOVE = 8, 0.2
# No row comes closer in float32.
LEAST_TOLERANCE = 16 * float(np.finfo(np.float32).eps)
OLDEST = (7, 0)  # compute capability


@cache
def _why_not() -> str | None:
    try:
        import cupy as cp
    except ImportError:
        return "CuPy is not installed: pip install 'klnmf[cuda]' (for CUDA 13: cupy-cuda13x)"
    try:
        found = cp.cuda.runtime.getDeviceCount()
        version = cp.cuda.Device().compute_capability if found else ""
    except cp.cuda.runtime.CUDARuntimeError as error:
        return f"no usable NVIDIA GPU and driver ({error})"
    if not found or (int(version[:-1]), int(version[-1])) < OLDEST:
        return "no NVIDIA GPU of compute capability 7.0 or later"
    return None


class CudaBackend(CudaFactors):
    """X on one GPU, by rows and by columns, or streamed to it; factors in float32, sums in float64.

    Every sum has a fixed order: a fit has the same bits on every run on the same kind of GPU,
    whether X fits there or not.
    """

    name: ClassVar[str] = "cuda"
    summary: ClassVar[str] = "CUDA on one NVIDIA GPU, in float32"
    rules: ClassVar[frozenset[type[Rule]]] = frozenset({Improve, Solve, Multiply})
    constrained_rules: ClassVar[frozenset[type[Rule]]] = rules
    most_modes: ClassVar[int | None] = 2
    most_components: ClassVar[int | None] = MOST_COMPONENTS
    checkpoints_of: ClassVar[str | None] = "cpu"  # a fit goes on on the other, to rounding
    values_cost_a_pass: ClassVar[bool] = True
    memory_limit: ClassVar[int | None] = None  # bytes to use of the device at most; None: all

    def __init__(self, data: CountData, n_threads: int | None = None) -> None:
        if data.dtype == np.float64 and not data.is_exact_in_float32:
            raise ValueError(
                "backend='cuda' computes in float32, which cannot hold all values of X (with "
                "their weights) exactly. Pass dtype='float32' to round them, or choose "
                "backend='cpu'."
            )
        self.n_threads = effective_threads(n_threads)
        self.data = DeviceData(data, self.n_threads, self.memory_limit)
        self._lock = threading.RLock()  # runs on several threads share the scratch memory

    @classmethod
    def available(cls) -> str | None:
        """See :class:`~klnmf.backends.base.Backend`."""
        return _why_not()

    @classmethod
    def found_here(cls) -> str:
        """See :class:`~klnmf.backends.base.Backend`."""
        import cupy as cp

        facts = cp.cuda.runtime.getDeviceProperties(cp.cuda.runtime.getDevice())
        version = f"compute capability {facts['major']}.{facts['minor']}"
        slower = "" if facts["major"] >= 8 else ", slower without tensor units for bfloat16"
        return f"{cls.summary} ({facts['name'].decode()}, {version}{slower})"

    def with_threads(self, n_threads: int | None) -> CudaBackend:
        """See :class:`~klnmf.backends.base.Backend`: X is on the device once."""
        return self

    def close(self) -> None:
        """See :class:`~klnmf.backends.base.Backend`."""
        self.data.close()

    # ---- row problems ----------------------------------------------------------------------------

    def update_rows(self, x: CudaFactor, fixed: Fixed, rule: Rule) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        with self._lock:
            half_step = HalfStep(self.data.rows(fixed.mode), x, fixed)
            x.sums = None
            half_step.apply(rule)
            totals = half_step.totals(rule)
            if math.isinf(totals.kkt) and half_step.restarts():
                half_step.apply_again(rule)
                totals = half_step.totals(rule)
            return totals

    def evaluate(self, x: CudaFactor, fixed: Fixed, want_residual: bool = True) -> RowTotals:
        """See :class:`~klnmf.backends.base.Backend`."""
        with self._lock:
            half_step = HalfStep(self.data.rows(fixed.mode), x, fixed)
            half_step.evaluate(with_sums=want_residual)
            return half_step.totals()

    def results_by_row(self, mode: int) -> RowResults:
        """Return what the last half-step or evaluation of a mode says of every row."""
        rows = self.data.rows(mode)
        return RowResults(rows.row_values.get(), rows.kkt.get(), rows.gaps.get())


class HalfStep:
    """Launches over all rows of a mode, for one x and one fixed factor."""

    def __init__(self, rows: DeviceRows, x: CudaFactor, fixed: Fixed) -> None:
        import cupy as cp

        self.rows, self.x, self.A, self.cp = rows, x, fixed.factors[0], cp
        self.layout = x.rank_class
        self.terms = self._terms(fixed)
        self.scratch: tuple[Any, Any] | None = None
        # Of each chunk with tasks that are not done: their numbers (NULL: all), and how many.
        self.left = {number: (NULL, chunk.n_tasks) for number, chunk in enumerate(rows.chunks)}

    def _terms(self, fixed: Fixed) -> tuple[Any, ...]:
        """Arguments of kernels that say what the rows have beside their nonzeros."""
        cp, rows, stride = self.cp, self.rows, self.layout.stride
        with_penalties = fixed.l2 is not None
        shares = rows.shares if with_penalties else NULL
        slopes = cp.empty(stride)
        if fixed.slopes is None:
            self.A.sums = add_columns(self.A, NULL, fixed.l1, slopes)
        else:
            padded = np.zeros(stride)
            padded[: self.x.rank] = fixed.slopes
            slopes = cp.asarray(padded)
        own_slopes: Any = NULL
        rank = np.int32(self.x.rank)
        if rows.missing is not None:
            starts, columns = rows.missing
            count = len(starts) - 1
            own_slopes = cp.zeros((max(count, 1), stride))
            l1 = np.float64(fixed.l1 if shares is NULL else 0.0)
            settings = (self.A.array, np.int64(rows.n_columns), slopes, l1, rank, own_slopes)
            if count:
                self._launch(
                    "observed_slopes", count, 32, (starts, columns, np.int32(count), *settings)
                )
        l2, l1 = np.float64(fixed.l2 or 0.0), np.float64(rows.constraints.l1)
        masks = rows.masks(self.x.rank, stride)
        return (
            *(rank, slopes, l2, rows.own, own_slopes, shares, l1, *masks),
            *(rows.totals, rows.least_root),
        )

    def _launch(
        self, name: str, blocks: int, threads: int, arguments: Any, floats: int = 0
    ) -> None:
        kernel = self.x.kernel(name)
        kernel((blocks,), (threads,), arguments, shared_mem=4 * floats)

    def _over_tasks(self, name: str, arguments: Any, floats: int, warps: int) -> None:
        """Launch a kernel for the tasks that are left, with so much shared memory for a warp."""
        for number, tasks in self.rows.loaded(list(self.left)):
            which, count = self.left[number]
            arrays = (which, np.int32(count), *tasks, self.A.array, self.x.array)
            blocks = -(-count // warps)
            if blocks:
                self._launch(name, blocks, 32 * warps, (*arrays, *arguments), warps * floats)

    @property
    def _long(self) -> tuple[Any, ...]:
        return (self.rows.long_rows, self.rows.first_slots, self.x.array, *self.terms)

    # ---- passes ----------------------------------------------------------------------------------

    def first_order(
        self,
        power: float,
        passed: int = 0,
        *,
        tested: bool = False,
        only_sums: bool = False,
        measured: bool = False,
    ) -> None:
        """S of every row and a multiplicative step, or S alone; see kernels/first_order.cu."""
        rows, layout = self.rows, self.layout
        if self.scratch is None:
            self.scratch = tuple(self.cp.empty_like(self.x.array) for _ in range(2))
        flags = (np.int32(flag) for flag in (passed, tested, only_sums, measured))
        settings = (np.float32(power), *flags, *self.scratch, rows.state, rows.kkt, rows.gaps)
        parts, warps = rows.parts(layout.sums_part, np.float32), layout.warps
        arguments = (*self.terms, *settings, parts)
        self._over_tasks("first_order", arguments, 3 * layout.stride, warps)
        if rows.n_long:
            arguments = (*self._long, *settings, parts)
            self._launch("first_order_long", rows.n_long, 128, arguments)

    def second_order(self, tolerance: float, *, least: bool, measured: bool) -> None:
        """S and M of every row, and a step; see kernels/step.cu."""
        rows, layout, sums = self.rows, self.layout, NULL
        if layout.blocks > 1:
            self.first_order(1.0, only_sums=True)
            assert self.scratch is not None
            sums = self.scratch[1]
        how = (np.int32(SWEEPS), np.float32(LAST_MOVE), np.float64(tolerance))
        flags = (np.int32(least), np.int32(measured))
        settings = (*how, *flags, sums, rows.state, rows.kkt, rows.gaps)
        parts, warps = rows.parts(layout.matrix_part, np.float32), layout.warps
        arguments = (*self.terms, *settings, parts)
        self._over_tasks("second_order", arguments, layout.step_shared, warps)
        if rows.n_long:
            arguments, floats = (*self._long, *settings, parts), layout.step_shared
            self._launch(
                "second_order_long", rows.n_long, 256, arguments, floats + layout.matrix_part
            )

    def evaluate(self, *, with_sums: bool) -> None:
        """Values and, if wanted, residuals and gaps, with all sums in float64."""
        rows, layout = self.rows, self.layout
        results = (rows.row_values, rows.kkt, rows.gaps)
        if not with_sums:  # those of the half-step stay
            results = (rows.row_values, *self.cp.empty((2, rows.n_rows)))
        parts = rows.parts(layout.stride + 2, np.float64)
        floats = -(-layout.stride // 2) * 2 + 2 * layout.stride
        kernel = "evaluate" if with_sums else "value"
        self._over_tasks(kernel, (*self.terms, parts, *results), floats, 1)
        if rows.n_long:
            ends = (np.int32(with_sums), parts, *results)
            self._launch("evaluate_long", rows.n_long, 128, (*self._long, *ends))

    def totals(self, rule: Rule | None = None) -> RowTotals:
        """Return sums over all rows, by blocks in their order; after a rule, what it gives."""
        rows, gives_value = self.rows, rule is None or rule.gives_value
        if rule is not None and gives_value:
            self.evaluate(with_sums=False)
        blocks = max(1, -(-rows.n_rows // 4096))
        out = self.cp.empty((blocks, 3))
        values = rows.row_values if gives_value else NULL
        arguments = (np.int32(rows.n_rows), values, rows.kkt, rows.gaps, out)
        self._launch("totals_of_rows", blocks, 256, arguments)
        of_values, kkt, gaps = out.get().T.tolist()
        return RowTotals(sum(of_values) if gives_value else math.nan, max(kkt), sum(gaps))

    # ---- rules -----------------------------------------------------------------------------------

    def apply(self, rule: Rule) -> None:
        """Apply a rule to every row."""
        self.rows.state[:] = 0
        match rule:
            case Improve():
                for number in range(rule.rounds):
                    self.second_order(rule.tolerance, least=False, measured=number == 0)
            case Multiply():
                for passed in range(rule.relaxed + 1):
                    power = 1.0 if passed == rule.relaxed else 3.0
                    self.first_order(power, passed, tested=rule.relaxed > 0, measured=passed == 0)
            case Solve():
                self._solve(rule)
            case _:
                raise TypeError(f"backend='cuda' has no rule {type(rule).__name__}.")

    def restarts(self) -> bool:
        """Whether rows started evenly and have not moved since; all others are done then."""
        state = self.rows.state
        waits = (state & WAITS) != 0
        state |= self.cp.where(waits, 0, DONE).astype(np.uint8)
        return bool(waits.any())

    def apply_again(self, rule: Rule) -> None:
        """Apply a rule to the rows that started evenly; `Solve` has done so already."""
        if isinstance(rule, Improve):
            self.second_order(rule.tolerance, least=False, measured=False)
        elif isinstance(rule, Multiply):
            self.first_order(1.0)

    def _solve(self, rule: Solve) -> None:
        """Relaxed steps from an even start if cold, then steps on the rows that are not done."""
        if rule.cold:
            arguments = (np.int32(self.rows.n_rows), self.x.array, *self.terms)
            self._launch("start_rows", -(-self.rows.n_rows // 4), 128, arguments)
            powers = [3.0, *[2.0] * (rule.relaxed - 2), 1.5] if rule.relaxed > 1 else [2.0]
            for passed, power in enumerate(powers[: rule.relaxed]):
                self.first_order(power, passed)
        tolerance = max(rule.tolerance, LEAST_TOLERANCE)
        for number in range(rule.rounds):
            self.second_order(tolerance, least=rule.cold and number == 0, measured=number == 0)
            self._find_left()
            if not self.left:
                break

    def _find_left(self) -> None:
        """Leave out the tasks of rows that are done."""
        found = {}
        for number in self.left:
            rows = self.rows.chunks[number].tasks[0]
            left = self.cp.flatnonzero((self.rows.state[rows] & DONE) == 0)
            if len(left):
                found[number] = (left.astype(np.int32), len(left))
        self.left = found
