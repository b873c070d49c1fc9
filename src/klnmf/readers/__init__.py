"""Files to counts with names, or to texts, and back: `read_counts`, `read_documents`."""

from klnmf.readers.documents import Documents
from klnmf.readers.formats import FORMATS, read_counts, read_documents, write_counts
from klnmf.readers.table import CountTable
from klnmf.support.input_files import ReadError

__all__ = [
    "FORMATS",
    "CountTable",
    "Documents",
    "ReadError",
    "read_counts",
    "read_documents",
    "write_counts",
]
