"""Files to counts with names, or to texts, and back: `read_counts`, `read_documents`, `prepare`."""

from klnmf.data.on_disk.matrix import OnDiskMatrix, open_matrix
from klnmf.readers.formats import FORMATS, read_counts, read_documents, write_counts
from klnmf.readers.preparing import prepare
from klnmf.readers.table import CountTable
from klnmf.support.input_files import ReadError
from klnmf.texts.documents import Documents

__all__ = [
    "FORMATS",
    "CountTable",
    "Documents",
    "OnDiskMatrix",
    "ReadError",
    "open_matrix",
    "prepare",
    "read_counts",
    "read_documents",
    "write_counts",
]
