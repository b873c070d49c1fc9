"""Counts with names that are read again, and how two tables are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf.readers import CountTable, ReadError, read_counts

COUNTS = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 70_000]])
ROWS = ["the letter", 'a "report"', "märz, april"]
COLUMNS = ["sea", "corn, ripe", "never", "ship"]
TABLE = CountTable(COUNTS, ROWS, COLUMNS)


def assert_same(found: CountTable, expected: CountTable = TABLE) -> None:
    np.testing.assert_array_equal(found.X.toarray(), expected.X.toarray())
    for what in ("row_names", "column_names"):
        names, wanted = getattr(found, what), getattr(expected, what)
        assert (None if names is None else list(names)) == (
            None if wanted is None else list(wanted)
        )
    assert isinstance(found.X, sp.csr_array)
    assert found.X.has_canonical_format
    assert found.X.data.all()


def write_lines(path: Path, names: list[str]) -> None:
    path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def refused(path: Path, line: int | None, message: str, **options: Any) -> None:
    """Reading fails at that line, and the error names the file and says this."""
    with pytest.raises(ReadError, match=message) as caught:
        read_counts(path, **options)
    assert caught.value.line == line
    where = str(caught.value.path) if line is None else f"{caught.value.path}, line {line}"
    assert str(caught.value).startswith(f"{where}: ")
    assert isinstance(caught.value, ValueError)
