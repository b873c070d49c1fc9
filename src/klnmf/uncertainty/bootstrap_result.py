"""`Bootstrap`: the result of `bootstrap`."""

import math
from dataclasses import dataclass

import numpy as np

from klnmf.support.array_types import FloatArray
from klnmf.support.result_tables import Column, ResultTable
from klnmf.uncertainty.interval_tables import IntervalTables

# Below this mean similarity, it warns that the runs find a different component.
TOO_DIFFERENT = 0.8
# From this shift on it warns of intervals that are too short. Of 44 simulated data sets, all with a
# coverage of components below 88 % were above it but one (87.6 %), all above 92 % below it
# (docs/performance.md).
LARGEST_SHIFT = 0.36


@dataclass(frozen=True, eq=False, repr=False)
class Bootstrap(IntervalTables):
    """Intervals for the parts of a model, as returned by `klnmf.uncertainty.bootstrap`.

    It shows itself as a table with one row per component, and warnings.

    Attributes
    ----------
    components : Intervals, of shape (n_components, n_features)
        Intervals for each component as a distribution over the features.
    proportions : Intervals, of shape (n_selected, n_components)
        Intervals for the proportions of each selected sample.
    sizes : Intervals, of shape (1, n_components)
        Intervals for the share of all counts in each component.
    samples : ndarray of int, shape (n_selected,)
        Row numbers of the samples in ``proportions``.
    similarity : ndarray of shape (n_runs, n_components)
        Cosine similarity of each component with its match in each run.
    n_converged : int
        Number of refits that converged.
    shift : float
        How far a short run of the sampler of `posterior` moves the components away from the fit, in
        half-lengths of their intervals (root mean square). From 0.36 on, the components share too
        much, for so many samples, for the intervals to be trusted. NaN if it is not known: with
        fewer than 20 runs, for tensors, for models with weights, penalties, or columns of W that
        are known, and for more than a million cells of counts that vary more than Poisson counts,
        where it would take too long.
    level, noise, feature_names
        As passed to `bootstrap`; for a tensor, the names are the labels of its second mode.
    dispersion : Dispersion
        How much more than Poisson counts the drawn counts vary.
    factors : tuple of Intervals, of shape (n_rows, n_components)
        For a tensor, the intervals of the factor of each mode, whose columns sum to 1, in the form
        of ``factors_`` of `klnmf.PoissonCP`. ``components`` are those of the second mode again, and
        the similarity is the mean of those of the modes after the first.
    mode_names, labels : tuple
        Those of a tensor.
    """

    similarity: FloatArray
    n_converged: int
    shift: float = math.nan

    @property
    def n_runs(self) -> int:
        """Number of refits."""
        return len(self.similarity)

    @property
    def warning(self) -> str | None:
        """Why the intervals cannot be trusted, and what to do; None if nothing speaks against it.

        Nothing is known if ``shift`` is NaN.
        """
        if not self.shift >= LARGEST_SHIFT:
            return None
        return (
            "The intervals are probably too short. The components share features, and a fit pulls "
            "such components apart by more than its refits show, however many samples there are: "
            f"a short run of the sampler of posterior moves them by {self.shift:.2f} half-lengths "
            f"of their intervals ({LARGEST_SHIFT} is much). Use klnmf.uncertainty.posterior(model, "
            "X), which gives better components and intervals in the same form."
        )

    def _shown(self) -> ResultTable:
        """Return one row per component, and warnings if there are any."""
        similarity, mistrust = self.similarity.mean(axis=0), self.warning
        unlike = np.flatnonzero((similarity < TOO_DIFFERENT) & ~self._is_empty)
        warning = (
            "Warning: the runs find different components in place of "
            f"{', '.join(map(str, unlike))} (similarity below {TOO_DIFFERENT}). Do not rely on "
            "the intervals of these components."
        )
        return self._as_table(
            f"Parametric bootstrap with {self.n_runs} runs, {self.n_converged} of them converged.",
            [*([warning] if len(unlike) else []), *([f"Warning: {mistrust}"] if mistrust else [])],
            [Column("similarity", [f"{x:.3f}" for x in similarity])],
        )
