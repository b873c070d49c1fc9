"""Texts and numbers of the report: the fit, the data, the versions."""

import math
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from klnmf.estimators.fitted import ROUNDING, bound_in_words
from klnmf.objective import kl_divergence
from klnmf.report.gathering import Described
from klnmf.report.tensors import DescribedTensor, tensor_rows
from klnmf.report.vocabulary import counted
from klnmf.support.descriptions import described as in_words
from klnmf.support.descriptions import percentage
from klnmf.support.result_tables import ResultTable
from klnmf.uncertainty.equal_fits import equal_fits_in_words

Subject = Described | DescribedTensor
_PACKAGES = ("klnmf", "numpy", "scipy", "scikit-learn")


class Verdict(NamedTuple):
    """Whether the fit converged, in words."""

    converged: bool
    badge: str
    heading: str
    sentence: str


def verdict(described: Subject) -> Verdict:
    """Say whether the fit converged, what that means, and what to do if it did not."""
    model, components = described.model, f"{described.terms.component}s"
    iterations = counted(model.n_iter_, "iteration")
    seconds, gap = _seconds(model), _gap_in_words(model, components)
    gap += _divergence_in_words(described)
    if model.converged_ and not model.n_iter_:
        return Verdict(
            True,
            "not fitted",
            f"The {components} were given",
            f"They are means of a posterior, or known from elsewhere, not from a fit. {gap}",
        )
    # Means of a posterior are never 0, so that they could always be moved a little.
    gap += _equal_fits_in_words(described)
    if model.converged_:
        return Verdict(
            True,
            "converged",
            "The fit converged",
            f"It took {iterations} and {seconds}. {gap} Data often allow several such solutions: "
            f"another seed may give slightly different {components}.",
        )
    if model.n_iter_ < model.max_iter and _is_changed(model):
        return Verdict(
            False,
            "changed after the fit",
            f"The {components} were changed after the fit",
            f"It took {iterations} and {seconds}. Then {components} were merged or changed, so the "
            f"objective is higher than after the fit. {gap}",
        )
    if model.n_iter_ < model.max_iter:
        reason = "It was stopped by a callback or by the user "
        advice = "Fit again without stopping it."
    else:
        reason = f"It reached max_iter = {model.max_iter} and stopped "
        advice = (
            "Increase max_iter, or continue this fit with warm_start=True. If this is close enough "
            "for you, increase tol."
        )
    return Verdict(
        False,
        "not converged",
        "The fit did not converge",
        f"{reason}after {iterations} and {seconds}. {gap} The {components} may still change. "
        f"{advice}",
    )


def _is_changed(model: Any) -> bool:
    """Whether the model fits worse than its last iteration did, or it is not known how well."""
    last = model.history_[-1].get("divergence", math.inf) if model.history_ else math.inf
    return not model.divergence_ <= last


def _gap_in_words(model: Any, components: str) -> str:
    bound = bound_in_words(model)
    if bound is None:
        return "How much lower the objective could be is unknown."
    if bound != ROUNDING:
        bound += f" (tol = {percentage(model.tol)})"
    changing = f"Changing only W, or only the {components},"
    if hasattr(model, "factors_"):
        changing = "Changing the factor of any one mode"
    return f"{changing} cannot lower the objective by more than {bound}."


def _equal_fits_in_words(described: Subject) -> str:
    if isinstance(described, DescribedTensor):
        return ""
    said = equal_fits_in_words(described.W, described.components, described.terms.component)
    return f" {said}" if said else ""


def _divergence_in_words(described: Subject) -> str:
    """Say what the divergence is and, if it is known, what one component would leave."""
    value, explained = described.model.divergence_, _explained(described)
    if not math.isfinite(value):
        return ""
    less = ""
    if explained is not None:
        less = f", {_percent(explained)} less than with one {described.terms.component}"
    return f" The KL divergence is {_count(value)}{less}."


