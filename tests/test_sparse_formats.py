"""A sparse matrix that is broken is refused, whatever its format and wherever it is passed.

SciPy's compiled code trusts index arrays: before these checks, most of what is here ended Python.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import matplotlib
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

import klnmf
from klnmf import KLNMF, MiniBatchKLNMF, objective, plots, tl, topics
from klnmf.backends.dask.array_blocks import checked_block
from klnmf.backends.dask.blocks import pattern_block
from klnmf.data import matrix_checks
from klnmf.data.matrix_checks import checked_matrix
from klnmf.evaluation import evaluate
from klnmf.frames import components_frame
from klnmf.model_selection import consensus, select_rank
from klnmf.named_features import transform_by_name
from klnmf.readers import CountTable, prepare
from klnmf.report import write_report
from klnmf.simulate import simulate_counts
from klnmf.uncertainty import bootstrap, differential_features
from sparse_breaking import BREAKS, FORMATS, OTHERS, broken, sparse
from strategies import efforts, for_all

matplotlib.use("Agg")

N, M, R = 12, 8, 2
COUNTS = simulate_counts(N, M, R, counts_per_sample=60, random_state=0).X.toarray() + 1.0
NAMES = [f"w{j}" for j in range(M)]
MODEL = KLNMF(R, random_state=0, n_threads=1).fit(COUNTS)
W = MODEL.transform(COUNTS)
H = MODEL.components_


def new(**parameters: Any) -> KLNMF:
    return KLNMF(R, random_state=0, n_threads=1, max_iter=2, **parameters)


def with_components(components: Any) -> KLNMF:
    model = copy.copy(MODEL)
    model.components_ = components
    return model


# Functions of what is broken, by the shape that it has to have.
OF_COUNTS: dict[str, Callable[[Any], Any]] = {
    "fit": lambda X: new().fit(X),
    "fit_transform": lambda X: new().fit_transform(X),
    "fit with missing cells": lambda X: new().fit(X, missing=np.eye(N, M) > 0),
    "missing in fit": lambda X: new().fit(COUNTS, missing=X),
    "transform": MODEL.transform,
    "transform with missing cells": lambda X: MODEL.transform(X, missing=np.eye(N, M) > 0),
    "missing in transform": lambda X: MODEL.transform(COUNTS, missing=X),
    "score": MODEL.score,
    "missing in score": lambda X: MODEL.score(COUNTS, missing=X),
    "mini-batch fit": lambda X: MiniBatchKLNMF(R).fit(X),
    "partial_fit": lambda X: MiniBatchKLNMF(R).partial_fit(X),
    "consensus": lambda X: consensus(X, R, 2),
    "select_rank": lambda X: select_rank(X, [1, 2]),
    "evaluate": lambda X: evaluate(MODEL, X),
    "bootstrap": lambda X: bootstrap(MODEL, X, 2),
    "differential_features": lambda X: differential_features(MODEL, X),
    "coherence": lambda X: topics.coherence(H, X),
    "project": lambda X: transform_by_name(MODEL, X, NAMES, model_feature_names=NAMES),
    "CountTable": CountTable,
    "prepare": lambda X: prepare(X, Path("nowhere")),
    "a block of a Dask array": lambda X: checked_block([X], None, "KLNMF", 0),
    "blocks side by side": lambda X: checked_block([COUNTS, X], None, "KLNMF", 0),
    "a pattern as a Dask array": lambda X: pattern_block(X, "missing"),
    "write_report": lambda X: write_report(Path("nowhere"), MODEL, W, X),
    "kl_divergence": lambda X: objective.kl_divergence(X, W + 0.1, H + 0.1),
    "kkt_residual": lambda X: objective.kkt_residual(X, W + 0.1, H + 0.1),
}
OF_W: dict[str, Callable[[Any], Any]] = {
    "start": lambda W: new().fit(COUNTS, W=W),
    "zero_W": lambda W: new().fit(COUNTS, zero_W=W),
    "fixed_W": lambda W: new().fit(COUNTS, fixed_W=W),
    "zero_W in transform": lambda W: MODEL.transform(COUNTS, zero_W=W),
    "inverse_transform": MODEL.inverse_transform,
    "plsi_probabilities": lambda W: topics.plsi_probabilities(W, H),
    "component_shares": lambda W: topics.component_shares(H, W),
    "mean_shares": lambda W: topics.mean_shares(W, H, ["a"] * N),
    "plot_structure": lambda W: plots.plot_structure(W, H),
    "differential_features": lambda W: differential_features(MODEL, COUNTS, W=W),
    "save": lambda W: MODEL.save(Path("nowhere"), W=W),
    "write_report": lambda W: write_report(Path("nowhere"), MODEL, W),
}
OF_COMPONENTS: dict[str, Callable[[Any], Any]] = {
    "start": lambda H: new().fit(COUNTS, H=H),
    "zero_components": lambda H: new(zero_components=H).fit(COUNTS),
    "from_components": KLNMF.from_components,
    "fixed_components": lambda H: new(fixed_components=H).fit(COUNTS),
    "top_features": lambda H: topics.top_features(H, NAMES),
    "format_topics": lambda H: topics.format_topics(H, NAMES),
    "match_components": lambda H: topics.match_components(H, MODEL.components_),
    "component_similarity": topics.component_similarity,
    "intertopic_coordinates": topics.intertopic_coordinates,
    "coherence": lambda H: topics.coherence(H, COUNTS),
    "evaluate": lambda H: evaluate(H, COUNTS),
    "plot_top_features": lambda H: plots.plot_top_features(H, NAMES),
    "plot_component_similarity": plots.plot_component_similarity,
    "transform with components_": lambda H: with_components(H).transform(COUNTS),
    "save with components_": lambda H: with_components(H).save(Path("nowhere")),
    "components_frame": lambda H: components_frame(with_components(H)),
}
ENTRIES = [
    pytest.param(function, dense, id=f"{what}-{name}")
    for what, dense, functions in (
        ("X", COUNTS, OF_COUNTS),
        ("W", W + 0.1, OF_W),
        ("H", H + 0.1, OF_COMPONENTS),
    )
    for name, function in functions.items()
]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("function", "dense"), ENTRIES)
def test_broken_matrices_are_refused(
    function: Callable[[Any], Any],
    dense: np.ndarray,
    format: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for how in BREAKS[format]:
        X = broken(format, how, dense)
        message = f"not a valid {format.upper()} matrix: .*[.]"
        with pytest.raises((ValueError, TypeError), match=message):
            function(X)


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize(
    ("format", "how"), [(format, how) for format in FORMATS for how in BREAKS[format]]
)
def test_every_way_of_being_broken_has_a_reason(format: str, how: str, kind: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^M is not a valid {format.upper()} matrix"):
        checked_matrix(broken(format, how, COUNTS, kind), "M")


@pytest.mark.parametrize("format", ["csr", "csc"])
@pytest.mark.parametrize("how", ["wild index", "indptr past the end", "negative index"])
def test_broken_matrices_of_anndata(format: str, how: str) -> None:
    adata = anndata.AnnData(sparse(format, COUNTS))
    BREAKS[format][how](adata.X)
    adata.layers["counts"] = sparse(format, COUNTS)
    BREAKS[format][how](adata.layers["counts"])
    with pytest.raises(ValueError, match=r"adata\.X is not a valid CS[RC] matrix"):
        tl.nmf(adata, R)
    with pytest.raises(ValueError, match=r"adata\.layers\['counts'\] is not a valid"):
        tl.nmf(adata, R, layer="counts")


@pytest.mark.parametrize(
    "X",
    [sp.coo_array(np.arange(5.0)), sp.csr_array(np.arange(5.0)), sp.coo_array(np.ones((2, 3, 4)))],
    ids=["1-D COO", "1-D CSR", "3-D COO"],
)
@pytest.mark.parametrize("function", [*OF_COUNTS.values()], ids=[*OF_COUNTS])
def test_other_numbers_of_dimensions(function: Callable[[Any], Any], X: Any) -> None:
    with pytest.raises(ValueError, match=r"dimensions|shape"):
        function(X)


# ---- what is right stays right -------------------------------------------------------------------


@pytest.mark.parametrize("format", [*FORMATS, *OTHERS])
@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (1, 1), (6, 4)])
def test_valid_matrices_pass(format: str, shape: tuple[int, int]) -> None:
    dense = np.arange(np.prod(shape), dtype=float).reshape(shape) % 3
    X = getattr(sp, f"{format}_array")(dense)
    np.testing.assert_array_equal(checked_matrix(X).toarray(), dense)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_valid_compressed_rows_are_not_copied(index_type: type) -> None:
    X = sp.csr_array(COUNTS)
    X.indices, X.indptr = X.indices.astype(index_type), X.indptr.astype(index_type)
    checked = checked_matrix(X)
    assert np.shares_memory(checked.data, X.data)
    if index_type is np.int32:  # SciPy narrows the others by itself
        assert np.shares_memory(checked.indices, X.indices)
        assert np.shares_memory(checked.indptr, X.indptr)


@pytest.mark.parametrize("index_type", [np.uint8, np.uint64, ">i4", ">i8"])
@pytest.mark.parametrize("format", FORMATS)
def test_other_types_of_indices(format: str, index_type: Any) -> None:
    X = sparse(format, np.triu(COUNTS))
    for name in ("indices", "indptr", "offsets"):
        if hasattr(X, name):
            setattr(X, name, getattr(X, name).astype(index_type))
    if format == "coo":
        X.coords = tuple(part.astype(index_type) for part in X.coords)
    np.testing.assert_array_equal(checked_matrix(X).toarray(), np.triu(COUNTS))


@pytest.mark.parametrize("format", ["coo", "bsr", "csr", "csc"])
def test_sums_of_entries_that_are_stored_twice_do_not_wrap(format: str) -> None:
    """In the eight bits of their type, 128 + 128 is 0."""
    twice = sp.coo_array((np.array([128, 128], np.uint8), ([0, 0], [1, 1])), shape=(2, 2))
    if format == "bsr":
        blocks = np.full((2, 1, 1), 128, np.uint8)
        X: Any = sp.bsr_array((blocks, [1, 1], [0, 2, 2]), shape=(2, 2))
    elif format == "coo":
        X = twice
    else:
        major, minor = ([1, 1], [0, 2, 2]) if format == "csr" else ([0, 0], [0, 0, 2])
        X = getattr(sp, f"{format}_array")((twice.data, major, minor), shape=(2, 2))
    wide = [[0, 256], [0, 0]]
    np.testing.assert_array_equal(klnmf.data.validation.check_counts(X).toarray(), wide)
    np.testing.assert_array_equal(CountTable(X).X.toarray(), wide)
    pattern = klnmf.constraints.checks.checked_pattern(X, "missing", (2, 2))
    np.testing.assert_array_equal(pattern.toarray(), np.array(wide) > 0)


def test_values_behind_the_end_do_not_count() -> None:
    X = sp.csr_array(COUNTS)
    X.data, X.indices = np.append(X.data, -5.0), np.append(X.indices, 10_000)
    np.testing.assert_array_equal(checked_matrix(X).toarray(), COUNTS)


def test_a_shape_beyond_all_memory() -> None:
    X = sp.coo_array((np.ones(1), ([0], [0])), shape=(2**55, 3))
    with pytest.raises(ValueError, match=r"M has 36,028,797,018,963,968 rows .* fit into memory"):
        checked_matrix(X, "M")


def test_nothing_else_converts() -> None:
    """Whoever needs compressed rows of what was passed gets them from `checked_matrix`."""
    package = Path(klnmf.__file__).parent
    for path in package.rglob("*.py"):
        if path.name not in ("matrix_checks.py", "validation.py"):
            found = re.findall(r"\.tocsr\(|\bcheck_array\(|\.check_format\(", path.read_text())
            assert not found, f"{path.relative_to(package)} has {found[0]}"


MISSING = sp.csr_array(COUNTS.max() <= COUNTS)
CALLS: dict[str, Callable[[KLNMF, Any], Any]] = {
    "fit": lambda model, X: model.fit(X),
    "fit with missing cells": lambda model, X: model.fit(X, missing=MISSING),
    "transform": lambda model, X: model.transform(X),
    "score with missing cells": lambda model, X: model.score(X, missing=MISSING),
    "partial_fit": lambda _, X: MiniBatchKLNMF(2, random_state=0).partial_fit(X),
    # Its null has fits of its own.
    "consensus": lambda _, X: consensus(X, 2, n_runs=2, n_null_runs=0, random_state=0),
    "select_rank": lambda _, X: select_rank(X, [1, 2], random_state=0),
}


@pytest.mark.parametrize("call", CALLS)
def test_x_passes_one_gate(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the index arrays is a pass over X."""
    passes: list[str] = []
    original = matrix_checks.csr_from_parts

    def counted(format: str, parts: Any, shape: Any, name: str = "X", n_threads: int = 1) -> Any:
        passes.append(name)
        return original(format, parts, shape, name, n_threads)

    model = KLNMF(2, max_iter=1, tol=1e9, random_state=0).fit(COUNTS)
    monkeypatch.setattr(matrix_checks, "csr_from_parts", counted)
    CALLS[call](model, sp.csc_array(COUNTS))
    assert passes.count("X") == 1


