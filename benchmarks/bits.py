"""Checksums of the factors of many small fits: `python -m benchmarks.bits > before.txt`.

A change that must not change results prints the same lines before and after: all solvers, both
types, penalties, constraints, starts, batches and transform, on one build of the core.
"""

from __future__ import annotations

import warnings
import zlib
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf import KLNMF, MiniBatchKLNMF
from klnmf.datasets import load_bible
from klnmf.model_selection import consensus, select_rank

RANK = 6


def checksum(*arrays: Any) -> str:
    """CRC-32 of the bytes of some arrays, in order."""
    total = 0
    for array in arrays:
        dense = np.ascontiguousarray(array.toarray() if sp.issparse(array) else array)
        total = zlib.crc32(dense.reshape(-1).view(np.uint8).data, total)
    return f"{total:08x}"


def constraints(n: int, m: int) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Parameters and arguments of fit, by a name for them."""
    generator = np.random.default_rng(1)
    missing = sp.random_array((n, m), density=0.01, rng=generator, format="csr") > 0
    zeros = generator.random((n, RANK)) < 0.2
    zeros[:, :2] = False
    of_components = generator.random((RANK, m)) < 0.2
    of_components[0] = False
    return {
        "sample_weight": ({}, {"sample_weight": generator.integers(0, 3, n)}),
        "feature_weight": ({"feature_weight": generator.uniform(0.5, 2, m)}, {}),
        "exposure": ({}, {"exposure": generator.uniform(0.5, 2, n)}),
        "missing": ({}, {"missing": missing}),
        "fixed_W": ({}, {"fixed_W": generator.uniform(0.5, 2, (n, 1))}),
        "zero_W": ({}, {"zero_W": zeros}),
        "fixed_components": ({"fixed_components": generator.uniform(0, 1, (2, m))}, {}),
        "zero_components": ({"zero_components": of_components}, {}),
    }


def lines() -> Any:
    """Yield a name and a checksum for each setting."""
    X = load_bible().data[:300]
    X = X[:, np.flatnonzero(X.sum(axis=0))]
    common = {"n_components": RANK, "random_state": 0, "max_iter": 30}
    penalties = {
        "none": {},
        "l1": {"l1_W": 0.1, "l1_H": 0.2},
        "l2": {"l2_W": 0.1, "l2_H": 0.3},
        "both": {"l1_W": 0.1, "l2_W": 0.05, "l1_H": 0.2, "l2_H": 0.1},
    }

    def fitted(name: str, arguments: dict[str, Any] | None = None, **parameters: Any) -> Any:
        model = KLNMF(**{**common, **parameters})
        W = model.fit_transform(X, **(arguments or {}))
        new = (
            {}
            if arguments is None
            else {k: v for k, v in arguments.items() if k != "sample_weight"}
        )
        figures = np.array([model.divergence_, model.optimality_gap_, model.kkt_residual_])
        records = np.array([record["objective"] for record in model.history_])
        parts = (W, model.components_, figures, records, model.transform(X, **new))
        return name, checksum(*parts)

    for dtype in ("float32", "float64"):
        for solver in ("srcd", "mu", "bmme", "srcd-paper"):
            for name, values in penalties.items():
                yield fitted(f"{solver} {dtype} {name}", solver=solver, dtype=dtype, **values)
        for name, (parameters, arguments) in constraints(*X.shape).items():
            for kind in ("none", "both"):
                values = {**parameters, **penalties[kind], "dtype": dtype}
                yield fitted(f"srcd {dtype} {kind} {name}", arguments, **values)
            yield fitted(f"mu {dtype} {name}", arguments, **parameters, dtype=dtype, solver="mu")
        model = MiniBatchKLNMF(RANK, batch_size=100, random_state=0, dtype=dtype).fit(X)
        yield f"batches {dtype}", checksum(model.components_, model.transform(X))
    for init in ("random", "nndsvd"):
        yield fitted(f"init {init}", init=init)
    yield fitted("n_init", n_init=2)
    yield fitted("ccd", solver="ccd", max_iter=3)
    yield fitted("float32 exact", dtype="float64", max_iter=200)
    agreed = consensus(X, RANK, n_runs=4, random_state=0)
    yield "consensus", checksum(agreed.components, agreed.W)
    selection = select_rank(X, [1, 2, 3, 5], n_splits=2, random_state=0)
    yield "select_rank", checksum(selection.deviance)
    yield fitted("rank 40", n_components=40, dtype="float32")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name, value in lines():
        print(f"{value}  {name}", flush=True)
