"""Texts and numbers of the report: the fit, the data, the versions."""

import math
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from klnmf.estimators.fitted import ROUNDING, bound_in_words
from klnmf.report.gathering import Described
from klnmf.report.measures import one_topic_divergence
from klnmf.report.vocabulary import counted
from klnmf.support.percentages import percentage

_PACKAGES = ("klnmf", "numpy", "scipy", "scikit-learn")


class Verdict(NamedTuple):
    """Whether the fit converged, in words."""

    converged: bool
    badge: str
    heading: str
    sentence: str


class Tile(NamedTuple):
    """A number with its name and something to compare it with."""

    label: str
    value: str
    remark: str


def verdict(described: Described) -> Verdict:
    """Say whether the fit converged, what that means, and what to do if it did not."""
    model, components = described.model, f"{described.terms.component}s"
    iterations = counted(model.n_iter_, "iteration")
    seconds, gap = _seconds(model), _gap_in_words(model, components)
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
            "Increase max_iter, or continue this fit with warm_start=True. If the curves below are "
            "flat enough for you, increase tol."
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
    return f"{changing} cannot lower the objective by more than {bound}."


def fit_tiles(described: Described) -> list[Tile]:
    """List the numbers of the fit."""
    model = described.model
    divergence = "of X from W Hᵀ"
    explained = _explained(described)
    if explained is not None:
        divergence = f"{_percent(explained)} less than with one {described.terms.component}"
    n_components, n_features = described.components.shape
    return [
        Tile("KL divergence", _count(model.divergence_), divergence),
        Tile(
            "Optimality gap", bound_in_words(model) or "unknown", f"tol = {percentage(model.tol)}"
        ),
        Tile("Iterations", _count(model.n_iter_), f"maximum {_count(model.max_iter)}"),
        Tile("Time", _seconds(model), "solver time"),
        Tile("Zeros in W", _zeros(described.W), f"{_count(len(described.W))} × {n_components}"),
        Tile("Zeros in H", _zeros(described.components), f"{_count(n_features)} × {n_components}"),
    ]


class RankFacts(NamedTuple):
    """How the rank was chosen."""

    agrees: bool  # whether the model has a rank that was chosen
    heading: str
    sentences: list[str]
    rows: list[tuple[str, str, str, str]]


def rank_facts(described: Described, selection: Any) -> RankFacts:
    """Return what a rank selection found, in words and as a table."""
    best, n_components = selection.best_rank, len(described.components)
    agrees = n_components in (best, selection.stable_rank)
    heading = f"Held-out counts suggest {counted(best, described.terms.component)}"
    if selection.stable_rank < best:
        heading += f", and {selection.stable_rank} for reading"
    if not agrees:
        heading += f"; this model has {n_components}"
    table = selection.table()
    names = ("rank", "deviance", "difference", "standard_error", "stability")
    columns = (table[name] for name in names)
    rows = [
        (
            str(rank),
            f"{deviance:.5g}",
            f"{difference:.3g} ± {error:.2g}",
            "–" if math.isnan(stability) else f"{stability:.3f}",
        )
        for rank, deviance, difference, error, stability in zip(*columns, strict=True)
    ]
    return RankFacts(agrees, heading, selection.remarks(), rows)


def matrix_rows(described: Described) -> list[tuple[str, str]]:
    """Shape and sparsity of the data; only the shape if X was not given."""
    n_samples, n_features = len(described.W), described.components.shape[1]
    sample, feature, _ = described.terms
    shape = f"{_count(n_samples)} × {_count(n_features)}"
    rows = [(f"{sample}s × {feature}s".capitalize(), shape)]
    X = described.X
    if X is None:
        return [*rows, ("Counts", "not included in this report")]
    empty = n_samples - np.count_nonzero(np.diff(X.indptr))
    used = np.count_nonzero(np.bincount(X.indices, minlength=n_features))
    return [
        *rows,
        ("Nonzeros", _count(X.nnz)),
        ("Zeros", _percent(1.0 - X.nnz / (n_samples * n_features), digits=2)),
        ("Sum of all counts", _count(float(X.sum(dtype=np.float64)))),
        (f"Empty {sample}s", _count(int(empty))),
        (f"{feature}s that never occur".capitalize(), _count(n_features - int(used))),
    ]


def sample_rows(described: Described) -> list[tuple[str, str]]:
    """Quartiles of the row sums; nothing if X was not given."""
    if described.X is None:
        return []
    sums = np.asarray(described.X.sum(axis=1, dtype=np.float64)).ravel()
    names = ("Smallest", "Lower quartile", "Median", "Upper quartile", "Largest")
    quartiles = np.quantile(sums, [0.0, 0.25, 0.5, 0.75, 1.0])
    rows = [(name, _count(float(q))) for name, q in zip(names, quartiles, strict=True)]
    different = float(np.median(np.diff(described.X.indptr)))
    return [*rows, (f"Distinct {described.terms.feature}s (median)", _count(different))]


def version_rows() -> list[tuple[str, str]]:
    """List when and with which versions the report was written."""
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [
        ("Report written", written),
        *((package, version(package)) for package in _PACKAGES),
        ("Python", platform.python_version()),
        ("Platform", f"{platform.system()} {platform.machine()}"),
    ]


def _explained(described: Described) -> float | None:
    """Share by which the divergence is below that of one topic; None without the fitted data."""
    if described.X is None or described.X.nnz == 0:
        return None
    single = one_topic_divergence(described.X)
    below = 1.0 - described.model.divergence_ / single if single > 0.0 else -1.0
    return below if 0.0 <= below <= 1.0 else None


def _zeros(factor: Any) -> str:
    return _percent(float(np.mean(factor == 0)))


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
    if value >= 120.0:
        return f"{value / 60.0:.1f} min"
    return f"{value:.3g} s" if value < 100.0 else f"{value:.0f} s"
