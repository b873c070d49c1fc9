"""Every kernel of the CUDA back-end on small problems, for ``make sanitize-cuda``."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.simulate import simulate_counts

warnings.simplefilter("ignore")
# One column is longer than a task, so that pieces of rows are added.
TALL = simulate_counts(9000, 12, 3, counts_per_sample=20, random_state=0).X
SMALL = simulate_counts(40, 30, 3, counts_per_sample=60, random_state=0).X
KNOWN = {
    "sample_weight": np.linspace(0.5, 2.0, 40),
    "exposure": np.linspace(0.5, 2.0, 40),
    "missing": sp.csr_array(np.random.default_rng(0).random((40, 30)) < 0.1),
    "fixed_W": np.ones((40, 1)),
}


def main() -> None:
    """One fit for each layout of the factors, and one with everything that may be known."""
    settings = {"backend": "cuda", "dtype": "float32", "max_iter": 3, "random_state": 0}
    for rank in (5, 20, 50, 60):
        model = KLNMF(rank, **settings).fit(SMALL)
        print(f"{rank} components: {model.divergence_:.6g}")
    for solver in ("mu", "bmme", "srcd"):
        model = KLNMF(4, solver=solver, l1_W=0.1, l2_H=0.1, **settings).fit(TALL)
        print(f"{solver}: {model.divergence_:.6g}")
    zeros = np.zeros((4, 30), bool)
    zeros[1, :5] = True
    model = KLNMF(4, zero_components=zeros, **settings).fit(SMALL, **KNOWN)
    print(f"constraints: {model.divergence_:.6g}")


if __name__ == "__main__":
    main()