class RankFacts(NamedTuple):
    """How the rank was chosen."""

    agrees: bool  # whether the model has a rank that was chosen
    heading: str
    table: ResultTable


def rank_facts(described: Subject, selection: Any) -> RankFacts:
    """Return what a rank selection found, in words and as its own table."""
    best, n_components = selection.best_rank, described.n_components
    agrees = n_components in (best, selection.stable_rank)
    heading = f"Held-out counts suggest {counted(best, described.terms.component)}"
    if selection.stable_rank < best:
        heading += f", and {selection.stable_rank} for reading"
    if not agrees:
        heading += f"; this model has {n_components}"
    return RankFacts(agrees, heading, selection._shown())


def check_intervals(described: Subject, intervals: Any) -> None:
    """Refuse what is not a result with intervals, or is about another model."""
    sizes = getattr(getattr(intervals, "sizes", None), "estimate", None)
    if not isinstance(sizes, np.ndarray) or not hasattr(intervals, "_shown"):
        given = in_words(intervals)
        raise TypeError(f"intervals must be what posterior or bootstrap returns; got {given}.")
    if sizes.size != described.n_components:
        raise ValueError(
            f"intervals are about {sizes.size} components, and the model has "
            f"{described.n_components}. Pass the result for this model."
        )


def data_rows(described: Subject) -> list[tuple[str, str]]:
    """Shape, sparsity and counts of the data; only the shape if X was not given."""
    if isinstance(described, DescribedTensor):
        rows = tensor_rows(described)
        return [(name, v if isinstance(v, str) else _count(v)) for name, v in rows]
    n_samples, n_features = len(described.W), described.components.shape[1]
    sample, feature, _ = described.terms
    shape = f"{_count(n_samples)} × {_count(n_features)}"
    size = (f"{sample}s × {feature}s".capitalize(), shape)
    X = described.X
    if X is None:
        return [size, ("Counts", "not included in this report")]
    sums, distinct = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel(), np.diff(X.indptr)
    used = np.count_nonzero(np.bincount(X.indices, minlength=n_features))
    return [
        size,
        ("Nonzeros", _count(X.nnz)),
        ("Zeros", _percent(1.0 - X.nnz / (n_samples * n_features), digits=2)),
        ("Sum of all counts", _count(float(sums.sum()))),
        (f"Counts per {sample} (median)", _count(float(np.median(sums)))),
        (f"Distinct {feature}s per {sample} (median)", _count(float(np.median(distinct)))),
        (f"Empty {sample}s", _count(int(np.count_nonzero(distinct == 0)))),
        (f"{feature}s that never occur".capitalize(), _count(n_features - int(used))),
    ]


def version_rows() -> list[tuple[str, str]]:
    """List when and with which versions the report was written."""
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [
        ("Report written", written),
        *((package, version(package)) for package in _PACKAGES),
        ("Python", platform.python_version()),
        ("Platform", f"{platform.system()} {platform.machine()}"),
    ]


def _explained(described: Subject) -> float | None:
    """Share by which the divergence is below that of one topic; None without the fitted data."""
    if isinstance(described, DescribedTensor):
        single = described.divergence_of_one_component()
    elif (X := described.X) is None or X.nnz == 0:
        return None
    else:
        rows, columns = (X.sum(axis=axis, dtype=np.float64) for axis in (1, 0))
        single = kl_divergence(X, rows[:, None], columns[None] / columns.sum())
    below = 1.0 - described.model.divergence_ / single if single > 0.0 else -1.0
    return below if 0.0 <= below <= 1.0 else None


def _count(value: float) -> str:
    """Whole numbers with commas; others with a few digits."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) or abs(value) >= 1000.0:
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:.4g}"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100.0 * share:.{digits}f}\u00a0%"


def _seconds(model: Any) -> str:
    value = float(model.history_[-1]["seconds"]) if model.history_ else math.nan
    if not math.isfinite(value):
        return "unknown time"
    return f"{value:.3g} s" if value < 100.0 else f"{value:,.0f} s"
