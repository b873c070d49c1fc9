"""Tables and plots of intervals for the parts of a model: what the results share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.support.descriptions import described
from klnmf.support.result_tables import Column, ResultTable, ShownAsTable
from klnmf.topics.checks import checked_names
from klnmf.topics.features import RANKING, Ranking, leading_features
from klnmf.topics.modes import is_line
from klnmf.uncertainty.intervals import Intervals
from klnmf.uncertainty.overdispersion import Dispersion

# Columns of a table, and the attribute of `Intervals` that each holds.
_COLUMNS = {"share": "estimate"} | {
    name: name for name in ("lower", "upper", "standard_error", "is_interior")
}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class IntervalTables(ShownAsTable):
    """Intervals for components, the samples' proportions and sizes; see the derived classes."""

    components: Intervals
    proportions: Intervals
    sizes: Intervals
    samples: npt.NDArray[np.intp]
    level: float
    noise: str
    dispersion: Dispersion
    feature_names: list[str] | None
    factors: tuple[Intervals, ...] = ()
    mode_names: tuple[str, ...] = ()
    labels: tuple[Any, ...] = ()

    def table(
        self, component: int, n_top: int | None = 10, mode: int | str = 1
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the leading features of a component with their intervals.

        Parameters
        ----------
        component : int
            Number of the component.
        n_top : int or None, default=10
            Number of features; None returns all of them.
        mode : int or str, default=1
            Mode of a tensor, by its number or name, whose rows take the place of features.

        Returns
        -------
        dict of ndarray
            feature, share, lower, upper, standard_error, is_interior, in order of decreasing share.
        """
        n_components = len(self.components.estimate)
        if not 0 <= component < n_components:
            raise ValueError(
                f"component must be from 0 to {n_components - 1}; got {described(component)}."
            )
        rows, names = self._of_mode(mode)
        top = np.argsort(-rows.estimate[component], kind="stable")[:n_top]
        return {"feature": names[top], **_columns(rows, component, top)}

    def components_frame(self, mode: int | str = 1) -> Any:
        """Return the intervals of all components as a DataFrame (extra ``dataframes``).

        Parameters
        ----------
        mode
            As in `table`.

        Returns
        -------
        pandas.DataFrame
            One row per component and feature, with these two and the numbers of `table`.
        """
        rows, names = self._of_mode(mode)
        return _frame(rows, component=np.arange(len(rows.estimate)), feature=names)

    def proportions_frame(self) -> Any:
        """Return the intervals of the samples' proportions as a DataFrame (extra ``dataframes``).

        Returns
        -------
        pandas.DataFrame
            One row per sample and component, with these two and the numbers of `table`.
        """
        n_components = self.proportions.estimate.shape[1]
        return _frame(self.proportions, sample=self.samples, component=np.arange(n_components))

    def plot(self, *, n_top: int = 8, select: Sequence[int] | None = None, axes: Any = None) -> Any:
        """Plot the top features of each component as points with their intervals.

        A point is the feature's share of the component's mass. Filled points are in the interior;
        hollow ones are so near 0 or 1 that their interval is one-sided.

        Parameters
        ----------
        n_top, select, axes
            As in `klnmf.plots.plot_top_features`.

        Returns
        -------
        ndarray of matplotlib Axes
        """
        from klnmf.plots.features import draw_intervals

        return draw_intervals(self, n_top=n_top, select=select, axes=axes)

    @property
    def _is_empty(self) -> npt.NDArray[np.bool_]:
        """By component, whether it has no mass."""
        return np.asarray(self.components.estimate.sum(axis=1) == 0.0)

    def _as_table(
        self, method: str, warnings: Sequence[str], more: Sequence[Column] = ()
    ) -> ResultTable:
        """Return one row per component with further columns, and notes."""
        ends = zip(self.sizes.lower[0], self.sizes.upper[0], strict=True)
        columns = [
            Column("component", [str(k) for k in range(len(self._is_empty))]),
            Column("share", [f"{100 * size:.1f}%" for size in self.sizes.estimate[0]]),
            Column(f"{self.level:.3g} interval", [_span(low, high) for low, high in ends]),
            *more,
        ]
        for mode in range(1, max(2, len(self.factors))):
            leading = [
                "(empty)" if none else self._leading(k, mode)
                for k, none in enumerate(self._is_empty)
            ]
            title = f"leading {self.mode_names[mode]}" if self.factors else "leading features"
            columns.append(Column(title, leading, is_text=True))
        inside = [part.is_interior.ravel() for part in self.factors or (self.components,)]
        two_sided = f"{np.mean(np.concatenate(inside)):.0%} of the component entries"
        if len(self.samples):
            two_sided += f" and {np.mean(self.proportions.is_interior):.0%} of the proportions"
        method += (
            f" Intervals are two-sided for {two_sided}; the others are too close to 0 or 1 and "
            "have one-sided intervals. All intervals assume that the model is correct."
        )
        return ResultTable(columns, [self._noise_in_words(), method, *warnings])

    def _noise_in_words(self) -> str:
        if self.noise == "poisson":
            return "The intervals assume Poisson counts (noise='poisson')."
        accounted = "" if self.dispersion.is_poisson else " The intervals account for this."
        return f"{self.dispersion}{accounted}"

    def _leading(self, component: int, mode: int) -> str:
        """Return the leading features of a component, as in other tables, with their intervals."""
        rows, names = self._of_mode(mode)
        by: Ranking = "weight" if self.factors and is_line(self.labels[mode], mode) else RANKING
        top = leading_features(rows.estimate, 3, by).features[component]
        ends = zip(names[top], rows.lower[component, top], rows.upper[component, top], strict=True)
        return ", ".join(f"{name} {_span(low, high)}" for name, low, high in ends)

    def _of_mode(self, mode: int | str) -> tuple[Intervals, npt.NDArray[Any]]:
        """Return the intervals of a mode, by component and row, and the names of its rows."""
        known = {name: number for number, name in enumerate(self.mode_names)}
        number = known.get(mode, -1) if isinstance(mode, str) else mode
        if number == 1:
            n_features = self.components.estimate.shape[1]
            return self.components, np.array(checked_names(self.feature_names, n_features))
        if not 0 <= number < len(self.factors):
            raise ValueError(
                f"mode must be {'a number or name of a mode' if known else '1 for a matrix'}; got "
                f"{described(mode)}."
            )
        parts = vars(self.factors[number]).values()
        rows = Intervals(*(part.T for part in parts))
        names = checked_names(self.labels[number], rows.estimate.shape[1], self.mode_names[number])
        return rows, np.array(names)


def _span(low: float, high: float) -> str:
    return f"[{100 * low:.3g}, {100 * high:.3g}]%"


def _columns(intervals: Intervals, rows: Any, columns: Any) -> dict[str, npt.NDArray[Any]]:
    return {name: getattr(intervals, source)[rows, columns] for name, source in _COLUMNS.items()}


def _frame(intervals: Intervals, **names: npt.NDArray[Any]) -> Any:
    """DataFrame with a row for each entry; ``names`` are those of the rows and of the columns."""
    from klnmf.frames import table_frame

    places = np.indices(intervals.estimate.shape).reshape(2, -1)
    keys = {key: names[key][place] for key, place in zip(names, places, strict=True)}
    return table_frame(keys | _columns(intervals, *places))
