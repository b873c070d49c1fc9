"""Files to counts with names, and back: `read_counts` and `write_counts`."""

from klnmf.readers.formats import FORMATS, read_counts, write_counts
from klnmf.readers.table import CountTable
from klnmf.support.input_files import ReadError

__all__ = ["FORMATS", "CountTable", "ReadError", "read_counts", "write_counts"]
