"""Which format a path is, and the two functions that go by it."""

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from klnmf.data.names import unique_features
from klnmf.data.validation import warn_if_transposed
from klnmf.readers.delimited import Csv, Tsv
from klnmf.readers.format import Format
from klnmf.readers.hdf5 import H5ad, Loom
from klnmf.readers.matrix_files import Mtx, Npz, Prepared, Uci
from klnmf.readers.parquet import Parquet
from klnmf.readers.table import CountTable, pruned
from klnmf.readers.tenx import TenX, TenXH5
from klnmf.readers.text_formats import (
    CsvTexts,
    Jsonl,
    ParquetTexts,
    TextFormat,
    Texts,
    TsvTexts,
)
from klnmf.signatures import has_types_in_rows, say_turned
from klnmf.support.descriptions import described
from klnmf.support.input_files import ReadError, not_there
from klnmf.support.nearest_names import did_you_mean
from klnmf.support.option_names import option, options_in_use
from klnmf.support.whole_files import naming, replacing
from klnmf.texts.documents import Documents
from klnmf.texts.pruning import PRUNING_OPTIONS, check_pruning

PathLike = str | os.PathLike[str]
# A path has the first format that matches it.
FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        *(Prepared(), TenX(), Texts(), Uci()),
        *(Npz(), Mtx(), TenXH5(), H5ad(), Loom(), Csv(), Tsv(), Parquet(), Jsonl()),
    )
}
# How tables are read if the field with the text is named.
TABLES_OF_TEXTS: dict[str, Format] = {
    format.name: format for format in (CsvTexts(), TsvTexts(), ParquetTexts())
}


