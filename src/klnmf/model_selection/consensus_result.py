"""What `consensus` returns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.estimators.kl_nmf import KLNMF
from klnmf.model_selection.consensus_file import read_consensus, write_consensus

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Consensus:
    """Components that many runs agree on; `klnmf.model_selection.consensus` makes it.

    Printed, it is a table with a row for each component.

    Attributes
    ----------
    components : ndarray of shape (n_components, n_features)
        Consensus components, each summing to 1, the one with most counts first.
    W : ndarray of shape (n_samples, n_components)
        How much of each a sample has, in counts.
    divergence : float
        KL divergence of X from W times the components.
    kkt_residual : float
        How far the pair is from a stationary point, see `klnmf.KLNMF`; medians are none.
    stability : ndarray of shape (n_components,)
        Mean cosine similarity of the runs' components with the consensus component: 1 where every
        run finds the same.
    run_share : ndarray of shape (n_components,)
        Share of the runs that have found the component.
    silhouette : ndarray of shape (n_components,)
        Mean silhouette of the runs' components: close to 1 where they are much closer to each other
        than to those of any other component, 0 or less where they are not.
    run_objectives : ndarray of shape (n_runs,)
        KL divergence at the end of each run.
    spectra : ndarray of float32, shape (n_runs · n_components, n_features)
        Components of all runs, run after run, each of Euclidean length 1.
    labels : ndarray of int, shape (n_runs · n_components,)
        Consensus component that each belongs to; −1 for those left out.
    neighbour_distance : ndarray of shape (n_runs · n_components,)
        Mean distance of each to its nearest neighbours, by which some are left out.
    density_threshold : float
        Distance beyond which they are.
    """

    components: FloatArray
    W: FloatArray
    divergence: float
    kkt_residual: float
    stability: FloatArray
    run_share: FloatArray
    silhouette: FloatArray
    run_objectives: FloatArray
    spectra: npt.NDArray[np.float32]
    labels: IndexArray
    neighbour_distance: FloatArray
    density_threshold: float

    @property
    def n_left_out(self) -> int:
        """How many components of the runs belong to no consensus component."""
        return int(np.sum(self.labels < 0))

    def table(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the table by name: component, share, stability, ...

        Returns
        -------
        dict of ndarray
            component, share (of all counts), stability, run_share, silhouette.
        """
        masses = self.W.sum(axis=0)
        return {
            "component": np.arange(len(self.components)),
            "share": masses / (masses.sum() or 1.0),
            "stability": self.stability,
            "run_share": self.run_share,
            "silhouette": self.silhouette,
        }

    def to_model(self) -> KLNMF:
        """Return a fitted model with these components, to transform, to save or to report on.

        ``KLNMF(n_components).fit(X, H=result.components)`` goes on to an optimum instead.

        Returns
        -------
        KLNMF
            Of no iterations, and converged only if ``kkt_residual`` is at most its ``tol``.

        Examples
        --------
        >>> from klnmf.model_selection import consensus
        >>> from klnmf.simulate import simulate_counts
        >>> X = simulate_counts(80, 50, 3, counts_per_sample=200, random_state=0).X
        >>> found = consensus(X, 3, n_runs=5, random_state=0)
        >>> bool(abs(found.to_model().transform(X) - found.W).max() < 0.01)
        True
        """
        n_components, n_features = self.components.shape
        model = KLNMF(n_components)
        model.components_ = self.components.copy()
        model.n_components_, model.n_features_in_ = n_components, n_features
        model.divergence_, model.kkt_residual_ = self.divergence, self.kkt_residual
        model.converged_ = bool(self.kkt_residual <= model.tol)
        model.n_iter_, model.history_ = 0, []
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it, the components of all runs included, to a file that `load` reads.

        Parameters
        ----------
        path : str or path
            File to write; it appears under this name when it is whole.
        """
        write_consensus(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Consensus:
        """Read a file that `save`, or ``klnmf consensus --result``, wrote.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        Consensus

        Raises
        ------
        klnmf.saved.SavedFileError
            If the file is damaged or something else. It is a ValueError.
        """
        found: Consensus = read_consensus(path, cls)
        return found

    def plot(self, ax: Any = None) -> Any:
        """Draw how alike the runs' components are: `klnmf.plots.plot_consensus`.

        Parameters
        ----------
        ax : matplotlib Any, optional
            Where to draw; by default a new figure.

        Returns
        -------
        ax : matplotlib Axes
            The axes drawn on.
        """
        from klnmf.plots import plot_consensus

        return plot_consensus(self, ax)

    def __str__(self) -> str:
        """Return the table and what was left out, in words."""
        lines = ["component  share  stability  in runs  silhouette"]
        lines += [
            f"{k:9d} {100 * share:5.1f}% {stability:10.3f} {100 * runs:7.0f}% {silhouette:11.3f}"
            for k, share, stability, runs, silhouette in zip(*self.table().values(), strict=True)
        ]
        n_runs = len(self.run_objectives)
        return "\n".join(
            [
                *lines,
                "",
                f"{n_runs} runs; {self.n_left_out} of their {len(self.labels)} components lie far "
                "from all others and were left out.",
            ]
        )
