"""Every format is one class: what it reads, streams and writes, and what follows from the table."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from hdf5_files import write_annotated, write_loom
from klnmf.cli.options import FORMATS as NAMES_FOR_COMMANDS
from klnmf.data.canonical import Entries
from klnmf.data.streams import collected
from klnmf.readers import (
    FORMATS,
    CountTable,
    entries,
    prepare,
    preparing,
    read_counts,
    write_counts,
)
from klnmf.readers.format import Format
from reader_checks import COLUMNS, COUNTS, ROWS, TABLE, assert_same
from tenx_files import ANTIBODIES, GENES, write_folder, write_h5

# ---- a new format --------------------------------------------------------------------------------


class Dots(Format):
    """A row of dots per row of one column: a dot counts 1."""

    name: ClassVar[str] = "dots"
    endings: ClassVar[tuple[str, ...]] = (".dots",)

    def read(self, path: Path, *, dot: str = ".") -> CountTable:
        return CountTable([[line.count(dot)] for line in path.read_text().splitlines()])

    def write(self, table: CountTable, path: Path) -> None:
        path.write_text("".join(f"{'.' * int(n)}\n" for n in table.X.toarray()[:, 0]))


@pytest.fixture
def dots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "dots", Dots())


@pytest.mark.usefixtures("dots")
def test_a_class_and_a_line_in_the_table_are_a_format(tmp_path: Path) -> None:
    path = tmp_path / "a.dots"
    write_counts(CountTable([[3], [0], [1]]), path)
    assert path.read_text() == "...\n\n.\n"
    assert read_counts(path).X.toarray().tolist() == [[3], [0], [1]]
    assert read_counts(path, dot="x").X.nnz == 0
    matrix = prepare(path, tmp_path / "out")
    assert matrix.as_csr().toarray().tolist() == [[3], [0], [1]]


@pytest.mark.usefixtures("dots")
def test_messages_follow_from_the_table(tmp_path: Path) -> None:
    (tmp_path / "a.dots").write_text(".\n")
    with pytest.raises(TypeError, match=r"layer cannot be used with the format 'dots'.*: dot, m"):
        read_counts(tmp_path / "a.dots", layer="x")
    (tmp_path / "a.xyz").write_text(".\n")
    with pytest.raises(ValueError, match=r"endings are .*\.dots\. .* formats are .*, dots\."):
        read_counts(tmp_path / "a.xyz")
    with pytest.raises(ValueError, match=r"Use one of the endings .*, \.dots\."):
        write_counts(TABLE, tmp_path / "a.xyz")
    with pytest.raises(ValueError, match=r"format must be one of .*, dots; got 'loom'"):
        write_counts(TABLE, tmp_path / "a", format="loom")


def test_the_documentation_and_the_commands_list_every_format() -> None:
    assert sorted(NAMES_FOR_COMMANDS) == sorted(FORMATS)
    for name, known in FORMATS.items():
        assert f'``"{name}"``' in str(read_counts.__doc__)
        assert known.name == name
        if known.is_writable:
            assert f'"{name}"' in str(write_counts.__doc__)
            assert all(ending in str(write_counts.__doc__) for ending in known.endings[:1])


# ---- whole and in blocks -------------------------------------------------------------------------


def _table(path: Path) -> pd.DataFrame:
    return pd.DataFrame(COUNTS, index=ROWS, columns=COLUMNS)


SAVERS: dict[str, Callable[[Path], Any]] = {
    "dense.h5ad": lambda path: write_annotated(path, "dense"),
    "csr.h5ad": lambda path: write_annotated(path, "csr"),
    "csc.h5ad": lambda path: write_annotated(path, "csc"),
    "a.loom": write_loom,
    "10x": lambda path: write_folder(path, version=3, types=(GENES, GENES, ANTIBODIES, GENES)),
    "10x.h5": lambda path: write_h5(path, types=(GENES, GENES, ANTIBODIES, GENES)),
    "table.csv": lambda path: _table(path).to_csv(path),
    "table.tsv": lambda path: _table(path).to_csv(path, sep="\t"),
    "table.parquet": lambda path: _table(path).to_parquet(path),
}


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("name", SAVERS)
def test_prepare_reads_in_pieces_what_is_read_whole(
    name: str, transpose: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SAVERS[name](tmp_path / name)
    monkeypatch.setattr(preparing, "BYTES_PER_ENTRY", 1 << 20)  # one entry at a time
    said: list[str] = []
    matrix = prepare(
        tmp_path / name, tmp_path / "out", memory="1M", transpose=transpose, say=said.append
    )
    expected = read_counts(tmp_path / name, transpose=transpose)
    assert_same(read_counts(matrix.path), expected)
    assert not any("as a whole" in line for line in said)


def test_a_document_that_goes_on_in_the_next_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same word comes up in several blocks of a document, which fill more than one block."""
    generator = np.random.default_rng(0)
    rows = np.sort(generator.choice([0, 1, 1, 1, 1, 5, 6], 60))
    words, counts = generator.integers(0, 4, 60), generator.integers(1, 3, 60)
    lines = zip(rows + 1, words + 1, counts, strict=True)
    path = tmp_path / "docword.x.txt"
    path.write_text("9\n4\n60\n" + "".join(f"{i} {j} {n}\n" for i, j, n in lines))
    (tmp_path / "vocab.x.txt").write_text("a\nb\nc\nd\n")
    expected = sp.coo_array((counts, (rows, words)), shape=(9, 4)).toarray()
    for size in (1, 7, 40, 1 << 22):
        monkeypatch.setattr(entries, "_TEXT", size)
        np.testing.assert_array_equal(read_counts(path).X.toarray(), expected)
        matrix = prepare(path, tmp_path / f"out{size}")
        np.testing.assert_array_equal(matrix.as_csr().toarray(), expected)


# ---- collecting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize(
    "counts",
    [
        np.array([1, 2, 2**40]),
        np.array([1, 2, 2**63 + 5], dtype=np.uint64),
        np.array([1, 2, 0.1], dtype=np.float32),
        np.array([1.0, 2.0, np.nan]),
        np.array([1, 2, -(2**40)]),
    ],
)
def test_counts_are_collected_exactly(counts: Any, in_order: bool) -> None:
    blocks = [Entries(np.array([i]), np.array([i]), counts[i : i + 1]) for i in range(3)]
    found = collected(blocks, lambda: (3, 3), in_order)
    np.testing.assert_array_equal(np.sort(found.data), np.sort(counts))
    assert found.data.dtype == counts.dtype


def test_what_is_collected_takes_few_bytes_an_entry() -> None:
    n_blocks, size = 50, 20_000
    generator = np.random.default_rng(0)

    def blocks() -> Any:
        for number in range(n_blocks):
            rows = np.full(size, number)
            yield Entries(rows, generator.integers(0, 1000, size), np.ones(size))

    for in_order, most in ((True, 8), (False, 12)):
        tracemalloc.start()
        found = collected(blocks(), lambda: (n_blocks, 1000), in_order)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.nnz == n_blocks * size
        assert peak < 1.3 * most * n_blocks * size + 40 * size
