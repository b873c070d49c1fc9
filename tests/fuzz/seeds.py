"""Small good files of every kind, from which the mutated ones are made.

klnmf's own writers make them where it has any, from counts of a fixed seed; the others are written
by hand here.
"""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from klnmf import KLNMF, RunOptions, SparseTensor
from klnmf.cli import main
from klnmf.model_selection import consensus, select_rank
from klnmf.readers import CountTable, prepare, write_counts, write_tensor
from klnmf.simulate import simulate_counts

Files = dict[str, bytes]  # contents by path

COUNTS = simulate_counts(20, 12, 2, counts_per_sample=30, random_state=0).X
SMALL = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 70_000]])
TABLE = CountTable(
    SMALL,
    ["letter", 'a "report"', "märz, april"],
    ["sea", "corn", "never", "ship"],
    ["a", "b", "a"],
)


class Killed(BaseException):
    """Ends work in the middle, as a signal would."""


@cache
def seeds_of(kind: str) -> tuple[Files, ...]:
    """Good files of one kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(_SEEDS[kind]())


def _files_of(write: Callable[[Path], Any]) -> Files:
    """Everything that a function writes into an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        return files_in(folder)


def files_in(folder: Path) -> Files:
    """Contents of all files of a folder, by their paths below it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


# ---- tables --------------------------------------------------------------------------------------


def _written(name: str, table: CountTable = TABLE) -> Files:
    return _files_of(lambda folder: write_counts(table, folder / name))


def _npz() -> list[Files]:
    found = [_written("counts.npz")]
    for kind in ("csc", "coo"):
        stream = io.BytesIO()
        sp.save_npz(stream, sp.coo_array(SMALL).asformat(kind))
        found.append({"counts.npz": stream.getvalue()})
    return found


_MTX = "%%MatrixMarket matrix "
_MTX_TEXTS = (
    _MTX + "coordinate real general\n% a note\n3 4 3\n1 2 2\n3 1 1.5\n3 4 7e4\n",
    _MTX + "coordinate pattern general\n3 3 2\n2 1\n3 3\n",
)


def _mtx() -> list[Files]:
    return [_written("counts.mtx"), *({"counts.mtx": text.encode()} for text in _MTX_TEXTS)]


def _tenx() -> list[Files]:
    matrix = (_MTX + "coordinate integer general\n4 3 3\n1 1 2\n2 3 1\n4 3 70000\n").encode()
    barcodes = b"AAA-1\nAAC-1\nAAG-1\n"
    features = b"".join(b"ENSG%d\tgene %d\tGene Expression\n" % (i, i // 2) for i in range(4))
    genes = b"".join(b"ENSG%d\tgene %d\n" % (i, i) for i in range(4))
    plain = {"matrix.mtx": matrix, "barcodes.tsv": barcodes, "genes.tsv": genes}
    current = {"matrix.mtx": matrix, "barcodes.tsv": barcodes, "features.tsv": features}
    packed = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in current.items()}
    return [plain, current, packed]


def _delimited(comma: str) -> list[Files]:
    name = "counts.csv" if comma == "," else "counts.tsv"
    texts = (
        "name,a,b,c\nx,1,2,3\ny,0,0,7\n",
        "name,2,3\n4,5,6\n7,8,9.5\n",
        'user_id,film_id,stars\n1,10,3\n1,11,4\n2,10,5\n"q ""x""",11,2\n',
    )
    written = ({name: text.replace(",", comma).encode()} for text in texts)
    return [_written(name), *written]


def _parquet() -> list[Files]:
    frame = pd.DataFrame(SMALL, index=TABLE.row_names, columns=TABLE.column_names)
    tables = [pa.Table.from_pandas(frame), pa.table({"d": ["x", "y"], "w": [1, 2], "n": [1.5, 2]})]
    found = [_written("counts.parquet")]
    for table in tables:
        stream = io.BytesIO()
        pq.write_table(table, stream)
        found.append({"counts.parquet": stream.getvalue()})
    return found


def _uci() -> list[Files]:
    text = b"3\n4\n3\n1 2 2\n3 1 3\n3 4 70000\n"
    words = b"sea\ncorn\nnever\nship\n"
    return [{"docword.x.txt": text, "vocab.x.txt": words}]


def _texts() -> list[Files]:
    texts = {"a/1.txt": b"the sea and the corn", "b/2.txt": "märz and april".encode()}
    return [texts, {"1.txt": b"sea ship sea", "2.txt": b"corn"}]