# ---- random corruption ---------------------------------------------------------------------------


def entries_of(X: Any) -> list[tuple[int, int, Any]]:
    """Stored entries, by the definition of the format; an IndexError where there is none."""
    n, m = X.shape
    if X.format == "coo":
        assert len(X.coords) == 2
        found = list(zip(*(part.tolist() for part in X.coords), X.data, strict=True))
    else:
        indptr, indices, found = X.indptr.tolist(), X.indices.tolist(), []
        n_major = m if X.format == "csc" else n
        assert len(indptr) == n_major + 1
        assert len(indices) == len(X.data)
        assert indptr[0] == 0
        for i in range(n_major):
            assert indptr[i] <= indptr[i + 1]
            for p in range(indptr[i], indptr[i + 1]):
                place = (i, indices[p]) if X.format == "csr" else (indices[p], i)
                found.append((*place, X.data[p]))
    assert all(0 <= i < n and 0 <= j < m for i, j, _ in found)
    return found


NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 6, 7, -1, -2, 100, 2**31 - 1, -(2**31), 2**40])


def corrupt(draw: Any, X: Any) -> None:
    """Change a number, a length or a type of one of the parts."""
    parts = ["coords"] if X.format == "coo" else ["indices", "indptr", "data"]
    name = draw(st.sampled_from(parts))
    axis = draw(st.integers(0, 1))
    array = X.coords[axis] if name == "coords" else getattr(X, name)
    how = draw(st.sampled_from(["number", "number", "cut", "longer", "type"]))
    changed = array.copy()
    if how == "number" and array.size:
        changed = changed.astype(float if name == "data" else np.int64)
        changed.flat[draw(st.integers(0, array.size - 1))] = draw(NUMBERS)
    elif how == "cut":
        changed = changed[: draw(st.integers(0, len(array)))]
    elif how == "longer":
        changed = np.concatenate([changed, changed[:1]])
    elif how == "type":
        with np.errstate(invalid="ignore"):  # numbers that the type does not have
            changed = changed.astype(draw(st.sampled_from([np.int64, np.uint8, np.int16])))
    if name == "coords":
        X.coords = tuple(changed if axis == a else part for a, part in enumerate(X.coords))
    else:
        setattr(X, name, changed)


