"""What `bootstrap` returns: intervals, how the runs went, a table, a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from klnmf.topics.checks import checked_names
from klnmf.uncertainty.intervals import Intervals

FloatArray = npt.NDArray[np.float64]

MOST_BYTES_OF_DRAWS = 4 * 2**30
# From this on the data are said to vary more than the model allows.
TOO_DISPERSED = 1.1
# A component of the runs is said to be another one below this mean similarity.
TOO_DIFFERENT = 0.8


@dataclass(frozen=True, eq=False)
class Draws:
    """Shares of every run, in float32.

    Attributes
    ----------
    components : ndarray of shape (n_runs, n_components, n_features)
        Components, as distributions over the features.
    proportions : ndarray of shape (n_runs, n_samples, n_components)
        Proportions of the samples that were asked for.
    sizes : ndarray of shape (n_runs, n_components)
        Shares of all counts.
    """

    components: npt.NDArray[np.float32]
    proportions: npt.NDArray[np.float32]
    sizes: npt.NDArray[np.float32]

    @classmethod
    def empty(cls, n_runs: int, shape: tuple[int, int], n_samples: int) -> Self:
        """Room for so many runs, unless that is too much."""
        n_components, n_features = shape
        n_bytes = 4 * n_runs * n_components * (n_features + n_samples + 1)
        if n_bytes > MOST_BYTES_OF_DRAWS:
            raise ValueError(
                f"keep_draws=True would keep {n_bytes / 2**30:.1f} GiB: {n_runs} runs × "
                f"{n_components} components × ({n_features} features + {n_samples} samples). Pass "
                "fewer samples (samples=[...]), fewer runs, or keep_draws=False, which needs no "
                "more memory for more runs."
            )
        return cls(
            np.empty((n_runs, n_components, n_features), np.float32),
            np.empty((n_runs, n_samples, n_components), np.float32),
            np.empty((n_runs, n_components), np.float32),
        )

    def put(
        self, run: int, components: FloatArray, proportions: FloatArray, sizes: FloatArray
    ) -> None:
        """Keep a run."""
        self.components[run], self.proportions[run] = components, proportions
        self.sizes[run] = sizes[0]


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Intervals for the parts of a model; `klnmf.uncertainty.bootstrap` makes it.

    Printed, it has a row for each component, and what to know before trusting it.

    Attributes
    ----------
    components : Intervals, of shape (n_components, n_features)
        For each component as a distribution over the features.
    proportions : Intervals, of shape (n_chosen, n_components)
        For the proportions of each sample that was asked for.
    sizes : Intervals, of shape (1, n_components)
        For the share of all counts that each component holds.
    samples : ndarray of int, shape (n_chosen,)
        Row numbers of the samples in ``proportions``.
    similarity : ndarray of shape (n_runs, n_components)
        Cosine similarity of each component with its match in each run.
    divergence : float
        KL divergence of the data from the model.
    run_divergences : ndarray of shape (n_runs,)
        KL divergence of the drawn data from their refits.
    n_converged : int
        Refits that have converged.
    level : float
        Level of the intervals.
    feature_names : list of str or None
        Names of the features.
    draws : Draws or None
        Shares of every run, if ``keep_draws=True`` was given.
    """

    components: Intervals
    proportions: Intervals
    sizes: Intervals
    samples: npt.NDArray[np.intp]
    similarity: FloatArray
    divergence: float
    run_divergences: FloatArray
    n_converged: int
    level: float
    feature_names: list[str] | None
    draws: Draws | None

    @property
    def n_runs(self) -> int:
        """Number of refits."""
        return len(self.run_divergences)

    @property
    def dispersion(self) -> float:
        """Divergence of the data, divided by the mean divergence of the runs.

        Near 1 for Poisson counts and the right model (up to 1.04 in simulations). Well above it the
        data vary more than the model allows, and the intervals are too short.
        """
        mean = float(self.run_divergences.mean())
        return self.divergence / mean if mean > 0.0 else 1.0

    def table(self, component: int, n_top: int | None = 10) -> dict[str, npt.NDArray[Any]]:
        """Return the leading features of a component with their intervals, by name of the column.

        Parameters
        ----------
        component : int
            Number of the component.
        n_top : int or None, default=10
            Features; None is all of them.

        Returns
        -------
        dict of ndarray
            feature, share, lower, upper, standard_error, is_interior; the largest share first.
        """
        n_components, n_features = self.components.estimate.shape
        if not 0 <= component < n_components:
            raise ValueError(f"component must be from 0 to {n_components - 1}; got {component!r}.")
        names = np.array(checked_names(self.feature_names, n_features))
        shares = self.components.estimate[component]
        top = np.argsort(-shares, kind="stable")[:n_top]
        return {
            "feature": names[top],
            "share": shares[top],
            "lower": self.components.lower[component, top],
            "upper": self.components.upper[component, top],
            "standard_error": self.components.standard_error[component, top],
            "is_interior": self.components.is_interior[component, top],
        }

    def components_frame(self) -> Any:
        """Return the intervals of all components as a DataFrame (extra ``dataframes``).

        Returns
        -------
        pandas.DataFrame
            A row for each component and feature: component, feature, share, lower, upper,
            standard_error, is_interior.
        """
        n_components, n_features = self.components.estimate.shape
        names = np.array(checked_names(self.feature_names, n_features))
        return _frame(
            {
                "component": np.repeat(np.arange(n_components), n_features),
                "feature": np.tile(names, n_components),
            },
            self.components,
        )

    def proportions_frame(self) -> Any:
        """Return the intervals of the samples' proportions as a DataFrame (extra ``dataframes``).

        Returns
        -------
        pandas.DataFrame
            A row for each sample and component: sample, component, share, lower, upper,
            standard_error, is_interior.
        """
        n_samples, n_components = self.proportions.estimate.shape
        return _frame(
            {
                "sample": np.repeat(self.samples, n_components),
                "component": np.tile(np.arange(n_components), n_samples),
            },
            self.proportions,
        )

    def plot(self, *, n_top: int = 8, select: Sequence[int] | None = None, axes: Any = None) -> Any:
        """Draw the leading features of each component: `klnmf.plots.plot_intervals`.

        Parameters
        ----------
        n_top : int, default=8
            Features per component.
        select : sequence of int, optional
            The components to draw, in this order; by default all.
        axes : array of matplotlib Axes, optional
            One for each component drawn. By default a new figure.

        Returns
        -------
        axes : ndarray of matplotlib Axes
            The axes drawn on.
        """
        from klnmf.plots import plot_intervals

        return plot_intervals(self, n_top=n_top, select=select, axes=axes)

    def __str__(self) -> str:
        """Return a row for each component, and what to know before trusting it."""
        lines = [f"component   share  {self.level:.3g} interval      similarity  leading features"]
        is_empty = self.components.estimate.sum(axis=1) == 0.0
        for k in range(self.sizes.estimate.shape[1]):
            if is_empty[k]:
                lines.append(f"{k:9d}         (empty)")
                continue
            top = self.table(k, 3)
            leading = ", ".join(
                f"{name} {_span(low, high)}"
                for name, low, high in zip(top["feature"], top["lower"], top["upper"], strict=True)
            )
            ends = _span(self.sizes.lower[0, k], self.sizes.upper[0, k])
            lines.append(
                f"{k:9d} {100 * self.sizes.estimate[0, k]:6.1f}%  {ends:16s} "
                f"{self.similarity[:, k].mean():11.3f}  {leading}"
            )
        of_entries = f"{np.mean(self.components.is_interior):.0%} of the components' entries"
        if len(self.samples):
            of_entries += f" and {np.mean(self.proportions.is_interior):.0%} of the proportions"
        lines += [
            "",
            f"Parametric bootstrap, {self.n_runs} runs, {self.n_converged} of them converged. "
            f"{of_entries} are in the interior and have two-sided intervals; the others are too "
            "near 0 or 1. All of it holds if the counts are Poisson and the model is right.",
        ]
        if self.dispersion > TOO_DISPERSED:
            lines.append(
                f"Careful: the divergence of the data is {self.dispersion:.2f} times that of data "
                "drawn from the model. The counts vary more than Poisson counts of this rank do, "
                "and the intervals are too short."
            )
        unlike = np.flatnonzero((self.similarity.mean(axis=0) < TOO_DIFFERENT) & ~is_empty)
        if len(unlike):
            lines.append(
                "Careful: the runs have other components in the place of "
                f"{', '.join(map(str, unlike))} (similarity below {TOO_DIFFERENT}); their "
                "intervals mean little."
            )
        return "\n".join(lines)


def _span(low: float, high: float) -> str:
    return f"[{100 * low:.3g}, {100 * high:.3g}]%"


def _frame(keys: dict[str, npt.NDArray[Any]], intervals: Intervals) -> Any:
    from klnmf.frames import table_frame

    return table_frame(
        keys
        | {
            "share": intervals.estimate.ravel(),
            "lower": intervals.lower.ravel(),
            "upper": intervals.upper.ravel(),
            "standard_error": intervals.standard_error.ravel(),
            "is_interior": intervals.is_interior.ravel(),
        }
    )