def read_counts(
    path: PathLike,
    *,
    format: str | None = None,
    layer: str | None = None,
    transpose: bool = False,
    **options: Any,
) -> CountTable:
    r"""Read a file or a folder as counts, samples × features, with the names it holds.

    Files are read in blocks and never as a dense table. Entries of the same row and column are
    summed. If something was changed or left out, the logger ``klnmf.readers`` says so in a warning,
    which Python shows by default.

    ==============  ============================================================================
    format          file or folder
    ==============  ============================================================================
    ``"npz"``       .npz of ``scipy.sparse.save_npz``
    ``"mtx"``       .mtx of Matrix Market
    ``"10x"``       folder (or the matrix in it) with matrix.mtx, barcodes.tsv and features.tsv or
                    genes.tsv: features × cells, returned as cells × features
    ``"10x-h5"``    .h5 of Cell Ranger
    ``"h5ad"``      .h5ad of AnnData
    ``"loom"``      .loom, genes × cells, returned as cells × genes
    ``"csv"``       .csv, comma-separated: a table, or lines of row, column, count
    ``"tsv"``       .tsv, .tab, .all, or .txt with tabs: a table, or lines of row, column, count
    ``"parquet"``   .parquet: a table, or columns of row, column, count
    ``"uci"``       docword.NAME.txt, with vocab.NAME.txt beside it
    ``"texts"``     folder of .txt files
    ``"jsonl"``     .jsonl or .ndjson, one document per line
                    (csv, tsv and parquet are texts if ``text_field`` is given)
    ``"prepared"``  folder that ``klnmf prepare`` wrote; it is read into memory
    ==============  ============================================================================

    Text files may be compressed (.gz). The formats h5ad, loom, 10x-h5 and parquet need packages
    that ``pip install "klnmf[files]"`` installs.

    Parameters
    ----------
    path : path
        File or folder.
    format : str, optional
        One of the formats above. By default it is inferred from the name.
    layer : str, optional
        For h5ad and loom: the layer to read instead of the main matrix, which is ``"X"`` or
        ``"matrix"``. For h5ad, ``"raw"`` reads AnnData's ``raw``.
    transpose : bool, default=False
        Whether to exchange rows and columns. Use it for files that have samples in columns. Tables
        with mutation types in rows, as SigProfiler and COSMIC have them, are turned without it.
    **options
        Options of the format:

        - npz, mtx, uci: ``row_names``, ``column_names``, files with one name per line. By
          default NAME.rows.txt and NAME.columns.txt (or NAME.vocab.txt) beside the matrix, if they
          exist. Labels of the samples are read from NAME.labels.txt.
        - 10x, 10x-h5, h5ad: ``feature_type``, the type of features to read, such as "Antibody
          Capture", or "all". By default it is "Gene Expression" where the file has several types.
        - 10x, 10x-h5: ``feature_names``, "name" (default) or "id".
        - h5ad: ``labels``, the column of ``obs`` to take as labels.
        - csv, tsv, parquet: ``layout``, "table" or "triplets"; by default a file of three columns
          holds triplets if the second has no numbers, or if the third is called "count" or
          the others ids ("user_id").
          ``columns``, the names of the columns of row, column and count, if a file of triplets has
          other columns too, or of row and column if each line counts 1. ``index``, whether the
          first column of a table names the rows; by default it does if it holds no numbers, has
          an empty name or one such as "id", or (csv, tsv) numbers the rows. Files that may be
          read in two ways are refused with a question.
        - csv, tsv: ``delimiter``; ``header``, whether the first line names the columns;
          ``encoding``.
        - texts, jsonl, and csv, tsv and parquet if ``text_field`` is given: how texts are read, see
          :func:`read_documents`; the options of scikit-learn's `CountVectorizer`, such as
          ``ngram_range``, ``token_pattern`` and ``lowercase``.
        - all formats: ``min_df`` and ``max_df``, the least and the most samples that a feature is
          in, as a number (5) or a share (0.01); ``max_features``, to keep the most frequent ones;
          ``stop_words``, names of features to leave out: "english" (scikit-learn's list), another
          language such as "german" (needs ``pip install "klnmf[texts]"``), the path of a file
          with one word per line, several of these separated by commas, or a list of words or of
          languages. Stop words are normalised as the texts are.

    Returns
    -------
    CountTable
        The counts and the names of rows and columns. Names are None if the file has none. Names in
        triplets are in the order in which they first appear. Repeated names of features, such as
        symbols of genes, are made unique as in AnnData: the second "MATR3" becomes "MATR3-1". Ids
        of genes are in ``column_ids``.

    Raises
    ------
    ReadError
        If the file is broken. The message names the line, what was found there and what was
        expected. It is a ValueError.

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
    found = format_to_read(path, format, options)
    of_table = {name: options.pop(name) for name in set(options) & PRUNING_OPTIONS - found.options}
    table = found.read(path, **options)
    table = table.transposed() if transpose else table
    if has_types_in_rows(table.row_names, table.column_names):
        say_turned(str(path))
        table = table.transposed()
    say_if_transposed(str(path), table.row_names, table.column_names, transpose)
    if table.column_names is not None:
        table.column_names = unique_features(table.column_names, str(path))
    return pruned(path, table, **of_table)


def say_if_transposed(whose: str, row_names: Any, column_names: Any, transpose: bool) -> None:
    """Warn if data have features in rows or samples in columns, after ``transpose`` or without."""
    way_out = (
        f"Leave out {option('transpose')}" if transpose else f"Add {option('transpose', True)}"
    )
    warn_if_transposed(whose, row_names, column_names, f"{way_out}.")


def read_documents(
    path: PathLike,
    *,
    text_field: str | None = None,
    id_field: str | None = None,
    label_field: str | None = None,
    encoding: str | None = None,
    pattern: str | None = None,
    delimiter: str | None = None,
    skip_unreadable: bool = False,
    normalize: str | None = None,
    format: str | None = None,
) -> Documents:
    r"""Read texts with names and metadata: a folder of files, or a table with a field of text.

    Parameters
    ----------
    path : path
        Folder of text files; or .jsonl, .csv, .tsv (also .gz) or .parquet with one document per
        record.
    text_field : str, default="text"
        Field with the text.
    id_field : str, optional
        Field with the names of the documents. Files of a folder are named by their paths.
    label_field : str, optional
        Field with the labels. Labels of files are the folders that they are in, if all are in one.
    encoding : str, default="utf-8"
        Encoding of text files.
    pattern : str, optional
        Names of the files of a folder, which may be in subfolders; by default ``"*.txt"``.
    delimiter : str, optional
        What separates the fields of a .csv file.
    skip_unreadable : bool, default=False
        Whether to leave out files and records that cannot be decoded or parsed, with a warning
        that names them.
    normalize : {"NFC", "NFKC", "NFD", "NFKD"}, optional
        Unicode normal form to bring the texts into.
    format : {"texts", "jsonl", "csv", "tsv", "parquet"}, optional
        By default it is inferred from the name.

    Returns
    -------
    Documents
        The texts, their names, labels, and their metadata: all other fields that hold texts,
        numbers or dates.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from klnmf.readers import read_documents
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "letters.csv")
    ...     _ = path.write_text("id,year,body\na1,1816,The sea was calm.\na2,1819,Corn is dear.\n")
    ...     documents = read_documents(path, text_field="body", id_field="id")
    >>> documents
    Documents(2 texts, with names, metadata year)
    >>> documents.texts[0], documents.names[0], documents.metadata["year"]
    ('The sea was calm.', 'a1', [1816, 1819])
    """
    given: dict[str, Any] = {
        "text_field": text_field,
        "id_field": id_field,
        "label_field": label_field,
        "encoding": encoding,
        "pattern": pattern,
        "delimiter": delimiter,
        "normalize": normalize,
    }
    options = {name: value for name, value in given.items() if value is not None}
    given_path, path = os.fspath(path), Path(os.path.expanduser(path))
    if path.exists() and format_of(path, format) in TABLES_OF_TEXTS:
        options.setdefault("text_field", "text")
    source = {"path": given_path, **options}
    source |= {"format": format} if format else {}
    source |= {"skip_unreadable": True} if skip_unreadable else {}
    found = format_to_read(path, format, options)
    if not isinstance(found, TextFormat):
        raise ReadError(path, f"the format {found.name!r} is of counts, not of texts.")
    gathering, documents = found.opened(path, options | {"skip_unreadable": skip_unreadable})
    return replace(gathering.documents(documents()), source=source)


def write_counts(table: CountTable, path: PathLike, *, format: str | None = None) -> None:
    """Write counts with their names, so that `read_counts` can read them.

    An existing file of that name is replaced when the new one is complete.

    - .npz, .mtx, .mtx.gz: names and labels go into NAME.rows.txt, NAME.columns.txt and
      NAME.labels.txt beside the matrix.
    - .h5ad: names become those of ``obs`` and ``var``, labels the column ``label`` of ``obs``, ids
      of features the column ``gene_ids`` of ``var``.
    - .csv, .tsv (also .gz), .parquet: triplets of row, column and count, without labels. Rows
      without names are numbered from 0. The first row is written with its zeros, so that names
      keep their order. In .csv and .tsv, an apostrophe is put before a name that a spreadsheet
      would run as a formula (it begins with =, +, - or @). `read_counts` removes it.

    Parameters
    ----------
    table : CountTable
        Counts to write.
    path : path
        File to write, in an existing folder.
    format : {"npz", "mtx", "h5ad", "csv", "tsv", "parquet"}, optional
        By default it is inferred from the name.

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
    if not isinstance(table, CountTable):
        raise TypeError(f"table must be a CountTable; got {described(table)}.")
    written = format_to_write(path, format)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: there is no such folder to write to.")
    with ExitStack() as stack:
        temporary = stack.enter_context(replacing(path))  # replaced last: what has one is complete
        for file, content in written.files_beside(table, path).items():
            stack.enter_context(replacing(file)).write_bytes(content)
        with naming(path, instead_of=temporary):
            written.write(table, temporary)


