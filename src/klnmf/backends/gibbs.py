"""Sweeps of the sampler behind `klnmf.uncertainty.posterior`, on the threads of the core."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from klnmf import _core
from klnmf.data.row_constraints import Pattern
from klnmf.support.array_types import Array, FloatArray

# Settings of the prior, chosen on three simulated designs and measured on others
# (docs/performance.md).
N_CLASSES = 8  # Dirichlet distributions of the proportions
SHAPE = 2.0  # of the gamma distributions of the entries of H
FEWEST_OF_CLASS = 10  # rows from which on the concentrations of a class are estimated
CONCENTRATIONS = (1e-2, 300.0)  # smallest and largest
LEAST_EXPOSURE = 0.02
LARGEST_COUNT = np.iinfo(np.int32).max


@dataclass
class Chain:
    """The state of the sampler: proportions up to a factor or rates, components, and priors."""

    W: FloatArray  # n × r
    H: FloatArray  # m × r; each column sums to 1
    concentrations: FloatArray  # class × r
    class_weights: FloatArray
    scale_weights: FloatArray
    masses: FloatArray  # sums of the components before they were scaled, which the rates in W lack
    classes: Array  # of the rows; only rates depend on the last ones

    @classmethod
    def started(cls, W: FloatArray, H: FloatArray, seed: int) -> Chain:
        """Start from these factors, with priors that say little."""
        m, r = H.shape
        perturbed = np.random.default_rng([seed, 1]).standard_normal((N_CLASSES, r))
        n_scales = len(scale_means(m))
        return cls(
            W,
            H,
            0.6 * np.exp(0.4 * perturbed),
            np.full(N_CLASSES, 1.0 / N_CLASSES),
            np.full(n_scales, 1.0 / n_scales),
            np.ones(r),
            np.zeros(len(W), dtype=np.int32),
        )


def scale_means(n_features: int) -> FloatArray:
    """Means of the gamma distributions of an entry of H, from 40 / (2¹⁵ m) to less than 1."""
    means = 40.0 * 2.0 ** (np.arange(26) - 15) / n_features
    return np.ascontiguousarray(means[means < 1.0])


@dataclass(frozen=True)
class Cells:
    """What the cells of counts have of their own: extra variation, and that they are missing."""

    alpha: FloatArray  # relative variance of the rates of each feature
    is_listed: Array  # whether the factors of a feature's zeros are drawn; others have their means
    missing: Pattern | None = None


class Sweeps:
    """Sweeps over the rows of counts, which change a `Chain` in place.

    With ``cells``, W holds rates, in counts, instead of proportions.
    """

    def __init__(
        self,
        counts: sp.csr_array,
        chain: Chain,
        is_fixed: Array,
        cells: Cells | None,
        seed: int,
        n_threads: int,
    ) -> None:
        self.chain, self._seed, self._n_threads = chain, seed, n_threads
        self._rows = (
            np.ascontiguousarray(counts.indptr, dtype=np.int64),
            np.ascontiguousarray(counts.indices, dtype=np.int32),
            np.ascontiguousarray(counts.data, dtype=np.int32),
        )
        (m, r), n_classes = chain.H.shape, len(chain.class_weights)
        self._is_fixed = np.ascontiguousarray(is_fixed, dtype=np.uint8)
        self._means = scale_means(m)
        self._of_features = np.zeros((n_threads, m * r), dtype=np.int32)
        self._of_classes = np.zeros((n_threads, n_classes * (r + 2)), dtype=np.int64)
        self._moments = np.zeros((2 * m, r))
        self._cells = cells
        if cells is not None:
            self._exposures = np.zeros((n_threads, m * r), dtype=np.int64)
            total = max(float(counts.data.sum(dtype=np.int64)), 1.0)
            self._unit = 2.0 ** np.floor(np.log2(2.0**62 / (1e3 * total)))

    @property
    def has_rates(self) -> bool:
        """Whether W holds rates, not proportions up to a factor."""
        return self._cells is not None

    def sweep(self, number: int, moments: FloatArray | None = None) -> FloatArray:
        """Draw everything once; this number of a sweep always has the same random numbers.

        The conditional moments of the proportions are added to ``moments`` (2 n × r). Returns the
        conditional means of the entries of H, and below them the second moments (2 m × r).
        """
        chain, (m, r) = self.chain, self.chain.H.shape
        _core.sweep_rows(
            *self._rows,
            chain.H,
            chain.concentrations,
            np.log(chain.class_weights),
            None if self._cells is None else self._factors(self._cells),
            self._seed,
            2 * number,
            self._n_threads,
            chain.W,
            np.zeros((0, r)) if moments is None else moments,
            self._of_features,
            self._of_classes,
        )
        self._update_classes()
        responsibilities = np.zeros(len(self._means))
        _core.draw_components(
            self._taken(self._of_features).reshape(m, r),
            np.zeros((0, r)) if self._cells is None else self._exposed(self._cells),
            self._means,
            chain.scale_weights,
            SHAPE,
            self._is_fixed,
            self._seed,
            2 * number + 1,
            self._n_threads,
            chain.H,
            chain.masses,
            self._moments,
            responsibilities,
        )
        chain.scale_weights = (responsibilities + 0.1) / np.sum(responsibilities + 0.1)
        return self._moments

    def keep(
        self,
        components: FloatArray,
        batch: FloatArray,
        first_half: FloatArray | None,
        reference: FloatArray,
        products: FloatArray | None,
    ) -> None:
        """Add what the last `sweep` returned to sums; see `klnmf.uncertainty.posterior_chain`."""
        nothing = np.zeros((0, 0))
        _core.keep_moments(
            self._moments,
            components,
            batch,
            nothing if first_half is None else first_half,
            reference,
            nothing if products is None else products,
            self._n_threads,
        )

    def _taken(self, of_threads: Array) -> Array:
        """Add up what the threads have counted, and leave zeros there for the next sweep."""
        total = np.empty(of_threads.shape[1], dtype=np.int64)
        _core.take_sums(of_threads, self._n_threads, total)
        return total

    def _factors(self, cells: Cells) -> _core.CellFactors:
        """Return what the core needs to draw factors of cells."""
        H, chain, none = self.chain.H, self.chain, np.zeros(0, dtype=np.int64)
        others = np.where(cells.is_listed, 0.0, 1.0)
        return _core.CellFactors(
            np.ascontiguousarray(cells.alpha, dtype=np.float64),
            np.flatnonzero(cells.is_listed).astype(np.int32),
            others @ H,
            np.ascontiguousarray(H.T @ ((others * cells.alpha)[:, np.newaxis] * H)),
            chain.masses,
            none if cells.missing is None else cells.missing.starts,
            none if cells.missing is None else cells.missing.columns,
            chain.classes,
            self._exposures,
            self._unit,
        )

    def _exposed(self, cells: Cells) -> FloatArray:
        """Σ_i of factors times w, by feature and component.

        In features that are not listed, zeros have the mean factor 1 − α y, so that their sums
        follow from those of W and from its Gram matrix.
        """
        W, H = self.chain.W, self.chain.H
        exposed = self._taken(self._exposures).reshape(H.shape) / self._unit
        rest = W.sum(axis=0) - cells.alpha[:, np.newaxis] * (H @ (W.T @ W))
        exposed += np.where(cells.is_listed[:, np.newaxis], 0.0, rest)
        return np.ascontiguousarray(np.maximum(exposed, LEAST_EXPOSURE * W.sum(axis=0) + 1e-9))

    def _update_classes(self) -> None:
        """One step of Minka's fixed point for the concentrations, and the weights of classes."""
        chain, r = self.chain, self.chain.H.shape[1]
        sums = self._taken(self._of_classes).reshape(len(chain.class_weights), r + 2)
        n_rows = sums[:, -1]
        enough = n_rows >= FEWEST_OF_CLASS
        ratios = sums[enough, :r] / np.maximum(sums[enough, r : r + 1], 1)
        chain.concentrations[enough] = np.clip(
            chain.concentrations[enough] * ratios, *CONCENTRATIONS
        )
        weights = n_rows + 0.2
        chain.class_weights = weights / weights.sum()