@efforts(quick=200, thorough=3_000)
def test_random_corruption_is_refused_or_means_what_it_says(n_examples: int) -> None:
    def check(data: st.DataObject) -> None:
        format = data.draw(st.sampled_from(FORMATS))
        seed = data.draw(st.integers(0, 20))
        dense = np.random.default_rng(seed).poisson(0.7, (6, 4)).astype(float)
        X = sparse(format, dense)
        for _ in range(data.draw(st.integers(1, 2))):
            corrupt(data.draw, X)
        try:
            found = checked_matrix(X).toarray()
        except (ValueError, TypeError):
            return
        wanted = np.zeros((6, 4))
        for i, j, value in entries_of(X):
            wanted[i, j] += value
        np.testing.assert_array_equal(found, wanted)

    for_all(check, n_examples, data=st.data())


def _longer_row(X: sp.lil_array) -> None:
    X.data[0] = [*X.data[0], *[1.0] * 200]


def _shorter_row(X: sp.lil_array) -> None:
    X.data[0] = X.data[0][:-1]


def _fewer_rows(X: sp.lil_array) -> None:
    X.rows, X.data = X.rows[:-1], X.data[:-1]


def _fewer_offsets(X: sp.dia_array) -> None:
    X.offsets = X.offsets[:4]


def _offsets_in_two_dimensions(X: sp.dia_array) -> None:
    X.offsets = X.offsets.reshape(-1, 1)


@pytest.mark.parametrize(
    ("format", "damage"),
    [
        ("lil", _longer_row),
        ("lil", _shorter_row),
        ("lil", _fewer_rows),
        ("dia", _fewer_offsets),
        ("dia", _offsets_in_two_dimensions),
    ],
)
def test_parts_that_compiled_code_trusts_are_compared_first(format: str, damage: Any) -> None:
    X = sp.csr_array(np.random.default_rng(0).poisson(1.0, (12, 8)).astype(float)).asformat(format)
    damage(X)
    with pytest.raises(ValueError, match=f"X is not a valid {format.upper()} matrix"):
        KLNMF(2).fit(X)
