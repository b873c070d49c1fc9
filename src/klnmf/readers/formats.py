"""Which format a path is, and the two functions that go by it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from klnmf.readers.delimited import read_delimited, write_triplets
from klnmf.readers.documents import VECTORIZER_OPTIONS, read_jsonl, read_texts
from klnmf.readers.hdf5 import read_h5ad, read_loom, write_h5ad
from klnmf.readers.matrix_files import (
    SVMLIGHT_SUFFIXES,
    files_beside,
    read_mtx,
    read_npz,
    read_svmlight,
    read_uci,
    write_mtx,
    write_npz,
)
from klnmf.readers.parquet import read_parquet, write_parquet
from klnmf.readers.table import CountTable, table_of_file, unique_features
from klnmf.readers.tenx import MATRIX_NAMES, companion, matrices_in, read_10x, read_10x_h5
from klnmf.support.input_files import ReadError
from klnmf.support.option_names import option, options_in_use
from klnmf.support.whole_files import naming, replacing

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Format:
    """A format: how its files are named, and what reads and writes them."""

    read: Callable[..., CountTable]
    suffixes: tuple[str, ...] = ()
    packed: bool = False
    folder: bool | None = False  # None: a folder or a file
    write: Callable[[CountTable, Path], None] | None = None


def _read_prepared(path: Path) -> CountTable:
    """Matrix that ``klnmf prepare`` wrote, into memory."""
    from klnmf.data.on_disk.matrix import open_matrix  # which uses these readers

    matrix = open_matrix(path)
    names = (matrix.row_names, matrix.column_names, matrix.labels)
    return table_of_file(path, matrix.as_csr().copy(), *names, matrix.open_features)


FORMATS = {
    "npz": Format(read_npz, (".npz",), write=write_npz),
    "mtx": Format(read_mtx, (".mtx",), packed=True, write=write_mtx),
    "10x": Format(read_10x, folder=None),
    "10x-h5": Format(read_10x_h5, (".h5",)),
    "h5ad": Format(read_h5ad, (".h5ad",), write=write_h5ad),
    "loom": Format(read_loom, (".loom",)),
    "csv": Format(read_delimited, (".csv",), packed=True, write=write_triplets),
    "tsv": Format(
        partial(read_delimited, delimiter="\t"),
        (".tsv", ".tab"),
        packed=True,
        write=partial(write_triplets, delimiter="\t"),
    ),
    "parquet": Format(read_parquet, (".parquet",), write=write_parquet),
    "uci": Format(read_uci),
    "svmlight": Format(read_svmlight, SVMLIGHT_SUFFIXES, packed=True),
    "texts": Format(read_texts, folder=True),
    "jsonl": Format(read_jsonl, (".jsonl", ".ndjson"), packed=True),
    "prepared": Format(_read_prepared, folder=True),
}
_NAMES_BESIDE = ("npz", "mtx")


def read_counts(
    path: PathLike,
    *,
    format: str | None = None,
    layer: str | None = None,
    transpose: bool = False,
    **options: Any,
) -> CountTable:
    r"""Read a file or a folder as counts, samples × features, with the names it holds.

    Files are read in pieces and never as a dense table. Entries of the same row and column add up.
    What was changed or left out is told to the logger ``klnmf.readers``, as a warning, which Python
    shows by default.

    ==============  ============================================================================
    format          what it is
    ==============  ============================================================================
    ``"npz"``       .npz of ``scipy.sparse.save_npz``
    ``"mtx"``       .mtx of Matrix Market
    ``"10x"``       folder (or the matrix in it) with matrix.mtx, barcodes.tsv and features.tsv or
                    genes.tsv: features × cells, returned as cells × features
    ``"10x-h5"``    .h5 of Cell Ranger
    ``"h5ad"``      .h5ad of AnnData
    ``"loom"``      .loom, genes × cells, returned as cells × genes
    ``"csv"``       .csv, parted by commas: a table, or lines of row, column, count
    ``"tsv"``       .tsv or .tab, parted by tabs: the same
    ``"parquet"``   .parquet: the same
    ``"uci"``       docword.NAME.txt, with vocab.NAME.txt beside it
    ``"svmlight"``  .svmlight, .libsvm or .svm, whose labels are kept
    ``"texts"``     folder of .txt files
    ``"jsonl"``     .jsonl or .ndjson, a document a line
    ``"prepared"``  folder that ``klnmf prepare`` wrote, into memory
    ==============  ============================================================================

    Text files may be packed (.gz). The formats h5ad, loom, 10x-h5 and parquet need packages that
    ``pip install "klnmf[files]"`` brings.

    Parameters
    ----------
    path : path
        File or folder.
    format : str, optional
        One of the formats above; by default the name tells it.
    layer : str, optional
        For h5ad and loom: the layer to read instead of the main matrix; for h5ad ``"raw"`` also
        is what AnnData keeps as ``raw``.
    transpose : bool, default=False
        Exchange rows and columns of what the format returns: for files with samples in columns.
    **options
        What else the format knows:

        - npz, mtx, uci, svmlight: ``row_names``, ``column_names``, files with one name a line. By
          default NAME.rows.txt and NAME.columns.txt (or NAME.vocab.txt) beside the matrix, if
          there; known classes are in NAME.labels.txt.
        - svmlight: ``zero_based`` and ``n_features``, as in scikit-learn's `load_svmlight_file`.
        - 10x, 10x-h5: ``feature_names``, "name" (default) or "id"; ``feature_type``, the type of
          features to read, such as "Antibody Capture", or "all". By default it is "Gene
          Expression" where the file has several types.
        - h5ad: ``labels``, the column of ``obs`` to take as labels.
        - csv, tsv, parquet: ``layout``, "table" or "triplets", where it is not told rightly by
          itself (three columns, and names of rows that come up again or a second column without
          numbers, are triplets); ``columns``, the names of the columns of row, column and count
          where a file of triplets has other columns too, or of row and column where each line
          counts 1; ``index``, whether the first column of a table names the rows (in Parquet
          by default the index of pandas does, else a first column of strings).
        - csv, tsv: ``delimiter``; ``header``, whether the first line names the columns;
          ``encoding``.
        - texts: ``pattern`` (default ``"*.txt"``) and ``encoding``; jsonl: ``text_field`` (default
          "text"), ``id_field``, ``label_field`` and ``encoding``; both: the options of
          scikit-learn's `CountVectorizer`, such as ``min_df``, ``max_df``, ``stop_words``,
          ``ngram_range``, ``token_pattern``, ``lowercase`` and ``max_features``.

    Returns
    -------
    CountTable
        The counts and the names of rows and columns; names are None where the file has none.
        Triplets give names in the order in which they first appear. Names of features that occur
        more than once, as symbols of genes do, are made unique as AnnData does it: the second
        "MATR3" becomes "MATR3-1". The ids of genes that files have beside names are in
        ``column_ids``.

    Raises
    ------
    ReadError
        If the file is broken: it says in which line, what stands there and what was expected. It is
        a ValueError.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from klnmf.readers import read_counts
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "counts.csv")
    ...     _ = path.write_text("text,word,times\nletter,sea,2\nletter,corn,1\nreport,corn,4\n")
    ...     table = read_counts(path)
    >>> table
    CountTable(2 × 2, 3 nonzeros, with row_names, column_names)
    >>> table.X.toarray()
    array([[2, 1],
           [0, 4]], dtype=int32)
    >>> table.column_names.tolist()
    ['sea', 'corn']
    """
    path = Path(os.path.expanduser(path))
    if layer is not None:
        options["layer"] = layer
    name = format_to_read(path, format, options)
    table = FORMATS[name].read(path, **options)
    table = table.transposed() if transpose else table
    if table.column_names is not None:
        table.column_names = unique_features(table.column_names, str(path))
    return table


def write_counts(table: CountTable, path: PathLike, *, format: str | None = None) -> None:
    """Write counts with their names, so that `read_counts` reads them again.

    A file of that name is replaced, once the new one is complete.

    - .npz, .mtx, .mtx.gz: names and labels go into NAME.rows.txt, NAME.columns.txt and
      NAME.labels.txt beside the matrix.
    - .h5ad: names are those of ``obs`` and ``var``, labels the column ``label`` of ``obs``, ids of
      features the column ``gene_ids`` of ``var``.
    - .csv, .tsv (also .gz), .parquet: triplets of row, column and count; labels are left out. Rows
      without names are numbered from 0. The first row is written with its zeros, so that names
      keep their order. In .csv and .tsv, a name that a spreadsheet would run as a formula (it
      begins with =, +, - or @) gets an apostrophe in front, which `read_counts` takes away.

    Parameters
    ----------
    table : CountTable
        What to write.
    path : path
        File to write, in a folder that exists.
    format : {"npz", "mtx", "h5ad", "csv", "tsv", "parquet"}, optional
        By default the name tells it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from klnmf.readers import CountTable, read_counts, write_counts
    >>> table = CountTable([[2, 0], [1, 3]], ["letter", "report"], ["sea", "corn"])
    >>> with TemporaryDirectory() as folder:
    ...     write_counts(table, Path(folder, "counts.mtx"))
    ...     sorted(file.name for file in Path(folder).iterdir())
    ...     read_counts(Path(folder, "counts.mtx"))
    ['counts.columns.txt', 'counts.mtx', 'counts.rows.txt']
    CountTable(2 × 2, 3 nonzeros, with row_names, column_names)
    """
    path = Path(os.path.expanduser(path))
    name = format_to_write(path, format)
    write = FORMATS[name].write
    assert write is not None
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: there is no such folder to write to.")
    beside = files_beside(table, path) if name in _NAMES_BESIDE else {}
    with ExitStack() as stack:
        temporary = stack.enter_context(replacing(path))  # replaced last: what has one is complete
        for file, content in beside.items():
            stack.enter_context(replacing(file)).write_bytes(content)
        with naming(path, instead_of=temporary):
            write(table, temporary)


def format_to_write(path: Path, format: str | None = None) -> str:
    """Return the format that was given, else the one of the name, if counts can be written so."""
    writers = [name for name, known in FORMATS.items() if known.write is not None]
    name = _known(format, writers) if format is not None else _by_suffix(path)
    if name not in writers:
        raise ValueError(
            f"{path}: the format to write cannot be inferred from the name. Use one of the "
            f"endings {_endings(writers)}."
        )
    return name


def format_to_read(path: Path, format: str | None, options: dict[str, Any]) -> str:
    """Return the format of a path; refuse what cannot be read so, before anything is opened."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file or folder.")
    name = format_of(path, format)
    is_folder, wanted = path.is_dir(), FORMATS[name].folder
    if wanted is not None and is_folder != wanted:
        this, other = ("folder", "file") if is_folder else ("file", "folder")
        raise ReadError(path, f"this is a {this}, and the format {name!r} is a {other}.")
    checked_options(name, options)
    if not is_folder and path.stat().st_size == 0:
        raise ReadError(path, "the file is empty.")
    return name