def _jsonl() -> list[Files]:
    records = [
        {"text": "the sea", "id": "x", "label": "a"},
        {"text": "märz corn", "id": 2, "label": 1},
    ]
    return [{"counts.jsonl": "".join(json.dumps(record) + "\n" for record in records).encode()}]


_TENSOR = SparseTensor(
    [[0, 2, 2], [1, 0, 1], [0, 3, 0]],
    [5.0, 1.5, 70_000.0],
    mode_names=["who", "what", "when"],
    labels=[["a", "märz", "c"], None, ["2024-01-01", "2024-01-08", "2024-01-15", "2024-01-22"]],
)


_EVENTS = "who,what,when,count\na,1,2024-01-01,5\nmärz,0,2024-01-22,1.5\nc,1,2024-01-08,70000\n"


def _tensor(name: str) -> Files:
    return _files_of(lambda folder: write_tensor(folder / name, _TENSOR))


# ---- HDF5 ----------------------------------------------------------------------------------------


def _hdf5(write: Callable[[Any], None], **settings: Any) -> bytes:
    stream = io.BytesIO()
    with h5py.File(stream, "w", **settings) as file:
        write(file)
    return stream.getvalue()


def _tenx_h5() -> list[Files]:
    csr = sp.csr_array(SMALL)  # cells × genes by cells: what Cell Ranger has by columns
    numbers = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": [4, 3]}

    def version_3(file: Any) -> None:
        group = file.create_group("matrix")
        for name, values in numbers.items():
            group[name] = values
        group["barcodes"] = np.array([b"AAA-1", b"AAC-1", b"AAG-1"])
        features = group.create_group("features")
        features["id"] = np.array([b"E1", b"E2", b"E3", b"E4"])
        features["name"] = np.array([b"a", b"b", b"b", b"c"])
        features["feature_type"] = np.array([b"Gene Expression"] * 3 + [b"Antibody Capture"])

    def version_2(file: Any) -> None:
        group = file.create_group("GRCh38")
        for name, values in numbers.items():
            group[name] = values
        group["barcodes"] = np.array([b"AAA-1", b"AAC-1", b"AAG-1"])
        group["genes"] = np.array([b"E1", b"E2", b"E3", b"E4"])
        group["gene_names"] = np.array([b"a", b"b", b"c", b"d"])

    return [{"counts.h5": _hdf5(write, libver="latest")} for write in (version_3, version_2)]


def _h5ad() -> list[Files]:
    import anndata

    names = {"obs": pd.DataFrame({"label": ["a", "b", "a"]}, index=["r1", "r2", "r3"])}
    names["var"] = pd.DataFrame(index=["sea", "corn", "never", "ship"])
    found = [_written("counts.h5ad")]
    sparse = sp.csr_matrix(SMALL.astype(np.float32))
    for X in (sp.csc_matrix(sparse), SMALL.astype(np.float32)):
        data = anndata.AnnData(X, **names)
        data.layers["counts"] = sparse
        data.raw = data
        found.append(_files_of(lambda folder, data=data: data.write_h5ad(folder / "counts.h5ad")))
    return found


def _loom() -> list[Files]:
    def write(file: Any) -> None:
        file["matrix"] = SMALL.T
        file["layers/spliced"] = SMALL.T
        file["row_attrs/Gene"] = np.array([b"sea", b"corn", b"never", b"ship"])
        file["col_attrs/CellID"] = np.array([b"r1", b"r2", b"r3"])
        file.attrs["LOOM_SPEC_VERSION"] = "3.0.0"

    return [{"counts.loom": _hdf5(write)}, {"counts.loom": _hdf5(write, libver="latest")}]


# ---- klnmf's own files ---------------------------------------------------------------------------


def _prepared() -> list[Files]:
    tables = [TABLE, CountTable(COUNTS), CountTable(SMALL / 3.0, open_features=True)]
    found = []
    for table in tables:
        files = _files_of(lambda folder, table=table: prepare(table, folder / "x", memory="1M"))
        found.append({name.removeprefix("x/"): content for name, content in files.items()})
    return found


def _models_of_commands() -> list[Files]:
    """A model with the metadata that the command line keeps, and its data."""
    texts = {"1.txt": "the sea and the corn", "2.txt": "sea ship sea", "3.txt": "corn and april"}

    def write(folder: Path) -> None:
        (folder / "texts").mkdir()
        for name, text in texts.items():
            (folder / "texts" / name).write_text(text)
        where = [str(folder / "texts"), "-o", str(folder / "model.klnmf")]
        every_word = ["--min-df", "1", "--max-df", "1.0"]
        main(["fit", *where, *every_word, "-r", "2", "-q", "--max-iter", "5", "--seed", "0"])

    return [_files_of(write)]


