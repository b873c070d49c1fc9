"""Shared by the benchmark scripts: the data folder and random starts."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.solvers.initialization import STARTS


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--data``; its default is the environment variable KLNMF_DATA."""
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("KLNMF_DATA"),
        metavar="DIR",
        help="folder with NAME.npz matrices (scipy.sparse.save_npz); default: $KLNMF_DATA",
    )


def load_matrix(folder: Path | None, name: str, dtype: type = np.float32) -> sp.csr_array:
    """Return the counts of one data set, samples × features."""
    if folder is None:
        raise SystemExit(
            "Set the data folder with --data DIR or the environment variable KLNMF_DATA."
        )
    path = Path(folder) / f"{name}.npz"
    if not path.exists():
        raise SystemExit(f"{path} does not exist. Set --data to the folder that holds {name}.npz.")
    return check_counts(sp.load_npz(path), dtype=dtype)


def start_pair(
    X: sp.csr_array, n_components: int, seed: int, init: str = "samples"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the random start of this seed for ``fit``: W (n × r) and H (r × m)."""
    W, H = STARTS[init](InMemoryData(X), n_components, np.random.default_rng(seed))
    return np.asarray(W), np.ascontiguousarray(H.T)