def format_of(path: Path, format: str | None) -> str:
    """Return the format that was given, if there is one of that name, else the one of the path."""
    return _known(format, list(FORMATS)) if format is not None else recognised(path)


def recognised(path: Path) -> str:
    """Format of a file or folder by its name, and by what lies beside or in it."""
    if path.is_dir():
        if (path / "header.json").is_file() and (path / "rows.indptr.npy").is_file():
            return "prepared"
        return "10x" if matrices_in(path) else "texts"
    if path.name.startswith("docword."):
        return "uci"
    if path.name.endswith(MATRIX_NAMES) and companion(path, ("features", "genes")) is not None:
        return "10x"
    name = _by_suffix(path)
    if name is None:
        raise ValueError(
            f"{path}: the format cannot be inferred from the name. Known endings are "
            f"{_endings(list(FORMATS))}. If the file has another name, add for example "
            f"{option('format', 'csv')}; formats are {', '.join(FORMATS)}."
        )
    return name


def _by_suffix(path: Path) -> str | None:
    full = path.name.lower()
    for name, known in FORMATS.items():
        if full.endswith(known.suffixes):
            return name
        if known.packed and full.endswith(tuple(f"{suffix}.gz" for suffix in known.suffixes)):
            return name
    return None


def _known(format: str, formats: list[str]) -> str:
    if format not in formats:
        raise ValueError(f"{option('format')} must be one of {', '.join(formats)}; got {format!r}.")
    return format


def _endings(formats: list[str]) -> str:
    return ", ".join(suffix for name in formats for suffix in FORMATS[name].suffixes)


def checked_options(format: str, options: dict[str, Any]) -> None:
    """Refuse options that the format does not have, with those that it has."""
    parameters = inspect.signature(FORMATS[format].read).parameters.values()
    known = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        known |= VECTORIZER_OPTIONS
    unknown = sorted(set(options) - known)
    if unknown:
        there = ", ".join(options_in_use(sorted(known))) or "none"
        raise TypeError(
            f"{option(unknown[0])} cannot be used with the format {format!r}. Its options: {there}."
        )
