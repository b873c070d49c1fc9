"""A back-end whose factors are no NumPy arrays, as on a GPU: only its verbs can read them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from klnmf.backends.cpu import CpuBackend

Array = np.ndarray


class OpaqueFactor:
    """A factor with a shape and a type, and nothing else to see."""

    def __init__(self, hidden: Array) -> None:
        self._hidden = hidden

    @property
    def shape(self) -> tuple[int, int]:
        return self._hidden.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._hidden.dtype

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise TypeError("This factor is on a device: use a verb of the back-end.")


def _seen(argument: Any) -> Any:
    return argument._hidden if isinstance(argument, OpaqueFactor) else argument


def _verb(name: str, *, gives_factor: bool, takes_factor: bool = True) -> Any:
    on_arrays = getattr(CpuBackend, name)

    def verb(self: CpuBackend, *arguments: Any, **settings: Any) -> Any:
        if takes_factor and not any(isinstance(each, OpaqueFactor) for each in arguments):
            raise TypeError(f"{name} was given no factor of this back-end")
        result = on_arrays(self, *map(_seen, arguments), **settings)
        return OpaqueFactor(result) if gives_factor else result

    return verb


class OpaqueBackend(CpuBackend):
    """The C++ core behind a wall."""

    name: ClassVar[str] = "opaque"

    for _name in ("upload", "restore"):
        locals()[_name] = _verb(_name, gives_factor=True, takes_factor=False)
    for _name in ("copy", "converted", "extrapolated"):
        locals()[_name] = _verb(_name, gives_factor=True)
    for _name in (
        "count_zeros",
        "dense_product",
        "evaluate",
        "merge_columns",
        "penalised_sums",
        "scale_columns",
        "take_rows",
        "update_rows",
    ):
        locals()[_name] = _verb(_name, gives_factor=False)
    del _name

    # The core's code calls these with arrays as well.
    def column_sums(self, factor: Any) -> Array:
        return super().column_sums(_seen(factor))

    def column_squares(self, factor: Any) -> Array:
        return super().column_squares(_seen(factor))

    def slopes(self, A: Any, l1: float) -> Array:
        return super().slopes(_seen(A), l1)

    def download(self, factor: Any) -> Array:
        return super().download(factor._hidden)

    def snapshot(self, array: Any) -> Array:
        return super().snapshot(_seen(array))  # a dense product is a NumPy array here
