"""Sizes of memory, such as 512M."""

import re
from numbers import Integral

from klnmf.support.descriptions import described
from klnmf.support.option_names import option

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_bytes(size: str | int, *, least: int = 1 << 20) -> int:
    """Return a number of bytes, given as a whole number or with a unit: "512M", "2G", "1.5 GB".

    >>> parse_bytes("2G") == 2 * 1024**3
    True
    >>> parse_bytes("512 MB")
    536870912
    """
    is_size = isinstance(size, str | Integral) and not isinstance(size, bool)
    text = str(size).upper() if is_size else ""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", text)
    if found is None:
        raise ValueError(
            f"{option('memory')} must be a number of bytes, or a size such as '2G'; got "
            f"{described(size)}."
        )
    number = int(float(found[1]) * _UNITS[found[2]])
    if number < least:
        raise ValueError(
            f"{option('memory')} must be at least {least:,} bytes; got {described(size)}."
        )
    return number
