"""Small fits, to be compared between two builds of the core.

    python tools/small_fits.py FILE                  write the results of this build
    python tools/small_fits.py FILE --compare OTHER  and compare them with those of another build

Builds for other processors and of other compilers round differently. Few iterations from one start
end within rounding of each other; what differs more is an error. That is so of solvers whose steps
are continuous: "ccd" stops and "srcd-paper" turns by thresholds, which amplify rounding, so that
these are left to the kernel tests.
"""

from __future__ import annotations

import argparse
import platform
import warnings

import numpy as np
import scipy.sparse as sp

from klnmf import KLNMF, _core

RANKS = (3, 8, 20)
ITERATIONS = 5
# Relative difference of two results that is rounding. Fits by "srcd" begin in single precision.
TOLERANCE = {
    ("float32", "srcd"): 1e-4,
    ("float32", "mu"): 1e-4,
    ("float32", "bmme"): 1e-4,
    ("float64", "srcd"): 1e-4,
    ("float64", "mu"): 1e-12,
    ("float64", "bmme"): 1e-12,
}


def results() -> dict[str, np.ndarray]:
    """Return the factors of all fits, and W of other samples."""
    generator = np.random.default_rng(0)
    W, H = generator.gamma(0.3, size=(300, 6)), generator.gamma(0.3, size=(6, 200))
    X = sp.csr_array(generator.poisson(W @ H).astype(np.float64))
    found = {}
    for dtype, solver in TOLERANCE:
        for rank in RANKS:
            model = KLNMF(rank, solver=solver, random_state=0, max_iter=ITERATIONS, tol=0.0)
            scores = model.fit_transform(X[:200].astype(dtype))
            name = f"{dtype} {solver} {rank}"
            found[f"{name} W"], found[f"{name} H"] = scores, model.components_
            found[f"{name} transform"] = model.transform(X[200:].astype(dtype))
    return found


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference of entries, relative to the largest entry."""
    return float(np.abs(a - b).max() / np.abs(b).max())


def main() -> None:
    """Fit, write, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--compare")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found = results()
    print(f"{len(found)} results on {platform.machine()}, {_core.instruction_set()}")
    np.savez(arguments.file, **found)
    if arguments.compare is None:
        return
    with np.load(arguments.compare) as other:
        assert set(other.files) == set(found)
        differences = {name: difference(found[name], other[name]) for name in found}
    for (dtype, solver), tolerance in TOLERANCE.items():
        size = max(d for name, d in differences.items() if name.startswith(f"{dtype} {solver} "))
        print(f"{dtype} {solver}: differences of at most {size:.1e} (allowed: {tolerance:.0e})")
        assert size < tolerance
    print(f"{sum(d == 0.0 for d in differences.values())} results are the same bits")


if __name__ == "__main__":
    main()
