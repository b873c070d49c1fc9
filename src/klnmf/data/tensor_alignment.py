"""Tensors of other libraries, and new ones in the order of those that a model was fitted to."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.tensor_checks import default_names
from klnmf.data.validation import warn_caller
from klnmf.support.descriptions import described, percentage


def tensor_of(X: Any, name: str) -> SparseTensor:
    """Return X as a tensor; ``name`` is that of the estimator or function."""
    if isinstance(X, SparseTensor):
        return X
    if all(hasattr(X, part) for part in ("subs", "vals", "shape")):
        return SparseTensor.from_pyttb(X)
    if sp.issparse(X):
        matrix = X.tocoo()
        return SparseTensor([matrix.row, matrix.col], matrix.data, matrix.shape)
    if all(hasattr(X, part) for part in ("coords", "data", "fill_value")) or hasattr(X, "tocoo"):
        return SparseTensor.from_sparse(X)
    if isinstance(X, np.ndarray | list | tuple):
        dense = np.asarray(X)
        if dense.ndim >= 2 and dense.dtype.kind in "biuf":
            places = np.nonzero(dense)
            return SparseTensor(np.array(places), dense[places], dense.shape)
    raise TypeError(
        f"{name} takes a klnmf.SparseTensor, a sparse.COO, a pyttb.sptensor or an array with two "
        f"or more modes; got {described(X)}. Of a table of events, "
        "klnmf.SparseTensor.from_events makes a tensor."
    )


def aligned(
    X: SparseTensor, shape: Sequence[int], labels: Sequence[Any], names: Sequence[str]
) -> SparseTensor:
    """Return a tensor whose modes, the first one left out, have these sizes and labels.

    Slices of labels that X does not have are empty. Those of other labels are left out.
    """
    if X.ndim != len(shape):
        raise ValueError(f"X has {X.ndim} modes, but the model was fitted to {len(shape)}.")
    unnamed = default_names(X.ndim)
    if tuple(X.mode_names) != tuple(names) and unnamed not in (X.mode_names, tuple(names)):
        own, of_model = (", ".join(map(repr, each)) for each in (X.mode_names, names))
        raise ValueError(
            f"X has the modes {own}, but the model was fitted to {of_model}. Make a tensor with "
            "the same modes in the same order."
        )
    coords, values, kept = list(X.coords), X.values, np.ones(X.nnz, dtype=bool)
    for mode in range(1, len(shape)):
        known, own = labels[mode], X.labels[mode]
        if known is None or own is None:
            if X.shape[mode] != shape[mode]:
                raise ValueError(
                    f"X has {X.shape[mode]:,} rows in the mode {names[mode]!r}, but the model was "
                    f"fitted to {shape[mode]:,}. With labels, rows would be matched by them."
                )
            continue
        if list(known) == list(own):
            continue
        number = {label: place for place, label in enumerate(known)}
        places = np.array([number.get(label, -1) for label in own], dtype=np.int32)
        coords[mode] = places[coords[mode]]
        kept &= coords[mode] >= 0
    if X.nnz and not kept.any():
        raise ValueError(
            "The model knows none of the labels of X. Are they spelled as in the fit, such as '7' "
            "and not '007'?"
        )
    if not kept.all():
        lost = float(values[~kept].sum(dtype=np.float64)) / X.total
        warn_caller(
            f"{percentage(lost)} of the counts of X have labels that the model does not know, and "
            "are left out.",
            UserWarning,
        )
    stacked = np.stack(coords)[:, kept]
    return SparseTensor(
        stacked, values[kept], (X.shape[0], *shape[1:]), labels=(X.labels[0], *labels[1:])
    )
