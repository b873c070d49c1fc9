"""Where a fit starts: drawn factors, and covers for nonzeros that given ones leave bare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from klnmf.backends.cpu import column_sums
from klnmf.constraints.constraints import Constraints
from klnmf.constraints.explained_cells import stacked, unexplained_cells
from klnmf.data.dominant_samples import dominant_rows
from klnmf.data.sparse_data import CountData, RowView
from klnmf.solvers.sample_groups import group_means, shares_of_rows
from klnmf.support.array_types import Array


@dataclass(frozen=True)
class ZeroRows:
    """Rows of zeros, as a description that NumPy turns into an array."""

    n_rows: int
    n_components: int
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the array."""
        return (self.n_rows, self.n_components)

    def part(self, rows: slice) -> ZeroRows:
        """Describe some of the rows."""
        return ZeroRows(rows.stop - rows.start, self.n_components, self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.zeros(self.shape, dtype=self.dtype if dtype is None else dtype)


@dataclass(frozen=True)
class NoisyRows:
    """Uniform noise with a scale for each row, as a description that NumPy turns into an array.

    Any rows can be drawn without the others, with the same values: the generator skips the rest.
    """

    state: dict[str, Any]  # of the PCG64 generator before the first row
    skipped: int  # entries before the first row
    scales: Array  # one for each row, in the type of the array
    n_components: int

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the array."""
        return (len(self.scales), self.n_components)

    def part(self, rows: slice) -> NoisyRows:
        """Describe some of the rows."""
        skipped = self.skipped + rows.start * self.n_components
        return NoisyRows(self.state, skipped, self.scales[rows], self.n_components)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        kind = self.scales.dtype.type
        generator = np.random.Generator(np.random.PCG64())
        generator.bit_generator.state = self.state
        _skip(generator, self.skipped, self.scales.dtype)
        noise = generator.random(self.shape, dtype=kind)
        noise += kind(0.01)
        noise *= self.scales[:, None]
        return noise if dtype is None else noise.astype(dtype, copy=False)


def _skip(generator: np.random.Generator, n_entries: int, dtype: np.dtype[Any]) -> None:
    """Leave the generator as if this many uniform numbers had been drawn.

    A double takes 64 bits. A float takes 32, and the other 32 are kept for the next one.
    """
    n_entries = int(n_entries)  # PCG64 cannot be moved on by a NumPy integer
    bits = generator.bit_generator
    assert isinstance(bits, np.random.PCG64)
    waiting = bits.state["has_uint32"], bits.state["uinteger"]
    if dtype == np.float64:
        bits.advance(n_entries)
        moved = bits.state
        moved["has_uint32"], moved["uinteger"] = waiting
        bits.state = moved
        return
    if n_entries and waiting[0]:
        generator.random(dtype=np.float32)
        n_entries -= 1
    if n_entries:
        bits.advance(n_entries // 2)
    if n_entries % 2:
        generator.random(dtype=np.float32)


def random_start(
    data: CountData, n_components: int, generator: np.random.Generator
) -> list[NoisyRows | Array]:
    """Uniform noise scaled to the margins: the sums of WHᵀ start near the row and column sums of X.

    Every entry of a nonempty row or column is positive: no solver is locked at a zero.
    """
    views = [data.view(mode) for mode in range(len(data.shape))]
    W, *others = [_noise(view, n_components, generator, data.dtype) for view in views]
    factors: list[NoisyRows | Array] = [W]
    for noise in others:
        H = np.asarray(noise)
        sums = np.maximum(H.sum(axis=0, dtype=np.float64), np.finfo(data.dtype).tiny)
        H /= sums.astype(data.dtype)
        factors.append(H)
    return factors


def _noise(
    view: RowView, n_components: int, generator: np.random.Generator, dtype: np.dtype[Any]
) -> NoisyRows:
    scales = (view.row_sums / (0.51 * n_components)).astype(dtype)
    noise = NoisyRows(dict(generator.bit_generator.state), 0, scales, n_components)
    _skip(generator, view.n_rows * n_components, dtype)
    return noise


# Samples averaged for the start of a component, and the share of it that the margins keep.
SAMPLES_PER_COMPONENT = 3
MARGIN_SHARE = 0.5
ROWS_AT_ONCE = 1024


def sample_start(
    data: CountData, n_components: int, generator: np.random.Generator
) -> list[NoisyRows | Array]:
    """Components that start as averages of a few samples, mixed with the margins and noise.

    They differ from the first iteration on, unlike components of pure noise. The samples of an
    average are similar to each other if X has many, and random otherwise. Every entry of a nonempty
    row or column is positive. A dominant sample has a component of its own, the last ones, and no
    part in the others. A sample of a tensor is a slice; its sums by the other modes, side by side,
    are what is averaged, so that H has the rows of all other modes.
    """
    by_rows = data.view(0)
    nonempty = np.flatnonzero(by_rows.row_sums > 0)
    if len(nonempty) == 0:
        return random_start(data, n_components, generator)
    W = _noise(by_rows, n_components, generator, data.dtype)
    own = dominant_rows(by_rows.row_sums, n_components)
    nonempty = np.setdiff1d(nonempty, own, assume_unique=True)
    n_others = n_components - len(own)
    H = group_means(by_rows, nonempty, n_others, generator)
    if H is None:
        H = _means_of_few(by_rows, nonempty, n_others, generator)
    sums = np.concatenate([data.view(mode).row_sums for mode in range(1, len(data.shape))])
    total = data.total
    if len(own):
        profiles = shares_of_rows(by_rows, own).T
        H = np.hstack([H, profiles.toarray()])
        # In the margins each of them counts as much as another sample on average.
        mean = by_rows.row_sums[nonempty].mean()
        sums = np.maximum(sums - profiles @ by_rows.row_sums[own], 0.0)
        sums += profiles @ np.full(len(own), mean)
        total = sums.sum() / len(by_rows.sizes)
    # Columns that sum to 1; in place and some rows at a time, which stay in the cache.
    margins = (MARGIN_SHARE / total * sums).astype(data.dtype)
    for start in range(0, len(H), ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        H[some] *= data.dtype.type(1 - MARGIN_SHARE)
        H[some] += margins[some, None]
        noise = generator.random(H[some].shape, dtype=data.dtype.type)
        noise += data.dtype.type(0.5)
        H[some] *= noise
    others = by_rows.split(H)
    for of_mode in others:
        of_mode /= column_sums(of_mode, by_rows.n_threads).astype(data.dtype)
    return [W, *others]


def _means_of_few(
    view: RowView, nonempty: Array, n_components: int, generator: np.random.Generator
) -> Array:
    """Mean shares of the features (rows) in a few random samples for each component."""
    # Few samples: fewer of them each, so that the components still differ.
    size = int(np.clip(len(nonempty) // (2 * n_components), 1, SAMPLES_PER_COMPONENT))
    # A sample that is a component by itself is not to be another one as well.
    is_again = size > 1 or n_components > len(nonempty)
    chosen = generator.choice(nonempty, size=(n_components, size), replace=is_again)
    used, places = np.unique(chosen.ravel(), return_inverse=True)
    shares = shares_of_rows(view, used)
    weights = np.full(chosen.size, 1 / size, dtype=shares.dtype)
    rows = np.repeat(np.arange(n_components), size)
    means = sp.csr_array((weights, (rows, places)), shape=(n_components, len(used))) @ shares
    return np.asarray(means.T.toarray(order="C"))


def nndsvd_start(data: CountData, n_components: int, generator: np.random.Generator) -> list[Array]:
    """Nonnegative double SVD (Boutsidis and Gallopoulos): the larger signed part of each pair.

    Zeros are filled with a small share of the margins: X may have nonzeros there. Components beyond
    the rank of X are random. X is a matrix.
    """
    W, H = map(np.asarray, random_start(data, n_components, generator))
    rank = min(n_components, *data.shape)
    seed = int(generator.integers(2**31))
    with threadpool_limits(1):  # a threaded BLAS sums in a varying order
        U, s, Vt = randomized_svd(data.view(0).as_csr(), rank, random_state=seed)
    filler = 0.01
    W *= data.dtype.type(filler)
    H *= data.dtype.type(filler)
    for k in range(rank):
        u, v = _larger_signed_part(U[:, k], Vt[k])
        weight = s[k] * v.sum()  # columns of H sum to 1, as in a random start
        if weight > 0:
            W[:, k] += (u * weight).astype(data.dtype)
            H[:, k] += (v / v.sum()).astype(data.dtype)
    return [W, H]


def _larger_signed_part(u: Array, v: Array) -> tuple[Array, Array]:
    parts = [(np.maximum(x, 0), np.maximum(y, 0)) for x, y in ((u, v), (-u, -v))]
    return max(parts, key=lambda part: np.linalg.norm(part[0]) * np.linalg.norm(part[1]))


# By mode. The first factor may be a description, which NumPy turns into an array.
STARTS: dict[str, Callable[..., list[Any]]] = {
    "samples": sample_start,
    "random": random_start,
    "nndsvd": nndsvd_start,
}


def shares_of_columns(view: RowView, dtype: np.dtype[Any]) -> Array:
    """Share of each column in the total of X, and no less than the rounding unit of the type.

    Beside far larger counts, the share that a tiny one has of a tiny component is beyond a float32.
    """
    shares: Array = view.row_sums / view.row_sums.sum()
    return np.maximum(shares, np.finfo(dtype).eps, out=shares)


def cover_columns(H: Array, view: RowView) -> None:
    """Fill, in place, the zero rows of H whose column of X has nonzeros: no W could cover these.

    Each component gets the share of its mass that the column has of X.
    """
    bare = (view.row_sums > 0) & ~H.any(axis=1)
    if bare.any():
        shares = shares_of_columns(view, H.dtype)[bare]
        masses = H.sum(axis=0, dtype=np.float64)
        H[bare] = np.outer(shares, masses if masses.any() else np.ones_like(masses))


def cover_cells(constraints: Constraints, start: Sequence[Array | None], data: CountData) -> None:
    """Fill zeros of factors, in place, where no allowed W would cover a nonzero.

    ``start`` are the factors by mode, in the units of the fit and with the constraints imposed. The
    first is not looked at, and those that are None are positive where they may be.
    """
    for mode, H in enumerate(start[1:], 1):
        if H is None:
            continue
        may_move = constraints.imposed_on(mode, np.ones(H.shape, bool))
        may_move &= ~constraints.is_frozen(mode)
        is_positive = [None if factor is None else factor > 0 for factor in start[1:]]
        others = stacked(is_positive, constraints)
        bare = np.zeros(data.view(0).n_columns, dtype=bool)
        for _, columns in unexplained_cells(constraints.allowed(0), others, data):
            bare[columns] = True
        bare = data.view(0).split(bare)[mode - 1]
        if not bare.any():
            continue
        shares = shares_of_columns(data.view(mode), H.dtype)
        filler = np.outer(shares, np.full(H.shape[1], H.sum(axis=0, dtype=np.float64).max() or 1.0))
        np.copyto(H, filler.astype(H.dtype), where=bare[:, None] & may_move & (H == 0))