def model_to_fit(**parameters: Any) -> KLNMF:
    """The model of the checkpoints."""
    settings = {"max_iter": 4, "tol": 0.0, "random_state": 0, "n_threads": 1}
    return KLNMF(2, **{**settings, **parameters})


def _models() -> list[Files]:
    def write(folder: Path, **parameters: Any) -> None:
        model = model_to_fit(**parameters)
        names = [f"sample {i}" for i in range(len(COUNTS.toarray()))]
        W = model.fit_transform(COUNTS)
        model.save(
            folder / "model.klnmf", W=W, sample_names=names, metadata={"a": [1, {"b": None}]}
        )

    return [
        _files_of(lambda folder: write(folder)),
        _files_of(lambda folder: write(folder, sparse_output=True, dtype=np.float64)),
        _files_of(lambda folder: write(folder, solver="mu", l1_W=0.1, l2_H=0.2)),
    ]


def _stopped(work: Callable[..., Any], after: int) -> None:
    """Do work that is killed after so many calls of its callback."""
    left = [after]

    def callback(*_: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    try:
        work(callback)
    except Killed:
        return


def _checkpoints() -> list[Files]:
    def write(folder: Path, **parameters: Any) -> None:
        path = folder / "fit.checkpoint"
        run = RunOptions(checkpoint=path, checkpoint_every=0.0)
        model = model_to_fit(run=run, **parameters)
        _stopped(lambda callback: model.set_params(run__callback=callback).fit(COUNTS), 2)

    return [
        _files_of(write),
        _files_of(
            lambda folder: model_to_fit(run=RunOptions(checkpoint=folder / "fit.checkpoint")).fit(
                COUNTS
            )
        ),
    ]


RANKS: dict[str, Any] = {"ranks": [1, 2, 3], "n_splits": 2, "n_jobs": 1, "n_threads": 1}
RUNS: dict[str, Any] = {"n_components": 2, "n_runs": 3, "n_jobs": 1}
SAME: dict[str, Any] = {"random_state": 0}


def _searches() -> list[Files]:
    def write(folder: Path, after: int) -> None:
        run = RunOptions(
            checkpoint=folder / "search.checkpoint", checkpoint_every=0.0, progress=False
        )
        _stopped(
            lambda call: select_rank(COUNTS, **RANKS, **SAME, run=run.set_params(callback=call)),
            after,
        )

    return [_files_of(lambda folder, after=after: write(folder, after)) for after in (1, 3, 5, 99)]


def _runs() -> list[Files]:
    def write(folder: Path, after: int) -> None:
        run = RunOptions(
            checkpoint=folder / "runs.checkpoint", checkpoint_every=0.0, progress=False
        )
        _stopped(
            lambda call: consensus(COUNTS, **RUNS, **SAME, run=run.set_params(callback=call)), after
        )

    return [_files_of(lambda folder, after=after: write(folder, after)) for after in (1, 99)]


def _consensus_results() -> list[Files]:
    found = consensus(COUNTS, **RUNS, **SAME)
    return [_files_of(lambda folder: found.save(folder / "consensus.klnmf"))]


def _rank_results() -> list[Files]:
    found = select_rank(COUNTS, **RANKS, **SAME)
    return [_files_of(lambda folder: found.save(folder / "ranks.json"))]


_SEEDS: dict[str, Callable[[], list[Files]]] = {
    "npz": _npz,
    "mtx": _mtx,
    "10x": _tenx,
    "10x-h5": _tenx_h5,
    "h5ad": _h5ad,
    "loom": _loom,
    "csv": lambda: _delimited(","),
    "tsv": lambda: _delimited("\t"),
    "parquet": _parquet,
    "uci": _uci,
    "texts": _texts,
    "jsonl": _jsonl,
    "tns": lambda: [_tensor("counts.tns"), {"counts.tns": b"# two modes\n1 2 5\n\n3 1 .5\n"}],
    "tensor-npz": lambda: [_tensor("counts.npz")],
    "tensor-csv": lambda: [{"counts.csv": _EVENTS.encode()}],
    "prepared": _prepared,
    "model": _models,
    "commands": _models_of_commands,
    "fit-checkpoint": _checkpoints,
    "rank-checkpoint": _searches,
    "consensus-checkpoint": _runs,
    "consensus": _consensus_results,
    "rank-selection": _rank_results,
}
