"""The kernels take arrays of the right type as they are, and refuse all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from klnmf import _core
from klnmf.data.sparse_data import InMemoryData
from strategies import random_case

Array = np.ndarray


def valid_arguments() -> dict[str, Any]:
    case = random_case((6, 8), 3, dtype=np.float32)
    view = InMemoryData(case.X).view(0)
    return {
        "indptr": view.indptr,
        "indices": view.indices,
        "values": view.values,
        "A": case.H,
        "c": case.H.sum(axis=0, dtype=np.float64),
        "l2": 0.0,
        "order": np.arange(3, dtype=np.int32),
        "rounds": 1,
        "sweeps": 1,
        "tolerance": 0.0,
        "want_value": True,
        "n_threads": 1,
        "x": case.W,
        "value": np.zeros(6),
        "kkt": np.zeros(6),
        "gap": np.zeros(6),
    }


def read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


REFUSED: dict[str, tuple[str, Callable[[Array], Any]]] = {
    "x of another float type": ("x", lambda x: x.astype(np.float64)),
    "x of integers": ("x", lambda x: x.astype(np.int32)),
    "x by columns": ("x", np.asfortranarray),
    "x flat": ("x", np.ravel),
    "x as a strided view": ("x", lambda x: np.repeat(x, 2, axis=1)[:, ::2]),
    "x read-only": ("x", read_only),
    "x as a list": ("x", np.ndarray.tolist),
    "value in single precision": ("value", lambda value: value.astype(np.float32)),
    "kkt in single precision": ("kkt", lambda kkt: kkt.astype(np.float32)),
    "gap read-only": ("gap", read_only),
    "kkt with two axes": ("kkt", lambda kkt: kkt[:, None]),
    "A of another float type": ("A", lambda A: A.astype(np.float64)),
    "A by columns": ("A", np.asfortranarray),
    "values in half precision": ("values", lambda values: values.astype(np.float16)),
    "c in single precision": ("c", lambda c: c.astype(np.float32)),
    "narrow indptr": ("indptr", lambda indptr: indptr.astype(np.int32)),
    "wide indices": ("indices", lambda indices: indices.astype(np.int64)),
    "unsigned indices": ("indices", lambda indices: indices.astype(np.uint32)),
    "wide order": ("order", lambda order: order.astype(np.int64)),
    "other byte order": ("x", lambda x: x.astype(x.dtype.newbyteorder())),
}


def test_valid_arguments_are_accepted() -> None:
    arguments = valid_arguments()
    before = arguments["x"].copy()
    _core.guarded_rows(**arguments)
    assert not np.array_equal(arguments["x"], before)


@pytest.mark.parametrize(("argument", "spoil"), REFUSED.values(), ids=REFUSED)
def test_kernels_convert_nothing(argument: str, spoil: Callable[[Array], Any]) -> None:
    arguments = valid_arguments()
    x, before = arguments["x"], arguments["x"].copy()
    arguments[argument] = spoil(arguments[argument])
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _core.guarded_rows(**arguments)
    assert np.array_equal(x, before)


def test_factor_kernels_convert_nothing() -> None:
    factor, sums = np.ones((3, 2)), np.zeros(2)
    for spoiled_factor, spoiled_sums in (
        (factor.astype(np.int64), sums),
        (np.asfortranarray(factor), sums),
        (factor, sums.astype(np.float32)),
        (factor, read_only(sums)),
    ):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            _core.column_powers(spoiled_factor, 1, 1, spoiled_sums)
    with pytest.raises(ValueError, match="power must be 1 or 2"):
        _core.column_powers(factor, 3, 1, sums)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _core.extrapolate(factor, factor.astype(np.float32), 0.5, 0.01, 1, factor.copy())
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _core.extrapolate(factor, factor, 0.5, 0.01, 1, factor.astype(np.float32))
