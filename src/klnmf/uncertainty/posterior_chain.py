"""The sweeps of `posterior`: burn-in, running sums, checkpoint, and how well the chain mixes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.backends.gibbs import N_CLASSES, Cells, Chain, Sweeps
from klnmf.estimators.run_options import RunOptions
from klnmf.estimators.work_file import WorkFile
from klnmf.saved.arrays import FLOATS, INDICES, nonnegative, shaped_array
from klnmf.saved.container import Container, SavedFileError
from klnmf.saved.fields import Fields
from klnmf.solvers.loop import held_interrupts
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.progress import Bar

# The first part of the burn-in runs on some rows where these hold enough counts to tell the entries
# of H, and are at most a third of all.
FEWEST_ROWS = 1_000
COUNTS_PER_ENTRY = 100
PART_ON_SOME_ROWS = 0.6
N_BATCHES = 8  # of kept sweeps, by whose means slow changes are known
TRACED_EVERY = 4  # kept sweeps between two records of the directions of H
N_DIRECTIONS = 3
LARGEST_SHARE = 0.5  # of one effective draw; with fewer than two, nothing is known of the spread
MOST_PRODUCTS = 1 << 25  # entries of the covariances: 256 MiB


@dataclass
class Sums:
    """Running sums over the kept sweeps; no draws are kept."""

    components: FloatArray  # 2 m × r: means and second moments
    batch: FloatArray  # m × r: the means, over the present batch
    batch_squares: FloatArray  # m × r: squares of the means of batches
    first_half: FloatArray  # m × r: the means, over the first half
    proportions: FloatArray  # 2 n × r
    sizes: FloatArray  # 4 × r: means, second moments, batch, and batch_squares
    trace: FloatArray  # record × r²: the components as combinations of a reference
    reference: FloatArray  # m × r
    # m × (r + r²): sums of d and d dᵀ over the records, for the covariances of the entries of a
    # feature, with d its means less the reference; no columns where they would be too many.
    products: FloatArray

    @classmethod
    def empty(cls, n: int, m: int, r: int, n_kept: int) -> Sums:
        """Return sums of nothing."""
        n_traced = -(-n_kept // TRACED_EVERY)
        of_H, others = (m, r), ((2 * n, r), (4, r), (n_traced, r * r), (m, r))
        products = (m, r + r * r if m * r * r <= MOST_PRODUCTS else 0)
        shapes = ((2 * m, r), of_H, of_H, of_H, *others, products)
        return cls(*(np.zeros(shape) for shape in shapes))


@dataclass
class Work:
    """A chain with its sums: all that a run needs to go on later."""

    identity: dict[str, Any]
    seed: int
    n_sweeps: int
    chain: Chain
    sums: Sums
    done: int = 0
    is_whole: bool = True  # False within a sweep, in which some of the chain is new

    @property
    def n_burnt(self) -> int:
        """Sweeps of the burn-in."""
        return self.n_sweeps // 3

    @property
    def n_kept(self) -> int:
        """Sweeps after the burn-in."""
        return self.n_sweeps - self.n_burnt

    @property
    def batch_size(self) -> int:
        """Kept sweeps of a batch; a few at the end may be in none."""
        return self.n_kept // N_BATCHES


class PosteriorFile(WorkFile[Work]):
    """The checkpoint of a chain."""

    kind, work_name = "posterior", "chain"

    def identity(self, work: Work) -> dict[str, Any]:
        """See :class:`WorkFile`."""
        return work.identity | {"n_sweeps": work.n_sweeps}

    def _write(self, work: Work) -> None:
        if work.is_whole:  # after an error within a sweep, the last file stays
            super()._write(work)

    def packed(self, work: Work) -> Container:
        """See :class:`PeriodicFile`."""
        arrays = {f"chain.{name}": array for name, array in vars(work.chain).items()}
        arrays |= {f"sums.{name}": array for name, array in vars(work.sums).items()}
        content = {"identity": self.identity(work), "seed": work.seed, "done": work.done}
        return Container(self.kind, content, arrays)

    def unpacked(self, work: Work, content: Fields, arrays: dict[str, Array]) -> Work:
        """See :class:`WorkFile`."""
        for prefix, part in (("chain", work.chain), ("sums", work.sums)):
            for name, begun in vars(part).items():
                stored = shaped_array(arrays, f"{prefix}.{name}", begun.shape, (*FLOATS, *INDICES))
                if name not in ("trace", "products"):
                    nonnegative(stored, name)
                setattr(part, name, stored.astype(begun.dtype))
        if work.chain.classes.max(initial=0) >= N_CLASSES:
            raise SavedFileError(f"chain.classes has a class that is not one of {N_CLASSES}")
        work.done = min(content.whole("done"), work.n_sweeps)
        return work


def run_chain(
    work: Work,
    counts: sp.csr_array,
    is_fixed: Array,
    cells: Cells | None,
    masses: FloatArray,
    file: PosteriorFile,
    options: RunOptions,
    n_threads: int,
) -> None:
    """Do the sweeps that are left.

    ``masses`` are what the rows of W are multiplied by to be counts per unit of exposure, after
    they were scaled to sums of 1 if they are proportions.

    With a checkpoint, Ctrl-C waits for the end of a sweep.
    """
    has_file = options.checkpoint is not None
    with (
        Bar(
            options.progress, total=work.n_sweeps, initial=work.done, desc="klnmf posterior"
        ) as bar,
        file.kept(work),
    ):
        if work.done == 0:
            _burn_in_on_some(work, counts, is_fixed, cells, n_threads, bar)
        sweeps = Sweeps(counts, work.chain, is_fixed, cells, work.seed, n_threads)
        while work.done < work.n_sweeps:
            with held_interrupts() if has_file else nullcontext():
                _sweep(work, sweeps, masses)
            bar.advance()
            file.write_if_due(work)


def _burn_in_on_some(
    work: Work,
    counts: sp.csr_array,
    is_fixed: Array,
    cells: Cells | None,
    n_threads: int,
    bar: Bar,
) -> None:
    """Begin the burn-in on rows that are enough for H, where these are few of all."""
    n, (m, r) = counts.shape[0], work.chain.H.shape
    mean = max(float(counts.data.sum(dtype=np.int64)) / n, 1.0)
    n_some = max(FEWEST_ROWS, int(COUNTS_PER_ENTRY * m * r / mean))
    if 3 * n_some > n:
        return
    rows = np.sort(np.random.default_rng([work.seed, 2]).choice(n, n_some, replace=False))
    # A copy, so that a checkpoint never holds the rows of a part.
    chain = work.chain
    part = replace(
        chain,
        W=np.ascontiguousarray(chain.W[rows]),
        H=chain.H.copy(),
        concentrations=chain.concentrations.copy(),
        masses=chain.masses.copy(),
        classes=chain.classes[rows],
    )
    if cells is not None and cells.missing is not None:
        cells = replace(cells, missing=cells.missing.take(rows))
    n_done = int(PART_ON_SOME_ROWS * work.n_burnt)
    sweeps = Sweeps(counts[rows], part, is_fixed, cells, work.seed, n_threads)
    for number in range(n_done):
        sweeps.sweep(number)
        bar.advance()
    with held_interrupts():
        chain.W[rows], chain.classes[rows] = part.W, part.classes
        work.chain, work.done = replace(part, W=chain.W, classes=chain.classes), n_done


def _sweep(work: Work, sweeps: Sweeps, masses: FloatArray) -> None:
    sums, number, n_burnt = work.sums, work.done, work.n_burnt
    work.is_whole = False
    if number < n_burnt:
        sweeps.sweep(number)
        work.done, work.is_whole = number + 1, True
        return
    kept = number - n_burnt
    mean = sweeps.sweep(number, sums.proportions)[: len(sums.reference)]
    if kept == 0:
        sums.reference[:] = mean
    is_traced = kept % TRACED_EVERY == 0
    sweeps.keep(
        sums.components,
        sums.batch,
        sums.first_half if kept < work.n_kept // 2 else None,
        sums.reference,
        sums.products if is_traced else None,
    )
    totals = np.ones(1) if sweeps.has_rates else work.chain.W.sum(axis=1)
    shares = (masses / np.where(totals > 0.0, totals, 1.0)) @ work.chain.W
    shares /= max(shares.sum(), 1e-300)
    sums.sizes[:3] += (shares, shares**2, shares)
    if (kept + 1) % work.batch_size == 0 and kept < N_BATCHES * work.batch_size:
        for batch, squares in ((sums.batch, sums.batch_squares), sums.sizes[2:]):
            squares += (batch / work.batch_size) ** 2
            batch[:] = 0.0
    if is_traced:
        coordinates, _ = _coordinates(sums.reference, mean)
        sums.trace[kept // TRACED_EVERY] = coordinates.ravel()
    work.done, work.is_whole = number + 1, True


def _coordinates(reference: FloatArray, H: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted least-squares map C with H ≈ reference · C, and the Gram matrix of the reference.

    An entry of a feature with the mean share q has a variance of about q.
    """
    weights = 1.0 / np.maximum(reference.mean(axis=1), 1e-12)
    weighted = reference * weights[:, np.newaxis]
    gram = reference.T @ weighted
    return np.linalg.lstsq(gram, weighted.T @ H, rcond=1e-10)[0], gram