def format_to_write(path: Path, format: str | None = None) -> Format:
    """Return the format that was given, else the one of the name, if counts can be written so."""
    writable = {name: known for name, known in FORMATS.items() if known.is_writable}
    if format is not None:
        return writable[_checked_name(format, writable)]
    for known in writable.values():
        if known.matches(path):
            return known
    raise ValueError(
        f"{path}: the format to write cannot be inferred from the name. Use one of the endings "
        f"{_endings(writable)}."
    )


def format_to_read(path: Path, format: str | None, options: dict[str, Any]) -> Format:
    """Return the format of a path; refuse what cannot be read so, before anything is opened."""
    if not path.exists():
        raise not_there(path)
    found = chosen_format(path, format, options)
    is_folder = path.is_dir()
    if found.is_folder is not None and is_folder != found.is_folder:
        this, other = ("folder", "file") if is_folder else ("file", "folder")
        raise ReadError(path, f"this is a {this}, but the format {found.name!r} is a {other}.")
    check_options(found, options)
    if not is_folder and path.stat().st_size == 0:
        raise ReadError(path, "the file is empty.")
    return found


def chosen_format(path: Path, format: str | None, options: dict[str, Any]) -> Format:
    """Return the format of a path; a table is one of texts if the field with the text is given."""
    name = format_of(path, format)
    is_of_texts = options.get("text_field") is not None and name in TABLES_OF_TEXTS
    return TABLES_OF_TEXTS[name] if is_of_texts else FORMATS[name]


def format_of(path: Path, format: str | None) -> str:
    """Return the format that was given, if there is one of that name, else the one of the path."""
    return _checked_name(format, FORMATS) if format is not None else recognised(path)


def recognised(path: Path) -> str:
    """Format of a file or folder by its name, and by what is beside or in it."""
    for name, known in FORMATS.items():
        if known.matches(path):
            return name
    raise ValueError(
        f"{path}: the format cannot be inferred from the name. Known endings are "
        f"{_endings(FORMATS)}. If the file has another name, add for example "
        f"{option('format', 'csv')}; formats are {', '.join(FORMATS)}."
    )


def _checked_name(format: str, formats: dict[str, Format]) -> str:
    if format not in formats:
        question = did_you_mean(format, formats)
        wanted = f"must be one of {', '.join(formats)}; got {described(format)}."
        raise ValueError(f"{option('format')} {wanted}{question}")
    return format


def _endings(formats: dict[str, Format]) -> str:
    return ", ".join(ending for format in formats.values() for ending in format.endings)


def check_options(format: Format, options: dict[str, Any]) -> None:
    """Refuse options that the format does not have, and wrong values of those of all formats."""
    available = format.options | PRUNING_OPTIONS
    unknown = sorted(set(options) - available)
    if unknown:
        listed = ", ".join(options_in_use(sorted(available)))
        question = ""
        if not any(unknown[0] in other.options for other in FORMATS.values()):
            question = did_you_mean(unknown[0], available, option)
        problem = f"{option(unknown[0])} cannot be used with the format {format.name!r}."
        raise TypeError(f"{problem}{question} Its options: {listed}.")
    check_pruning(**{name: options[name] for name in PRUNING_OPTIONS & set(options)})
