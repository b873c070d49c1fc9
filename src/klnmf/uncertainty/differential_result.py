"""What `differential_features` returns: effect sizes and tests, a table, a DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.topics.checks import checked_names

FloatArray = npt.NDArray[np.float64]

_COLUMNS = (
    "log2_fold_change",
    "lower",
    "upper",
    "standard_error",
    "z",
    "p_value",
    "q_value",
    "share",
    "reference_share",
    "reference",
)


@dataclass(frozen=True, eq=False)
class DifferentialFeatures:
    """Features that tell components apart; `klnmf.uncertainty.differential_features` makes it.

    Everything is conditional on W. The arrays have a row for each component that was looked at and
    a column for each feature; NaN stands where there was nothing to compare, such as a feature that
    does not occur.

    Attributes
    ----------
    components : ndarray of int, shape (n_chosen,)
        Components that were looked at, in the order of the rows.
    log2_fold_change : ndarray
        Log₂ of the share of the component, divided by that of what it is compared with; moderated,
        so that it is finite and small counts do not make large changes.
    lower, upper, standard_error : ndarray
        Its interval at ``level``, and its standard error.
    z, p_value, q_value : ndarray
        Signed root of the likelihood-ratio statistic, p-value, and q-value (Benjamini and Hochberg)
        over all entries.
    share, reference_share : ndarray
        Share of the component that the feature has, and of what it is compared with, of greatest
        likelihood given W.
    reference : ndarray of int
        Component that it is compared with; −1 for all others together, or where there was nothing
        to compare.
    against : str or int
        What was asked for: "nearest", "others" or a component.
    alternative : {"greater", "two-sided"}
        Which differences the p-values count.
    level : float
        Of the intervals.
    feature_names : list of str or None
        Names of the features.
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
        """Return the features that a component has more of, by name of the column.

        Parameters
        ----------
        component : int
            Number of the component.
        n_top : int or None, default=10
            Features at most; None is all of them.
        max_q : float, default=0.05
            False discovery rate: the largest q-value of a feature that is listed. 1 lists all that
            were tested.

        Returns
        -------
        dict of ndarray
            feature, and the attributes of this name; the largest lower end of the fold change
            first, so that a large change that is not sure does not lead.
        """
        row = self._row(component)
        listed = np.flatnonzero(self.q_value[row] <= max_q)
        listed = listed[np.argsort(-self.lower[row, listed], kind="stable")][:n_top]
        return {
            "feature": self._names()[listed],
            **{name: getattr(self, name)[row, listed] for name in _COLUMNS},
        }

    def frame(self) -> Any:
        """Return everything as a DataFrame (extra ``dataframes``).

        Returns
        -------
        pandas.DataFrame
            A row for each component and feature that were compared.
        """
        from klnmf.frames import table_frame

        rows, columns = np.nonzero(np.isfinite(self.p_value))
        return table_frame(
            {
                "component": self.components[rows],
                "feature": self._names()[columns],
                **{name: getattr(self, name)[rows, columns] for name in _COLUMNS},
            }
        )

    def __str__(self) -> str:
        """Return the leading features of each component, and what they are conditional on."""
        compared_with = {
            "nearest": "the nearest other component, for each feature",
            "others": "all others together",
        }.get(str(self.against), f"component {self.against}")
        lines = [
            f"Features against {compared_with}: log2 fold change [{self.level:.3g} interval], "
            "false discovery rate 0.05.",
            "component  features  leading ones",
        ]
        for row, component in enumerate(self.components):
            table = self.table(int(component), 5)
            leading = ", ".join(
                f"{name} {change:.1f} [{low:.1f}, {high:.1f}]"
                for name, change, low, high in zip(
                    table["feature"],
                    table["log2_fold_change"],
                    table["lower"],
                    table["upper"],
                    strict=True,
                )
            )
            n_found = int(np.sum(self.q_value[row] <= 0.05))
            lines.append(f"{component:9d} {n_found:9d}  {leading or '(none)'}")
        n_tests = int(np.isfinite(self.p_value).sum())
        return "\n".join(
            [
                *lines,
                "",
                f"{n_tests} tests. Conditional on W: that the parts of the components in the "
                "samples were estimated is not in these errors. Holds for Poisson counts.",
            ]
        )

    def _row(self, component: int) -> int:
        rows = np.flatnonzero(self.components == component)
        if len(rows) == 0:
            listed = ", ".join(map(str, self.components))
            raise ValueError(f"component must be one of those compared: {listed}; got {component}.")
        return int(rows[0])

    def _names(self) -> npt.NDArray[Any]:
        return np.array(checked_names(self.feature_names, self.log2_fold_change.shape[1]))
