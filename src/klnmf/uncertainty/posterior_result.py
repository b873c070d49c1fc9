"""`Posterior`: the result of `posterior`."""

from dataclasses import dataclass

import numpy as np

from klnmf.estimators.kl_nmf import KLNMF
from klnmf.support.array_types import FloatArray
from klnmf.support.result_tables import ResultTable
from klnmf.uncertainty.interval_tables import IntervalTables

# Below this number of effective draws in the slowest direction, or above this drift, more sweeps
# are advised. Intervals allow for few draws, but their number must be known.
FEWEST_DRAWS = 2.5
LARGEST_DRIFT = 0.8


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Posterior(IntervalTables):
    """Means and intervals with the samples integrated out, as `klnmf.uncertainty.posterior` gives.

    It has the tables and plots of `Bootstrap`, and shows itself as a table with one row per
    component, and warnings.

    Attributes
    ----------
    components, proportions, sizes : Intervals
        As in `Bootstrap`; ``estimate`` is the posterior mean, ``standard_error`` the posterior
        standard deviation.
    samples : ndarray of int, shape (n_selected,)
        Row numbers of the samples in ``proportions``.
    totals : ndarray of shape (n_selected,)
        What the fit explains of each of them, in counts, per unit of exposure.
    model_ : KLNMF
        A fitted model with the posterior means as its components.
    n_sweeps, n_kept : int
        Number of sweeps, and of those after the burn-in.
    drift : float
        Difference between the means of the components over the first and the second half of the
        kept sweeps, in posterior standard deviations: root mean square over the interior entries.
    effective_draws : float
        Number of independent draws that the kept sweeps are worth, in the slowest of the leading
        directions in which the components vary together.
    covariances : ndarray of shape (n_features, n_components, n_components), or None
        Covariances of the shares of each feature in the components, for
        `differential_features`. None if they would take more than 256 MiB.
    level, noise, feature_names
        As passed to `posterior`.
    dispersion : Dispersion
        How much more than Poisson counts the counts vary.
    """

    totals: FloatArray
    model_: KLNMF
    n_sweeps: int
    n_kept: int
    drift: float
    effective_draws: float
    covariances: FloatArray | None

    @property
    def warning(self) -> str | None:
        """What is wrong with the sampling, and what to do; None if nothing is."""
        if self.effective_draws >= FEWEST_DRAWS and self.drift <= LARGEST_DRIFT:
            return None
        return (
            f"The sweeps are too few: {self.n_kept:,} kept sweeps are worth about "
            f"{self.effective_draws:.1f} independent draws of the slowest direction, and the means "
            f"of their halves differ by {self.drift:.2f} standard deviations. Intervals may be too "
            f"short. Pass n_sweeps={2 * self.n_sweeps} or more; components that keep drifting "
            "hardly differ, and a smaller n_components may describe the data as well."
        )

    def representation(self) -> FloatArray:
        """Return W with the mean proportions and the totals of the fit, beside `model_`.

        Returns
        -------
        ndarray of shape (n_selected, n_components)
        """
        scale = np.asarray(self.model_.components_.sum(axis=1), dtype=np.float64).ravel()
        amounts = self.proportions.estimate * self.totals[:, np.newaxis]
        return np.asarray(amounts / np.where(scale > 0.0, scale, 1.0))

    def _shown(self) -> ResultTable:
        warning = self.warning
        return self._as_table(
            f"Posterior of {self.n_kept:,} sweeps after {self.n_sweeps - self.n_kept:,} of burn-in "
            f"(about {self.effective_draws:.0f} independent draws in the slowest direction, drift "
            f"{self.drift:.2f} standard deviations).",
            [] if warning is None else [f"Warning: {warning}"],
        )
