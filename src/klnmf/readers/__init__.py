"""Files to counts with names, to tensors or to texts, and back."""

from klnmf.data.on_disk.matrix import OnDiskMatrix, open_matrix
from klnmf.readers.formats import FORMATS, read_counts, read_documents, write_counts
from klnmf.readers.preparing import prepare
from klnmf.readers.table import CountTable
from klnmf.readers.tensor_files import read_tensor, write_tensor
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
    "read_tensor",
    "write_counts",
    "write_tensor",
]
