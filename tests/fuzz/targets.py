"""What is fuzzed: how each kind of file is changed and read, and what may come out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import scipy.sparse as sp

from fuzz.containers import change_container, change_prepared
from fuzz.hdf5_changes import change_hdf5
from fuzz.mutations import Change, change_bytes, change_text, packed, repeated
from fuzz.parquet_changes import change_parquet
from fuzz.seeds import COUNTS, RANKS, RUNS, SAME, Files, model_to_fit, seeds_of
from fuzz.trees import change_json, change_npz
from klnmf import KLNMF, load_model
from klnmf.model_selection import Consensus, RankSelection, consensus, select_rank
from klnmf.on_disk import open_matrix, prepare
from klnmf.readers import CountTable, read_counts
from klnmf.readers.formats import FORMATS

# Larger tables are not fitted: that would try patience, not the reader.
MOST_TO_FIT = 10_000
# Formats that `prepare` reads in pieces, with readers of their own.
STREAMED = ("npz", "mtx", "uci", "h5ad", "csv", "tsv", "parquet")


class WrongResultError(AssertionError):
    """Something was read that is not valid."""


@dataclass(frozen=True)
class Target:
    """One kind of file."""

    name: str
    use: Callable[[Path], None]  # read what is in a folder, and judge it
    change: Callable[[Random, Files], Files]

    def mutated(self, random: Random) -> Files:
        """Files that nobody wrote."""
        return self.change(random, dict(random.choice(seeds_of(self.name))))


# ---- changes -------------------------------------------------------------------------------------


def _change_one(changes: tuple[Change, ...], random: Random, files: Files) -> Files:
    """Change one of the files, above all the one that the others belong to."""
    names = sorted(files)
    if len(names) > 1 and random.random() < 0.03:
        del files[random.choice(names)]
        return files
    name = random.choice([_main(files)] * 3 + names)
    if not name.endswith(".gz"):
        is_main = name == _main(files)
        files[name] = repeated(random, changes if is_main else (change_text,), files[name])
    else:
        files[name] = packed(random, repeated(random, (change_text,), _unpacked(files[name])))
    return files


def _main(files: Files) -> str:
    """The file that the others lie beside: the one with the shortest name but for folders."""
    known = [name for name in files if name.startswith(("matrix.", "docword."))]
    return known[0] if known else min(files, key=lambda name: (len(name), name))


def _unpacked(content: bytes) -> bytes:
    import gzip

    return gzip.decompress(content)


def _change_packable(random: Random, files: Files) -> Files:
    """Change text that may be packed, and pack it now and then."""
    files = _change_one((change_text,), random, files)
    name = _main(files)
    if random.random() < 0.1 and not name.endswith(".gz"):
        files[f"{name}.gz"] = packed(random, files.pop(name))
    return files


def _change_folder(random: Random, files: Files) -> Files:
    """Change the files of a folder of texts, and their names."""
    files = _change_one((change_text, change_bytes), random, files)
    if random.random() < 0.1:
        name = random.choice(("x.txt", "a/b/c.txt", "é.txt", " .txt", ".txt", "a.txt/b.txt", "x"))
        files[name] = random.choice(list(files.values()) or [b""])
    return files


# ---- readings ------------------------------------------------------------------------------------


def _check_table(table: CountTable) -> None:
    """Refuse a table that is not what CountTable promises."""
    X = table.X
    n, m = table.shape
    problems = {
        "X is no CSR array": not isinstance(X, sp.csr_array),
        "the type is not that of counts": X.dtype.kind not in "iuf",
        "indptr is not right": len(X.indptr) != n + 1
        or X.indptr[0] != 0
        or X.indptr[-1] != len(X.data),
        "a count is not finite and positive": not (
            np.isfinite(X.data).all() and (X.data > 0).all()
        ),
        "it is not canonical": not sp.csr_array(
            (X.data, X.indices, X.indptr), X.shape
        ).has_canonical_format,
        "an index leads out": X.nnz > 0 and (X.indices.min() < 0 or X.indices.max() >= m),
        "row_names": not _are_names(table.row_names, n),
        "column_names": not _are_names(table.column_names, m),
        "labels": not _are_names(table.labels, n),
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


_OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "10x": ({}, {"feature_names": "id"}),
    "10x-h5": ({}, {"feature_names": "id"}),
    "h5ad": ({}, {"layer": "raw"}, {"layer": "counts", "labels": "label"}),
    "loom": ({}, {"layer": "spliced"}),
    "jsonl": ({}, {"id_field": "id", "label_field": "label"}),
    "csv": ({}, {"layout": "table"}, {"layout": "triplets"}),
    "tsv": ({}, {"layout": "table"}, {"layout": "triplets"}),
    "parquet": ({}, {"layout": "table"}, {"layout": "triplets"}),
    "svmlight": ({}, {"zero_based": True}),
}
ALLOWED = (ValueError, TypeError, OSError)


def _use_table(format: str, folder: Path) -> None:
    """Read in every way there is. Where all are refused, the first error is the result."""
    path = _entry(folder, format)
    refused: list[Exception] = []
    n_ways = len(_OPTIONS.get(format, ({},))) + (format in STREAMED)
    for options in _OPTIONS.get(format, ({},)):
        try:
            table = read_counts(path, format=format, **options)
        except ALLOWED as error:
            refused.append(error)
            continue
        _check_table(table)
        with suppress(*ALLOWED):  # nothing but zeros, or counts that are too large
            _check_fit(table.X)
    if format in STREAMED:
        try:
            matrix = prepare(path, folder / "prepared", memory="1M", format=format)
        except ALLOWED as error:
            refused.append(error)
        else:
            matrix.verify()
    if len(refused) == n_ways:
        raise refused[0]


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
    model = model_to_fit(checkpoint=path, resume=True)
    W = model.fit_transform(COUNTS)
    _check_finite(W, model.components_, model.divergence_)


def _use_rank_checkpoint(folder: Path) -> None:
    path = folder / "search.checkpoint"
    found = select_rank(COUNTS, **RANKS, **SAME, checkpoint=path, resume=True)
    _check_finite(found.deviance)


def _use_consensus_checkpoint(folder: Path) -> None:
    path = folder / "runs.checkpoint"
    found = consensus(COUNTS, **RUNS, **SAME, checkpoint=path, resume=True)
    _check_finite(found.components, found.W)


def _use_consensus(folder: Path) -> None:
    repr(Consensus.load(folder / "consensus.klnmf"))


def _use_rank_selection(folder: Path) -> None:
    str(RankSelection.load(folder / "ranks.json"))


_CHANGES: dict[str, Callable[[Random, Files], Files]] = {
    "npz": partial(_change_one, (change_npz,)),
    "10x": partial(_change_one, (change_text,)),
    "uci": _change_packable,
    "10x-h5": partial(_change_one, (change_hdf5,)),
    "h5ad": partial(_change_one, (change_hdf5,)),
    "loom": partial(_change_one, (change_hdf5,)),
    "parquet": partial(_change_one, (change_parquet,)),
    "texts": _change_folder,
    "prepared": change_prepared,
}
_OTHERS: dict[str, tuple[Callable[[Path], None], Change]] = {
    "model": (_use_model, change_container),
    "fit-checkpoint": (_use_fit_checkpoint, change_container),
    "rank-checkpoint": (_use_rank_checkpoint, change_container),
    "consensus-checkpoint": (_use_consensus_checkpoint, change_container),
    "consensus": (_use_consensus, change_container),
    "rank-selection": (_use_rank_selection, change_json),
}


def _targets() -> dict[str, Target]:
    targets = {}
    for name in FORMATS:  # every format, those included that come later
        use = _use_prepared if name == "prepared" else partial(_use_table, name)
        targets[name] = Target(name, use, _CHANGES.get(name, _change_packable))
    for name, (use, change) in _OTHERS.items():
        targets[name] = Target(name, use, partial(_change_one, (change,)))
    return targets


TARGETS = _targets()
