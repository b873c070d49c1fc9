"""`differential_features`: features with a larger share in one component than in others."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.stats import false_discovery_control, norm

from klnmf.backends.cpu import effective_threads
from klnmf.estimators.base import FactorModel
from klnmf.support.array_types import FloatArray
from klnmf.support.number_checks import checked_fraction
from klnmf.topics.checks import Names, checked_choice, checked_names, checked_representation
from klnmf.uncertainty.comparison import compared_shares
from klnmf.uncertainty.inputs import check_is_data_of_fit, checked_whole_counts, names_of_features

Alternative = Literal["greater", "two-sided"]


@dataclass(frozen=True, eq=False)
class DifferentialFeatures:
    """Differences between components, as returned by `klnmf.uncertainty.differential_features`.

    It prints as a table. All results are conditional on W. The arrays have one row per tested
    component and one column per feature, with NaN if there is nothing to compare.

    Attributes
    ----------
    components : ndarray of int, shape (n_tested,)
        Components that were tested, in the order of the rows.
    log2_fold_change : ndarray
        Log₂ of the share in the component divided by the share in the reference, moderated.
    lower, upper, standard_error : ndarray
        Interval of the fold change at ``level``, and its standard error.
    z, p_value, q_value : ndarray
        Signed root of the likelihood-ratio statistic, p-value, and q-value (Benjamini and Hochberg)
        over all entries.
    share, reference_share : ndarray
        Maximum likelihood estimates, given W, of the share of the feature in the component and in
        the reference.
    reference : ndarray of int
        Component used as the reference; −1 for all others together, or if nothing was compared.
    against, alternative, level, feature_names
        As passed to `differential_features`.
    """

    components: npt.NDArray[np.intp]
    log2_fold_change: FloatArray
    lower: FloatArray
    upper: FloatArray
    standard_error: FloatArray
    z: FloatArray
    p_value: FloatArray
    q_value: FloatArray
    share: FloatArray
    reference_share: FloatArray
    reference: npt.NDArray[np.int64]
    against: str | int
    alternative: str
    level: float
    feature_names: list[str] | None

    def table(
        self, component: int, n_top: int | None = 10, max_q: float = 0.05
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the leading features of a component.

        Parameters
        ----------
        component : int
            Number of the component.
        n_top : int or None, default=10
            Largest number of features; None returns all of them.
        max_q : float, default=0.05
            Largest q-value of the listed features; 1 lists all that were tested.

        Returns
        -------
        dict of ndarray
            feature, and one column for each array of the class, in decreasing order of ``lower``.
        """
        rows = np.flatnonzero(self.components == component)
        if len(rows) == 0:
            tested = ", ".join(map(str, self.components))
            raise ValueError(f"component must be one of those tested: {tested}; got {component}.")
        row = int(rows[0])
        listed = np.flatnonzero(self.q_value[row] <= max_q)
        listed = listed[np.argsort(-self.lower[row, listed], kind="stable")][:n_top]
        return {"feature": self._names()[listed], **self._entries(row, listed)}

    def frame(self) -> Any:
        """Return all results as a DataFrame (extra ``dataframes``).

        Returns
        -------
        pandas.DataFrame
            One row for each component and feature that was tested.
        """
        from klnmf.frames import table_frame

        rows, columns = np.nonzero(np.isfinite(self.p_value))
        keys = {"component": self.components[rows], "feature": self._names()[columns]}
        return table_frame(keys | self._entries(rows, columns))

    def __str__(self) -> str:
        """Return the leading features of each component."""
        reference = {
            "nearest": "the nearest other component for each feature",
            "others": "all other components together",
        }.get(str(self.against), f"component {self.against}")
        lines = [
            f"Features compared with {reference}: log2 fold change [{self.level:.3g} interval], "
            "false discovery rate 0.05.",
            "component  features  leading features",
        ]
        for row, component in enumerate(self.components):
            table = self.table(int(component), 5)
            columns = (table[name] for name in ("feature", "log2_fold_change", "lower", "upper"))
            leading = ", ".join(
                f"{name} {change:.1f} [{low:.1f}, {high:.1f}]"
                for name, change, low, high in zip(*columns, strict=True)
            )
            n_found = int(np.sum(self.q_value[row] <= 0.05))
            lines.append(f"{component:9d} {n_found:9d}  {leading or '(none)'}")
        remark = (
            f"{np.isfinite(self.p_value).sum()} tests, valid for Poisson counts and conditional on "
            "W: the errors do not include the uncertainty of W."
        )
        return "\n".join([*lines, "", remark])

    def _entries(self, rows: Any, columns: Any) -> dict[str, npt.NDArray[Any]]:
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array[rows, columns] for name, array in arrays.items() if np.ndim(array) == 2}

    def _names(self) -> npt.NDArray[Any]:
        return np.array(checked_names(self.feature_names, self.log2_fold_change.shape[1]))


