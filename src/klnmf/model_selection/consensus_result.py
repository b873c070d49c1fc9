"""`Consensus`: the result of `consensus`."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.estimators.kl_nmf import KLNMF
from klnmf.saved.arrays import FLOATS, INDICES, array_named, nonnegative, shaped_array
from klnmf.saved.container import Container, SavedFileError, read_container, write_container
from klnmf.saved.fields import Fields, number_to_json
from klnmf.support.array_types import FloatArray

IndexArray = npt.NDArray[np.int64]

_NUMBERS = ("divergence", "optimality_gap", "kkt_residual", "density_threshold")


@dataclass(frozen=True, eq=False)
class Consensus:
    """Components that many runs agree on, as returned by `klnmf.model_selection.consensus`.

    It prints as a table with one row per component.

    Attributes
    ----------
    components : ndarray of shape (n_components, n_features)
        Consensus components, each summing to 1, in order of decreasing size.
    W : ndarray of shape (n_samples, n_components)
        Expected counts of each component in each sample.
    divergence : float
        KL divergence of X from W times the components.
    optimality_gap, kkt_residual : float
        Distance from a stationary point, see `klnmf.KLNMF`. Medians are not stationary.
    stability : ndarray of shape (n_components,)
        Mean cosine similarity of the runs' components with the consensus component.
    run_share : ndarray of shape (n_components,)
        Share of the runs that found the component.
    silhouette : ndarray of shape (n_components,)
        Mean silhouette of the runs' components; near 1 if they are far from all other groups.
    run_objectives : ndarray of shape (n_runs,)
        KL divergence at the end of each run.
    spectra : ndarray of float32, shape (n_runs · n_components, n_features)
        Components of all runs, in order of the runs, each with Euclidean length 1.
    labels : ndarray of int, shape (n_runs · n_components,)
        Consensus component of each row of ``spectra``; −1 if it was left out.
    neighbour_distance : ndarray of shape (n_runs · n_components,)
        Mean distance of each row of ``spectra`` to its nearest neighbours.
    density_threshold : float
        Rows with a larger distance were left out.
    """

    components: FloatArray
    W: FloatArray
    divergence: float
    optimality_gap: float
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
        """Number of components of the runs that were left out."""
        return int(np.sum(self.labels < 0))

    def table(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the table.

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
        """Return a fitted model with these components, for ``transform``, saving or a report.

        To refine the components, use ``KLNMF(n_components).fit(X, H=result.components)`` instead.

        Returns
        -------
        KLNMF
            ``converged_`` is True only if ``optimality_gap`` is at most ``tol``.

        Examples
        --------
        >>> from klnmf.model_selection import consensus
        >>> from klnmf.simulate import simulate_counts
        >>> X = simulate_counts(80, 50, 3, counts_per_sample=200, random_state=0).X
        >>> found = consensus(X, 3, n_runs=5, random_state=0)
        >>> bool(abs(found.to_model().transform(X) - found.W).max() < 0.01)
        True
        """
        return KLNMF.from_components(
            self.components.copy(),
            divergence=self.divergence,
            optimality_gap=self.optimality_gap,
            kkt_residual=self.kkt_residual,
            W_sums=self.W.sum(axis=0),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the result, including the components of all runs, to a file for `load`.

        Parameters
        ----------
        path : str or path
            File to write.
        """
        arrays = {
            field.name: np.ascontiguousarray(getattr(self, field.name))
            for field in fields(self)
            if field.name not in _NUMBERS
        }
        content = {name: number_to_json(float(getattr(self, name))) for name in _NUMBERS}
        write_container(Path(path), Container("consensus", content, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Consensus:
        """Load a file written by `save` or by ``klnmf consensus --result``.

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
            If the file is damaged or not a consensus. It is a ValueError.
        """
        container = read_container(Path(path), "consensus")
        content = Fields(container.content, "content")
        try:
            numbers: dict[str, Any] = {
                name: content.number_if_stored(name)
                if name == "optimality_gap"  # unknown to older versions
                else content.number(name)
                for name in _NUMBERS
            }
            return cls(**numbers, **_checked_arrays(container.arrays))
        except SavedFileError as error:
            raise SavedFileError(f"{path} cannot be read: {error}") from error

    def plot(self, ax: Any = None) -> Any:
        """Plot the similarity of the runs' components with `klnmf.plots.plot_consensus`.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from klnmf.plots import plot_consensus

        return plot_consensus(self, ax)

    def __str__(self) -> str:
        """Return the table and the number of components left out."""
        lines = ["component  share  stability  in runs  silhouette"]
        lines += [
            f"{k:9d} {100 * share:5.1f}% {stability:10.3f} {100 * runs:7.0f}% {silhouette:11.3f}"
            for k, share, stability, runs, silhouette in zip(*self.table().values(), strict=True)
        ]
        left_out = (
            f"{len(self.run_objectives)} runs; {self.n_left_out} of their {len(self.labels)} "
            "components are far from all others and were left out."
        )
        return "\n".join([*lines, "", left_out])


def _checked_arrays(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Arrays of a saved consensus, if they fit together."""
    r, m = array_named(arrays, "components", FLOATS, 2).shape
    n = len(array_named(arrays, "W", FLOATS, 2))
    n_runs = len(array_named(arrays, "run_objectives", FLOATS, 1))
    shapes: dict[str, tuple[int, ...]] = {
        "components": (r, m),
        "W": (n, r),
        "spectra": (n_runs * r, m),
        **dict.fromkeys(("stability", "run_share", "silhouette"), (r,)),
        **dict.fromkeys(("labels", "neighbour_distance"), (n_runs * r,)),
        "run_objectives": (n_runs,),
    }
    found = {
        name: shaped_array(arrays, name, shape, INDICES if name == "labels" else FLOATS)
        for name, shape in shapes.items()
    }
    for name in ("components", "W", "spectra"):
        nonnegative(found[name], name)
    if not np.isin(found["labels"], np.arange(-1, r)).all():
        raise SavedFileError(f"the labels must be from -1 to {r - 1}.")
    return found
