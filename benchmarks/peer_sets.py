"""The matrices of the comparison with peers: embedded, from a folder, and simulated."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.common import load_matrix
from klnmf.data.validation import check_counts
from klnmf.datasets import load_bible
from klnmf.simulate import simulate_counts

EMBEDDED = "bible"
REAL = ("reuters21578", "tdt2_top30", "20newsgroups_qwone", "mnist_train", "pbmc3k")
# Samples and features; about 100 nonzeros per sample, drawn from 20 components.
SIMULATED = {
    "simulated-1e5": (1_000, 10_000),
    "simulated-1e6": (10_000, 20_000),
    "simulated-1e7": (100_000, 50_000),
    "simulated-1e8": (1_000_000, 100_000),
}
# Too long for all but a few solvers.
LARGE = frozenset({"simulated-1e7", "simulated-1e8"})
ALL_SETS = (EMBEDDED, *REAL, *SIMULATED)
# Bytes in float64 up to which a dense form is made.
LARGEST_DENSE = 200e6


@dataclass(frozen=True)
class Folders:
    """Folders of the given matrices, the results and the simulated matrices."""

    data: Path | None
    out: Path

    @property
    def simulated(self) -> Path:
        """Folder of the simulated matrices."""
        return self.out / "data"

    def of(self, name: str) -> Path | None:
        """Folder of one set; None if it needs none."""
        if name == EMBEDDED:
            return None
        return self.simulated if name in SIMULATED else self.data


def check_sets(names: list[str], folders: Folders) -> None:
    """Exit with a list of the missing files, if there are any."""
    given = [name for name in names if folders.of(name) == folders.data and name != EMBEDDED]
    unknown = [name for name in given if name.startswith("simulated-")]
    if unknown:
        raise SystemExit(
            f"Unknown data set: {', '.join(unknown)}; there are {', '.join(SIMULATED)}."
        )
    if given and folders.data is None:
        raise SystemExit(
            f"The sets {', '.join(given)} are read from a folder: name it with --data DIR or the "
            f"variable KLNMF_DATA, or choose sets that need none: --sets {EMBEDDED} simulated-1e6."
        )
    absent = [
        f"{name}.npz" for name in given if not (Path(folders.data or "") / f"{name}.npz").exists()
    ]
    if absent:
        raise SystemExit(
            f"{folders.data} has no {', '.join(absent)}. Each is a matrix of counts, samples × "
            "features, as scipy.sparse.save_npz writes it. Put it there, name another folder with "
            "--data, or leave the set out with --sets."
        )


def make_simulated(name: str, folders: Folders) -> None:
    """Draw a simulated matrix and keep it with the results, unless it exists."""
    path = folders.simulated / f"{name}.npz"
    if path.exists():
        return
    n, m = SIMULATED[name]
    X = simulate_counts(n, m, 20, counts_per_sample=101.5, random_state=0).X
    X.data = X.data.astype(np.min_scalar_type(X.data.max()))
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished.npz")
    sp.save_npz(unfinished, X, compressed=False)
    os.replace(unfinished, path)


def load_set(name: str, folder: Path | None, dtype: str) -> sp.csr_array:
    """Counts of one set, samples × features."""
    if name == EMBEDDED:
        return check_counts(load_bible().data, dtype=dtype)
    return load_matrix(folder, name, np.dtype(dtype).type)


def smallest_dense(names: list[str], folders: Folders) -> str | None:
    """The set with the smallest dense form, if that is small enough."""
    sizes = {name: 8.0 * np.prod(_shape(name, folders), dtype=np.float64) for name in names}
    smallest = min(sizes, key=lambda name: sizes[name])
    return smallest if sizes[smallest] <= LARGEST_DENSE else None


def _shape(name: str, folders: Folders) -> tuple[int, ...]:
    if name == EMBEDDED:
        return tuple(load_bible().data.shape)
    if name in SIMULATED:
        return SIMULATED[name]
    with np.load(Path(folders.data or "") / f"{name}.npz") as archive:
        return tuple(int(size) for size in archive["shape"])
