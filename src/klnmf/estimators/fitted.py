"""What a fitted KLNMF shows of itself, and the checks of attributes that are passed to it."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.validation import checked_input
from klnmf.solvers.loop import Record, record_fields
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.descriptions import listed, percentage
from klnmf.support.result_tables import Column, ResultTable, badge

ROUNDING = "rounding"


def bound_in_words(model: Any) -> str | None:
    """Return by how much another W or H could lower the objective at most; None if unknown.

    A fit may converge with a gap above ``tol``: then X is fitted nearly exactly, and both the
    objective and the bound are rounding.
    """
    gap = model.optimality_gap_
    if model.converged_ and gap > model.tol:
        return ROUNDING
    return percentage(gap) if math.isfinite(gap) else None


def fit_in_html(model: Any, size: dict[str, str]) -> str:
    """Return whether a fit converged and its figures, as a badge and a table of one row."""
    figures = {
        "components": str(model.n_components_),
        **size,
        "KL divergence": f"{model.divergence_:,.6g}",
        "optimality gap": bound_in_words(model) or "unknown",
        "iterations": f"{model.n_iter_:,}",
    }
    state = badge("converged" if model.converged_ else "not converged", is_good=model.converged_)
    columns = [Column(title, [text]) for title, text in figures.items()]
    return f'<div style="margin: 0.6em 0">{state}</div>{ResultTable(columns).html()}'


def components_as_given(given: Any) -> Any:
    """Return components as an array or a CSR array of nonnegative numbers."""
    components = checked_input(
        given, "components", dtype=[np.float64, np.float32], ensure_all_finite=True
    )
    values = components.data if sp.issparse(components) else components
    if values.min(initial=0) < 0:
        raise ValueError(f"components must be nonnegative; the least is {values.min():g}.")
    return components


def checked_feature_names(given: Iterable[str] | None, n_features: int) -> Array | None:
    """Return the names of the features."""
    if given is None:
        return None
    names = listed(given, "feature_names")
    if len(names) != n_features or not all(isinstance(name, str) for name in names):
        raise ValueError(f"feature_names must be {n_features:,} strings, one per feature.")
    return np.array(names, dtype=object)


def checked_history(given: Sequence[Record]) -> list[Record]:
    """Return records that hold what a fit records, all of them the same fields."""
    records = list(given)
    if not all(isinstance(record, dict) for record in records):
        raise TypeError("history must be a list of dicts, as history_ is.")
    fields = record_fields(2).union(*records[:1])
    for i, record in enumerate(records):
        if missing := fields - record.keys():
            raise ValueError(f"Record {i} of the history has no {min(missing)!r}.")
    return records


def checked_sums(given: Any, n_components: int) -> FloatArray | None:
    """W_sums as float64."""
    if given is None:
        return None
    sums = np.asarray(given, dtype=np.float64)
    if sums.shape != (n_components,) or not (np.isfinite(sums) & (sums >= 0)).all():
        raise ValueError(
            f"W_sums must be {n_components} nonnegative finite numbers, one per component; got "
            f"{sums.tolist() if sums.size < 10 else f'an array of shape {sums.shape}'}."
        )
    return sums.copy()