def covariances(work: Work) -> FloatArray | None:
    """Posterior covariances of the entries of each feature (m × r × r), but for the diagonals.

    Given the draws of everything else the entries are independent, so it is the conditional means
    that vary together. Slow changes, in which all features move together, are those of the traced
    maps, and enter as in `moments_of_components`.
    """
    sums, (m, r) = work.sums, work.chain.H.shape
    if sums.products.size == 0:
        return None
    mean, square = np.split(sums.products / len(sums.trace), [r], axis=1)
    found = square.reshape(m, r, r) - mean[:, :, np.newaxis] * mean[:, np.newaxis, :]
    n_batches = min(N_BATCHES, len(sums.trace))
    batches = np.array_split(sums.trace.reshape(-1, r, r), n_batches)
    maps = np.array([batch.mean(axis=0) for batch in batches])
    weight = _weight_of_slow_changes(work) / n_batches
    moved = np.stack([sums.reference @ one for one in maps - maps.mean(axis=0)], axis=1)
    found += weight * (moved.swapaxes(1, 2) @ moved)
    return found


def moments_of_components(work: Work) -> tuple[FloatArray, FloatArray]:
    """Means and second moments of H, with what too few effective draws leave out."""
    sums, squares = np.split(work.sums.components, 2)
    return _with_slow_changes(work, sums, squares, work.sums.batch, work.sums.batch_squares)


