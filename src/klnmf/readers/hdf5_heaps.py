"""The heaps of an HDF5 file in which texts of varying length lie.

HDF5's library goes through a heap when it reads the first text of it. A free place of size 0, which
no writer leaves, keeps it there for ever; nothing can stop it then.
"""

import mmap
import re
from functools import lru_cache
from pathlib import Path
from struct import Struct

from klnmf.support.input_files import ReadError

_SIGNATURE = re.compile(re.escape(b"GCOL\x01"))
# Head of a heap and of an object in it, both padded to this: number and length. How many bytes a
# length has, the file says.
_HEAD = 16
_NUMBER_AND_LENGTH = {2: Struct("<H6xH"), 4: Struct("<H6xI"), 8: Struct("<H6xQ")}


def check_heaps(path: Path, length_size: int) -> None:
    """Refuse a heap without an end, in a pass of about a second per gigabyte, once per file."""
    status = path.stat()
    version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    _go_over_heaps(path, length_size, version)


@lru_cache(maxsize=64)
def _go_over_heaps(path: Path, length_size: int, version: tuple[int, ...]) -> None:
    head = _NUMBER_AND_LENGTH[length_size].unpack_from
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # Heaps do not overlap: no file has more objects than this.
        n_left = len(content) // _HEAD
        for found in _SIGNATURE.finditer(content, 0, max(0, len(content) - _HEAD)):
            start = found.start()
            last = min(start + head(content, start)[1], len(content)) - _HEAD
            place = start + _HEAD
            while place <= last:
                number, length = head(content, place)
                n_left -= 1
                if n_left < 0 or (not number and not length):
                    problem = f"the HDF5 file is damaged: the heap at byte {start:,} has no end."
                    raise ReadError(path, problem)
                place += _HEAD + -(-length // 8) * 8 if number else length
