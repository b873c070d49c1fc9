"""A back-end whose factors are no NumPy arrays, as on a GPU: only its verbs can read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NoReturn

import numpy as np

from klnmf.backends.base import Backend, DenseRule, Fixed, RowTotals, Rule
from klnmf.backends.cpu import CpuBackend
from klnmf.data.sparse_data import CountData

Array = np.ndarray


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("This factor is on a device: use a verb of the back-end.")


class OpaqueFactor:
    """A factor with a shape and a type, and nothing else to see."""

    def __init__(self, hidden: Array) -> None:
        assert isinstance(hidden, np.ndarray)
        self._hidden, self.shape, self.dtype = hidden, hidden.shape, hidden.dtype

    for _name in ("array", "len", "iter", "getitem", "setitem", "float", "bool", "eq", "neg"):
        locals()[f"__{_name}__"] = refuse
    for _name in ("add", "sub", "mul", "truediv", "matmul", "pow"):
        for _prefix in ("", "r", "i"):
            locals()[f"__{_prefix}{_name}__"] = refuse
    __hash__ = object.__hash__
    del _name, _prefix


def seen(factor: OpaqueFactor) -> Array:
    """The array in a factor; nothing but a factor is let through."""
    assert type(factor) is OpaqueFactor, f"{type(factor)} is not a factor of this back-end"
    return factor._hidden


def seen_in(fixed: Fixed) -> Fixed:
    """The same with the arrays in its factors."""
    return fixed._replace(factors=tuple(map(seen, fixed.factors)))


class OpaqueBackend(Backend):
    """The C++ core behind a wall: what a new back-end has to write, and nothing more."""

    name: ClassVar[str] = "opaque"
    summary: ClassVar[str] = "the C++ core behind a wall"
    rules: ClassVar[frozenset[type]] = CpuBackend.rules
    constrained_rules: ClassVar[frozenset[type]] = CpuBackend.constrained_rules
    n_made: ClassVar[int] = 0

    def __init__(self, data: CountData, n_threads: int | None = None) -> None:
        type(self).n_made += 1
        self.data, self._cpu = data, CpuBackend(data, n_threads)
        self.narrow_dtype = self._cpu.narrow_dtype

    def made(self, array: Array) -> OpaqueFactor:
        return OpaqueFactor(array)

    # ---- factors ---------------------------------------------------------------------------------

    def upload(self, array: Any, mode: int, dtype: Any = None) -> OpaqueFactor:
        return self.made(self._cpu.upload(array, mode, dtype))

    def download(self, factor: OpaqueFactor, rows: Array | None = None) -> Array:
        return self._cpu.download(seen(factor), rows).copy()

    def copy(self, factor: OpaqueFactor, dtype: Any = None) -> OpaqueFactor:
        return self.made(self._cpu.copy(seen(factor), dtype))

    def scaled(
        self, factor: OpaqueFactor, scales: Array, order: Array | None = None
    ) -> OpaqueFactor:
        return self.made(self._cpu.scaled(seen(factor), scales, order))

    def merged(self, factor: OpaqueFactor, *how: Any) -> OpaqueFactor:
        return self.made(self._cpu.merged(seen(factor), *how))

    def extrapolated(
        self, newest: OpaqueFactor, previous: OpaqueFactor, weight: float, keep: float
    ) -> OpaqueFactor:
        return self.made(self._cpu.extrapolated(seen(newest), seen(previous), weight, keep))

    # ---- sums ------------------------------------------------------------------------------------

    def column_sums(self, factor: OpaqueFactor) -> Array:
        return self._cpu.column_sums(seen(factor))

    def sums_and_squares(self, mode: int, factor: OpaqueFactor) -> tuple[Array, Array]:
        return self._cpu.sums_and_squares(mode, seen(factor))

    def count_zeros(self, factor: OpaqueFactor) -> int:
        return self._cpu.count_zeros(seen(factor))

    # ---- row problems ----------------------------------------------------------------------------

    def update_rows(self, x: OpaqueFactor, fixed: Fixed, rule: Rule) -> RowTotals:
        if isinstance(rule, DenseRule):
            rule = replace(rule, product=seen(rule.product))
        return self._cpu.update_rows(seen(x), seen_in(fixed), rule)

    def evaluate(self, x: OpaqueFactor, fixed: Fixed, *want: bool) -> RowTotals:
        return self._cpu.evaluate(seen(x), seen_in(fixed), *want)