def moments_of_sizes(work: Work) -> tuple[FloatArray, FloatArray]:
    """Means and second moments of the sizes (1 × r), likewise."""
    sums, squares, batch, batch_squares = np.split(work.sums.sizes, 4)
    return _with_slow_changes(work, sums, squares, batch, batch_squares)


def _with_slow_changes(
    work: Work, sums: FloatArray, squares: FloatArray, batch: FloatArray, batch_squares: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Means and second moments of these sums.

    Of n effective draws, the variance comes out 1 − 1/n times as large, and the mean has an error
    of 1/n of it. This is so for the slow changes alone, which the means of batches show: their
    variance enters (1 + 1/n) / (1 − 1/n) times.
    """
    # Sweeps after the last batch are in no batch.
    of_batches = (sums - batch) / (N_BATCHES * work.batch_size)
    between = np.maximum(batch_squares / N_BATCHES - of_batches**2, 0.0)
    moments = squares / work.n_kept + between * _weight_of_slow_changes(work)
    return sums / work.n_kept, moments


def _weight_of_slow_changes(work: Work) -> float:
    share = min(1.0 / effective_draws(work), LARGEST_SHARE)
    return (1.0 + share) / (1.0 - share) - 1.0


def drift_of(work: Work) -> float:
    """Difference of the halves' means of the components in posterior standard deviations."""
    m, n_kept = len(work.chain.H), work.n_kept
    mean, square = work.sums.components[:m] / n_kept, work.sums.components[m:] / n_kept
    half = n_kept // 2
    first = work.sums.first_half / half
    second = (work.sums.components[:m] - work.sums.first_half) / (n_kept - half)
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    inside = (mean > 3.0 * deviation) & (deviation > 0.0)
    if not inside.any():
        return 0.0
    return float(np.sqrt(np.mean(((first - second)[inside] / deviation[inside]) ** 2)))


def effective_draws(work: Work) -> float:
    """Independent draws that the kept sweeps are worth in the slowest leading direction.

    The directions are the principal ones of the maps between the components of the sweeps and a
    reference, in which all features of components move together.
    """
    n_kept, trace, r = work.n_kept, work.sums.trace, work.chain.H.shape[1]
    _, gram = _coordinates(work.sums.reference, work.sums.reference)
    values, vectors = np.linalg.eigh(gram)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    moved = np.einsum("ab,tbc->tac", root, trace.reshape(-1, r, r)).reshape(len(trace), -1)
    series, sizes, _ = np.linalg.svd(moved - moved.mean(axis=0), full_matrices=False)
    leading = series[:, :N_DIRECTIONS][:, sizes[:N_DIRECTIONS] > 1e-9 * max(sizes[0], 1e-300)]
    lengths = [TRACED_EVERY * correlation_time(column) for column in leading.T]
    return float(n_kept / max([1.0, *lengths]))


def correlation_time(series: FloatArray) -> float:
    """1 + 2 Σ autocorrelations, up to the first pair whose sum is not positive (Geyer).

    >>> correlation_time(np.random.default_rng(0).standard_normal(4000)) < 1.3
    True
    """
    n = len(series)
    spectrum = np.fft.rfft(series - series.mean(), 2 * n)
    correlations = np.fft.irfft(np.abs(spectrum) ** 2)[:n]
    if not correlations[0] > 0.0:
        return 1.0
    correlations = correlations / correlations[0]
    pairs = correlations[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = np.argmax(pairs <= 0.0) if (pairs <= 0.0).any() else len(pairs)
    return float(max(2.0 * pairs[:stop].sum() - 1.0, 1.0))
