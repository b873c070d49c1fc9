"""The fitted attributes of a KLNMF, and models made from components."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from klnmf.constraints.checks import checked_weights
from klnmf.constraints.names import in_feature_order
from klnmf.data.validation import checked_input
from klnmf.estimators.base import FactorModel
from klnmf.solvers.base import State
from klnmf.solvers.loop import Record, record_fields
from klnmf.support.array_types import FloatArray
from klnmf.support.descriptions import listed
from klnmf.support.percentages import percentage
from klnmf.support.result_tables import Column, ResultTable, ShownBelowDiagram, badge

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


class FittedModel(ShownBelowDiagram, FactorModel):
    """Gives an estimator its fitted attributes, and ``from_components``."""

    feature_weight: Any
    n_iter_: int
    divergence_: float
    optimality_gap_: float
    kkt_residual_: float
    converged_: bool
    history_: list[Record]
    feature_names_in_: Any
    _saved_state: tuple[Any, State] | None = None  # of the last fit, if that had warm_start=True

    @classmethod
    def from_components(
        cls,
        components: Any,
        *,
        feature_names: Iterable[str] | None = None,
        divergence: float = math.nan,
        optimality_gap: float = math.nan,
        kkt_residual: float = math.nan,
        converged: bool | None = None,
        history: Sequence[Record] = (),
        constraint_names: Sequence[str] = (),
        n_fixed_W: int = 0,
        W_sums: Any = None,
        data_checksum: int | None = None,
        **parameters: Any,
    ) -> Self:
        """Return a fitted model with these components.

        It has the methods of a model after ``fit``: ``transform``, ``score``, ``save``. Attributes
        that are not given are NaN, None or empty.

        Parameters
        ----------
        components : {array-like, sparse} of shape (n_components, n_features)
            Nonnegative numbers: ``components_``, which is a copy.
        feature_names : sequence of str, default=None
            Names of the features: ``feature_names_in_``.
        divergence, optimality_gap, kkt_residual : float, default=NaN
            ``divergence_``, ``optimality_gap_`` and ``kkt_residual_``; NaN if unknown.
        converged : bool, default=None
            ``converged_``; None compares ``optimality_gap`` with ``tol``.
        history : sequence of dict, default=()
            Records of the iterations, with all that a fit records: ``history_``, and their number
            ``n_iter_``.
        constraint_names, n_fixed_W, data_checksum : sequence of str, int, int or None
            ``constraint_names_``, ``n_fixed_W_`` and ``data_checksum_``; nothing by default.
        W_sums : array-like of shape (n_components,), default=None
            ``W_sums_``. If unknown, ``score`` takes all components to occur equally often.
        **parameters
            Parameters of the constructor. ``n_components`` is the number of rows by default, and
            ``feature_weight`` becomes ``feature_weight_``.

        Returns
        -------
        KLNMF

        Examples
        --------
        >>> from klnmf import KLNMF
        >>> model = KLNMF.from_components([[0.75, 0.25, 0], [0, 0.5, 0.5]])
        >>> [round(float(count)) for count in model.transform([[9, 7, 4]])[0]]
        [12, 8]
        """
        components = checked_input(
            components, "components", dtype=[np.float64, np.float32], ensure_all_finite=True
        )
        n_components, n_features = components.shape
        values = components.data if sp.issparse(components) else components
        if values.min(initial=0) < 0:
            raise ValueError(f"components must be nonnegative; the least is {values.min():g}.")
        constraint_names = listed(constraint_names, "constraint_names")
        names = None if feature_names is None else listed(feature_names, "feature_names")
        if not 0 <= n_fixed_W <= n_components:
            raise ValueError(f"n_fixed_W must be from 0 to {n_components}, got {n_fixed_W}.")
        model = cls(**{"n_components": n_components, **parameters})
        model._validate_params()
        if model.n_components != n_components:
            raise ValueError(
                f"n_components={model.n_components}, but components has {n_components} rows. "
                "Leave n_components out."
            )
        if names is not None:
            if len(names) != n_features or not all(isinstance(name, str) for name in names):
                raise ValueError(f"feature_names must be {n_features:,} strings, one per feature.")
            model.feature_names_in_ = np.array(names, dtype=object)
        weights = in_feature_order(model.feature_weight, "feature_weight", names)
        model._set_fitted(
            model._as_output(components.copy()),  # the caller may change the array later
            _checked_history(history),
            divergence=divergence,
            optimality_gap=optimality_gap,
            kkt_residual=kkt_residual,
            converged=bool(optimality_gap <= model.tol) if converged is None else converged,
            constraint_names=constraint_names,
            n_fixed_W=n_fixed_W,
            feature_weight=checked_weights(weights, "feature_weight", n_features, components.dtype),
            W_sums=_checked_sums(W_sums, n_components),
            data_checksum=data_checksum,
        )
        return model

    def _fitted_in_html(self) -> str:
        return _fit_in_html(self) if hasattr(self, "components_") else ""

    def _set_fitted(self, components: Any, history: list[Record], **others: Any) -> None:
        """Set all fitted attributes except for the names of the features."""
        self._set_attributes(components, history=history, n_iter=len(history), **others)
        self._saved_state = None


def _fit_in_html(model: Any) -> str:
    """Return whether a fit converged and its figures, as a badge and a table of one row."""
    r, m = model.components_.shape
    figures = {
        "components": str(r),
        "features": f"{m:,}",
        "KL divergence": f"{model.divergence_:,.6g}",
        "optimality gap": bound_in_words(model) or "unknown",
        "iterations": f"{model.n_iter_:,}",
    }
    state = badge("converged" if model.converged_ else "not converged", is_good=model.converged_)
    columns = [Column(title, [text]) for title, text in figures.items()]
    return f'<div style="margin: 0.6em 0">{state}</div>{ResultTable(columns).html()}'


def _checked_history(given: Sequence[Record]) -> list[Record]:
    """Return records that hold what a fit records, all of them the same fields."""
    records = list(given)
    if not all(isinstance(record, dict) for record in records):
        raise TypeError("history must be a list of dicts, as history_ is.")
    fields = record_fields(2).union(*records[:1])
    for i, record in enumerate(records):
        if missing := fields - record.keys():
            raise ValueError(f"Record {i} of the history has no {min(missing)!r}.")
    return records


def _checked_sums(given: Any, n_components: int) -> FloatArray | None:
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