def differential_features(
    model: FactorModel,
    X: Any,
    against: str | int = "nearest",
    *,
    components: Sequence[int] | None = None,
    alternative: Alternative = "greater",
    level: float = 0.95,
    W: Any = None,
    feature_names: Names | None = None,
    n_threads: int | None = None,
) -> DifferentialFeatures:
    """Find features with a larger share in a component than in the other components.

    For each component and feature, this compares the share of the feature in the component with its
    share in the reference: the log₂ fold change with an interval, and a test of equal shares.

    **All results are conditional on W**: the errors do not include that W was estimated from the
    same counts. This hardly matters if samples have many counts. If they have few, there may be
    twice as many false discoveries as the q-values suggest (docs/performance.md). For counts that
    vary more than Poisson counts the p-values are too small; see ``dispersion`` of `bootstrap`.

    Given W, each feature is a Poisson regression with nonnegative coefficients. The test is a
    likelihood-ratio test, also valid for shares of 0, and ``z`` is its signed root. Fold changes
    are moderated: on average half a count per component is added to each feature, which keeps them
    finite and shrinks those of rare features. Their standard errors come from the Fisher
    information.

    Parameters
    ----------
    model : KLNMF or MiniBatchKLNMF
        A fitted model.
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        The counts of the fit, or other counts together with their W.
    against : {"nearest", "others"} or int, default="nearest"
        The reference: for each feature the other component that is hardest to distinguish, so that
        significant features are specific to the component; all other components together, in
        proportion to their sizes; or the component of this number.
    components : sequence of int, default=None
        Components to test; None tests all of them. ``components=[2], against=5`` compares one pair.
    alternative : {"greater", "two-sided"}, default="greater"
        Whether to test for larger shares only, or for smaller ones as well. "nearest" requires
        "greater".
    level : float, default=0.95
        Level of the intervals of the fold changes.
    W : array-like of shape (n_samples, n_components), default=None
        Representation of the samples. None computes it as ``transform`` does, and requires the X of
        the fit. For other samples, pass ``model.transform(X)``.
    feature_names : sequence of str, default=None
        Names for the printed result. None uses the names seen in ``fit``.
    n_threads : int, default=None
        Number of threads, as in `klnmf.KLNMF`. The result does not depend on it.

    Returns
    -------
    DifferentialFeatures

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> from klnmf.datasets import load_bible
    >>> from klnmf.uncertainty import differential_features
    >>> bible = load_bible()
    >>> model = KLNMF(5, random_state=0).fit(bible.data)
    >>> found = differential_features(model, bible.data, feature_names=bible.feature_names)
    >>> jesus = list(bible.feature_names).index("jesus")
    >>> component = int(found.share[:, jesus].argmax())
    >>> bool(found.q_value[component, jesus] < 0.05)  # special to that component
    True
    """
    level = checked_fraction("level", level)
    counts = checked_whole_counts(model, X)
    if W is None:
        way_out = "Pass the X of the fit. For other samples, also pass W=model.transform(X)."
        check_is_data_of_fit(model, counts, way_out)
    names = names_of_features(model, feature_names)
    chosen = _chosen_components(components, against, alternative, model.n_components_)
    threads = effective_threads(n_threads)
    H = model._H()
    given: Any = model._solve_W(counts, H) if W is None else checked_representation(W, H.shape[1])
    dense = given.toarray() if sp.issparse(given) else given
    if len(dense) != counts.shape[0]:
        raise ValueError(f"W has {len(dense)} rows for the {counts.shape[0]} samples of X.")
    L = dense.astype(np.float64) * H.sum(axis=0, dtype=np.float64)
    result = compared_shares(counts, L, chosen, against, threads)
    z = float(norm.ppf(0.5 + level / 2.0))
    p_value = norm.sf(result.z) if alternative == "greater" else 2.0 * norm.sf(np.abs(result.z))
    return DifferentialFeatures(
        components=chosen,
        lower=result.log2_fold_change - z * result.standard_error,
        upper=result.log2_fold_change + z * result.standard_error,
        p_value=p_value,
        q_value=_q_values(p_value),
        **vars(result),
        against=against if isinstance(against, str) else int(against),
        alternative=alternative,
        level=level,
        feature_names=names,
    )


def _chosen_components(
    components: Sequence[int] | None, against: Any, alternative: str, n_components: int
) -> npt.NDArray[np.intp]:
    """Check the arguments; returns the components to test."""
    checked_choice(alternative, "alternative", get_args(Alternative))
    if n_components < 2:
        raise ValueError("The model has only one component, so there is nothing to compare.")
    is_number = isinstance(against, Integral) and 0 <= int(against) < n_components
    if not is_number and against not in ("nearest", "others"):
        raise ValueError(
            f"against must be 'nearest', 'others' or a component from 0 to {n_components - 1}; got "
            f"{against!r}."
        )
    if against == "nearest" and alternative != "greater":
        raise ValueError(
            "against='nearest' requires alternative='greater'. For a two-sided test, use "
            "against='others' or the number of a component."
        )
    chosen = np.arange(n_components)
    if components is not None:
        chosen = np.asarray(components)
        is_whole = chosen.ndim == 1 and chosen.dtype.kind in "iu" and chosen.size > 0
        if not is_whole or chosen.min() < 0 or chosen.max() >= n_components:
            raise ValueError(
                f"components must be a list of numbers from 0 to {n_components - 1}; got "
                f"{components!r}."
            )
    if is_number:
        chosen = chosen[chosen != int(against)]
        if chosen.size == 0:
            raise ValueError(f"Component {against} cannot be compared with itself.")
    return chosen.astype(np.intp)


def _q_values(p_values: FloatArray) -> FloatArray:
    """Benjamini and Hochberg's q-values over all tests; NaN where there was no test."""
    found = np.full(p_values.shape, np.nan)
    tested = np.isfinite(p_values)
    if tested.any():
        found[tested] = false_discovery_control(p_values[tested], method="bh")
    return found
