"""What components start from: means of groups of similar samples, found among few of them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf.data.sparse_data import InMemoryData, InMemoryView
from klnmf.data.validation import check_counts
from klnmf.solvers.initialization import sample_start
from klnmf.solvers.sample_groups import FEWEST_PER_GROUP, MOST_SAMPLES, group_means

Array = np.ndarray
N_BLOCKS, WIDTH = 5, 12


def samples_of_blocks(n_samples: int, dtype: type = np.float64) -> sp.csr_array:
    """Counts of one block of features each, the blocks in turn; some samples have far more."""
    generator = np.random.default_rng(0)
    blocks = np.arange(n_samples) % N_BLOCKS
    depth = np.where(generator.random(n_samples) < 0.3, 50.0, 3.0)
    counts = generator.poisson(depth[:, None], (n_samples, WIDTH)) + 1
    full = np.zeros((n_samples, N_BLOCKS, WIDTH))
    full[np.arange(n_samples), blocks] = counts
    return check_counts(sp.csr_array(full.reshape(n_samples, -1).astype(dtype)))


def means_of(X: sp.csr_array, n_groups: int, seed: int = 0) -> Array | None:
    """Group × feature."""
    view = InMemoryData(X).view(0)
    means = group_means(view, np.arange(X.shape[0]), n_groups, np.random.default_rng(seed))
    return None if means is None else means.T


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(5))
def test_every_group_is_one_block(seed: int, dtype: type) -> None:
    means = means_of(samples_of_blocks(2400, dtype), N_BLOCKS, seed)
    assert means is not None
    assert means.dtype == dtype
    by_block = means.reshape(N_BLOCKS, N_BLOCKS, WIDTH).sum(axis=2)
    np.testing.assert_allclose(np.sort(by_block, axis=1)[:, -1], 1, rtol=1e-5)  # nothing elsewhere
    assert sorted(by_block.argmax(axis=1)) == list(range(N_BLOCKS))


def test_few_samples_are_no_groups() -> None:
    enough = int(np.ceil(FEWEST_PER_GROUP * N_BLOCKS / MOST_SAMPLES))
    assert means_of(samples_of_blocks(enough), N_BLOCKS) is not None
    assert means_of(samples_of_blocks(enough - 1), N_BLOCKS) is None


def test_samples_that_are_all_the_same_make_one_group() -> None:
    means = means_of(check_counts(sp.csr_array(np.full((2400, 7), 3.0))), N_BLOCKS)
    assert means is not None
    np.testing.assert_allclose(means.sum(axis=0), 1 / 7)


def test_few_samples_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    take_rows = InMemoryView.take_rows

    def counted(view: InMemoryView, rows: Array) -> tuple[Array, Array, Array]:
        read.append(len(rows))
        return take_rows(view, rows)

    monkeypatch.setattr(InMemoryView, "take_rows", counted)
    means_of(samples_of_blocks(24000), N_BLOCKS)
    assert read == [32 * N_BLOCKS]
    read.clear()
    means_of(samples_of_blocks(1200), N_BLOCKS)
    assert read == [100]


@pytest.mark.parametrize("n_samples", [30, 2400], ids=["few", "many"])
def test_a_start_has_no_zeros_and_follows_the_groups(n_samples: int) -> None:
    X = samples_of_blocks(n_samples)
    W, H = sample_start(InMemoryData(X), N_BLOCKS, np.random.default_rng(0))
    assert (np.asarray(W) > 0).all()
    assert (H > 0).all()
    np.testing.assert_allclose(H.sum(axis=0), 1)
    if n_samples > 1000:  # half of a component is its group, half the margins
        largest = H.reshape(N_BLOCKS, WIDTH, N_BLOCKS).sum(axis=1).max(axis=0)
        np.testing.assert_allclose(largest, 0.5 + 0.5 / N_BLOCKS, atol=0.1)
