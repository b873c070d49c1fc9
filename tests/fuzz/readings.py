"""What is done with a case: it is read in every way there is, and what was read is checked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fuzz.seeds import COUNTS, RANKS, RUNS, SAME, model_to_fit
from klnmf import KLNMF, RunOptions, load_model
from klnmf.cli import main
from klnmf.model_selection import Consensus, RankSelection, consensus, select_rank
from klnmf.readers import (
    FORMATS,
    CountTable,
    OnDiskMatrix,
    open_matrix,
    prepare,
    read_counts,
    read_tensor,
)
from klnmf.readers.format import Format

# What may leave a reader, with its subclasses.
ALLOWED = (ValueError, TypeError, OSError)
# Larger tables are not fitted: that would try patience, not the reader.
MOST_TO_FIT = 10_000
# Formats that `prepare` reads in pieces.
STREAMED = {name for name, f in FORMATS.items() if type(f).read is Format.read}


class WrongResultError(AssertionError):
    """Something was read that is not valid."""


def _check_table(table: CountTable) -> None:
    """Refuse a table that is not what CountTable promises."""
    X, (n, m) = table.X, table.shape
    ends, values = X.indptr, X.data
    anew = sp.csr_array((values, X.indices, ends), X.shape)  # which does not know what it is yet
    problems = {
        "X is no CSR array": not isinstance(X, sp.csr_array),
        "the type is not that of counts": values.dtype.kind not in "iuf",
        "indptr is not right": (len(ends), ends[0], ends[-1]) != (n + 1, 0, len(values)),
        "a count is not finite and positive": not ((values > 0) & np.isfinite(values)).all(),
        "X is not canonical": not anew.has_canonical_format,
        "an index leads out": X.nnz > 0 and (X.indices.min() < 0 or X.indices.max() >= m),
        "row_names are not right": not _are_names(table.row_names, n),
        "column_names are not right": not _are_names(table.column_names, m),
        "labels are not right": not _are_names(table.labels, n),
    }
    for problem, is_there in problems.items():
        if is_there:
            raise WrongResultError(problem)


def _are_names(names: Any, size: int) -> bool:
    return names is None or (len(names) == size and all(isinstance(name, str) for name in names))


def _check_fit(X: Any) -> None:
    """One iteration: finite components, or an error that says why not."""
    if max(X.shape) > MOST_TO_FIT:
        return
    _check_finite(KLNMF(2, max_iter=1, tol=0.0, random_state=0, n_threads=1).fit(X).components_)


def _check_finite(*arrays: Any) -> None:
    for array in arrays:
        values = array.data if sp.issparse(array) else np.asarray(array)
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise WrongResultError("a result is not finite and nonnegative")


def _entry(folder: Path, format: str) -> Path:
    """What to read in the folder of a case."""
    if format in ("10x", "texts"):
        return folder
    found = [path for path in folder.iterdir() if path.name.startswith(("counts.", "docword."))]
    beside = (".rows.txt", ".columns.txt", ".labels.txt", ".vocab.txt")
    return min((path for path in found if not path.name.endswith(beside)), default=folder / "none")


# Triplets are documents too, if their names are the texts.
_TEXTS: tuple[dict[str, Any], ...] = (
    {"text_field": "column", "id_field": "row"},
    {"text_field": "column", "skip_unreadable": True, "min_df": 2},
)
_OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "10x": ({"feature_names": "id"},),
    "10x-h5": ({"feature_names": "id"},),
    "h5ad": ({"layer": "raw"}, {"layer": "counts", "labels": "label"}),
    "loom": ({"layer": "spliced"},),
    "texts": ({"skip_unreadable": True, "normalize": "NFKC"},),
    "jsonl": ({"id_field": "id", "label_field": "label"}, {"skip_unreadable": True}),
    "csv": ({"layout": "table"}, {"layout": "triplets"}, *_TEXTS),
    "tsv": ({"layout": "table"}, {"layout": "triplets"}, *_TEXTS),
    "parquet": ({"layout": "table"}, {"layout": "triplets"}, *_TEXTS),
}


def _use_table(format: str, folder: Path) -> None:
    """Read in every way there is; whether the first of them is refused is the result."""
    path = _entry(folder, format)
    for options in _OPTIONS.get(format, ()):
        with suppress(*ALLOWED):
            _check_table(read_counts(path, format=format, **options))
    prepared = _read_in_pieces(path, format, folder / "prepared") if format in STREAMED else None
    try:
        table = read_counts(path, format=format)
    except ALLOWED as error:
        if prepared is not None:
            raise WrongResultError(f"{format} is prepared, and refused as a whole") from error
        raise
    _check_table(table)
    if prepared is not None and not _is_same(prepared.as_csr(), table.X):
        raise WrongResultError(f"{format} is prepared as another matrix than it is read")
    with suppress(*ALLOWED):  # nothing but zeros, or counts that are too large
        _check_fit(table.X if prepared is None else prepared)


def _read_in_pieces(path: Path, format: str, target: Path) -> OnDiskMatrix | None:
    try:
        return prepare(path, target, memory="1M", format=format)
    except ALLOWED:
        return None


def _is_same(found: sp.csr_array, wanted: sp.csr_array) -> bool:
    return found.shape == wanted.shape and not (found != wanted.astype(found.dtype)).nnz


def _use_tensor(folder: Path) -> None:
    """Read a tensor, which holds what it promises."""
    path = _entry(folder, "tensor")
    events = {"modes": ["who", "what", "when"], "values": "count"} if ".csv" in path.name else {}
    tensor = read_tensor(path, **events)
    cells = list(zip(*tensor.coords.tolist(), strict=True))
    sizes = np.array(tensor.shape)[:, None]
    problems = {
        "the type is not that of counts": tensor.dtype not in (np.float32, np.float64),
        "a count is not finite and positive": not (
            (tensor.values > 0) & np.isfinite(tensor.values)
        ).all(),
        "cells are not in order": any(a >= b for a, b in pairwise(cells)),
        "a place leads out": bool(((tensor.coords < 0) | (tensor.coords >= sizes)).any()),
        "labels are not right": not all(map(_are_names, tensor.labels, tensor.shape)),
    }
    for problem, is_there in problems.items():
        if is_there:
            raise WrongResultError(problem)


def _use_prepared(folder: Path) -> None:
    matrix = open_matrix(folder)
    _check_table(read_counts(folder, format="prepared"))
    _check_fit(matrix)


def _use_model(folder: Path) -> None:
    saved = load_model(folder / "model.klnmf")
    components = saved.model.components_
    _check_finite(components, *([] if saved.W is None else [saved.W]))
    if components.shape[1] == COUNTS.shape[1]:
        _check_finite(saved.model.transform(COUNTS))


def _use_fit_checkpoint(folder: Path) -> None:
    path = folder / "fit.checkpoint"
    model = model_to_fit(run=RunOptions(checkpoint=path, resume=True))
    W = model.fit_transform(COUNTS)
    _check_finite(W, model.components_, model.divergence_)


def _use_rank_checkpoint(folder: Path) -> None:
    path = folder / "search.checkpoint"
    found = select_rank(
        COUNTS,
        **RANKS,
        **SAME,
        run=RunOptions(checkpoint=path, resume=True, progress=False),
    )
    _check_finite(found.deviance)


def _use_consensus_checkpoint(folder: Path) -> None:
    path = folder / "runs.checkpoint"
    found = consensus(
        COUNTS,
        **RUNS,
        **SAME,
        run=RunOptions(checkpoint=path, resume=True, progress=False),
    )
    _check_finite(found.components, found.W)


def _use_in_commands(folder: Path) -> None:
    """Run every command that takes a model. Errors that it does not turn into a line leave it."""
    model, texts = str(folder / "model.klnmf"), str(folder / "texts")
    codes = [
        main(["topics", model]),
        main(["transform", model, texts, "-o", str(folder / "W.csv"), "--force"]),
        main(["report", model, "-o", str(folder / "report.html"), "--force"]),
        main(["evaluate", model, texts]),
    ]
    if any(codes):
        raise ValueError(f"The commands end with the codes {codes}.")


def _use_consensus(folder: Path) -> None:
    repr(Consensus.load(folder / "consensus.klnmf"))


def _use_rank_selection(folder: Path) -> None:
    str(RankSelection.load(folder / "ranks.json"))


def use_of(name: str) -> Callable[[Path], None]:
    """Return what reads a case of this kind: a format of tables where it is no other file."""
    return _USES.get(name, partial(_use_table, name))


_USES: dict[str, Callable[[Path], None]] = {
    "tns": _use_tensor,
    "tensor-npz": _use_tensor,
    "tensor-csv": _use_tensor,
    "prepared": _use_prepared,
    "model": _use_model,
    "commands": _use_in_commands,
    "fit-checkpoint": _use_fit_checkpoint,
    "rank-checkpoint": _use_rank_checkpoint,
    "consensus-checkpoint": _use_consensus_checkpoint,
    "consensus": _use_consensus,
    "rank-selection": _use_rank_selection,
}
