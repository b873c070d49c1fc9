"""`DifferentialFeatures`: the result of `differential_features`."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.support.array_types import FloatArray
from klnmf.support.descriptions import described
from klnmf.support.result_tables import Column, ResultTable, ShownAsTable
from klnmf.topics.checks import checked_names
from klnmf.uncertainty.overdispersion import Dispersion


@dataclass(frozen=True, eq=False, repr=False)
class DifferentialFeatures(ShownAsTable):
    """Differences between components, as returned by `klnmf.uncertainty.differential_features`.

    It shows itself as a table, with what it assumes. The arrays have one row per tested component
    and one column per feature, with NaN if there is nothing to compare.

    Attributes
    ----------
    components : ndarray of int, shape (n_tested,)
        Components that were tested, in the order of the rows.
    log2_fold_change : ndarray
        Log₂ of ``share / reference_share``.
    lower, upper, standard_error : ndarray
        Interval of the fold change at ``level``, and the standard error of its estimate. At 95 %
        the interval excludes 0 exactly if z is above 1.96 or below −1.96.
    z, p_value, q_value : ndarray
        Test of equal shares: a standard normal variable if they are equal (the effective score less
        its skewness), its p-value, and the q-value (Benjamini and Hochberg) over all entries. z is
        0 where test and estimate have opposite signs.
    share, reference_share : ndarray
        Estimates of the share of the feature in the component and in the reference, moderated by
        half a count per component: never 0.
    reference : ndarray of int
        Component used as the reference; −1 for all others together, or if nothing was compared.
    dispersion : Dispersion or None
        Variance of the counts that was used. W is estimated again for the tests, so this may differ
        from `dispersion`. None: an earlier version took them as Poisson counts.
    is_W_given : bool
        Whether W was passed, and so taken as known.
    is_integrated : bool
        Whether the shares are those of a `Posterior`, whose errors hold the uncertainty of the
        components.
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
    dispersion: Dispersion | None
    is_W_given: bool  # noqa: N815
    against: str | int
    alternative: str
    level: float
    feature_names: list[str] | None
    is_integrated: bool = False

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
            raise ValueError(
                f"component must be one of those tested: {tested}; got {described(component)}."
            )
        row = int(rows[0])
        listed = np.flatnonzero(self.q_value[row] <= max_q)
        listed = listed[np.argsort(-self.lower[row, listed], kind="stable")][:n_top]
        return {"feature": self._names()[listed], **self._entries(row, listed)}

    def to_frame(self) -> Any:
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

    def _shown(self) -> ResultTable:
        """Return the leading features of each component."""
        reference = {
            "nearest": "the nearest other component for each feature",
            "others": "all other components together",
        }.get(str(self.against), f"component {self.against}")
        n_found = np.sum(self.q_value <= 0.05, axis=1)
        columns = [
            Column("component", [str(component) for component in self.components]),
            Column("features", [str(n) for n in n_found]),
            Column("leading features", [self._leading(int(k)) for k in self.components], True),
        ]
        n_tests = int(np.isfinite(self.p_value).sum())
        of_W = (
            "given, and taken as known"
            if self.is_W_given
            else "estimated: the errors do not include the uncertainty of the components"
        )
        if self.is_integrated:
            of_W = "integrated out: the errors include the uncertainty of the components"
        noise = "The counts are taken as Poisson counts."
        if self.dispersion is not None:
            noise = str(self.dispersion)
        heading = (
            f"Features compared with {reference}, at a false discovery rate of 0.05 over all "
            f"tests: log2 fold change [{self.level:.3g} interval of the single feature]."
        )
        return ResultTable(columns, [f"{n_tests} tests. {noise} W is {of_W}."], heading)

    def _leading(self, component: int) -> str:
        """Return the leading features of a component with their fold changes."""
        table = self.table(component, 5)
        columns = (table[name] for name in ("feature", "log2_fold_change", "lower", "upper"))
        rows = zip(*columns, strict=True)
        found = (f"{name} {change:.1f} [{low:.1f}, {high:.1f}]" for name, change, low, high in rows)
        return ", ".join(found) or "(none)"

    def _entries(self, rows: Any, columns: Any) -> dict[str, npt.NDArray[Any]]:
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array[rows, columns] for name, array in arrays.items() if np.ndim(array) == 2}

    def _names(self) -> npt.NDArray[Any]:
        return np.array(checked_names(self.feature_names, self.log2_fold_change.shape[1]))
