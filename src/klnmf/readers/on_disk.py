"""Folders that ``klnmf prepare`` wrote, read into memory."""

from pathlib import Path

from klnmf.readers.format import Format
from klnmf.readers.table import CountTable, table_of_file


class Prepared(Format):
    """Folder that ``klnmf prepare`` wrote."""

    name = "prepared"
    is_folder = True

    def matches(self, path: Path) -> bool:
        """Whether the folder has the first files of a prepared matrix."""
        return (path / "header.json").is_file() and (path / "rows.indptr.npy").is_file()

    def read(self, path: Path) -> CountTable:
        """Read all of it, after its checksums."""
        from klnmf.data.on_disk.matrix import open_matrix

        matrix = open_matrix(path)
        names = (matrix.row_names, matrix.column_names, matrix.labels)
        return table_of_file(path, matrix.as_csr().copy(), *names, matrix.open_features)
