"""What the tests of matrices on disk share."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.readers import OnDiskMatrix


def random_counts(n: int, m: int, density: float, seed: int = 0) -> sp.csr_array:
    generator = np.random.default_rng(seed)
    X = sp.csr_array(sp.random(n, m, density, random_state=generator))
    X.data = generator.geometric(0.4, X.nnz).astype(np.float32)
    return X


def assert_is(matrix: OnDiskMatrix, X: sp.csr_array) -> None:
    """Both views on disk are those in memory, to the bit, and so is all that is derived."""
    found, wanted = matrix.data, InMemoryData(check_counts(X))
    for mode in (0, 1):
        ours, theirs = found.view(mode), wanted.view(mode)
        np.testing.assert_array_equal(ours.row_sums, theirs.row_sums)
        for part in ("indptr", "indices", "values"):
            on_disk, in_memory = getattr(ours.whole(), part), getattr(theirs, part)
            assert on_disk.dtype == in_memory.dtype, part
            np.testing.assert_array_equal(on_disk, in_memory, err_msg=part)
    for fact in ("shape", "dtype", "nnz", "total", "divergence_constant", "is_exact_in_float32"):
        assert getattr(found, fact) == getattr(wanted, fact), fact
    assert found.fingerprint == wanted.fingerprint
