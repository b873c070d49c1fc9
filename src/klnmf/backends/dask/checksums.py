"""CRC-32 of two pieces together, from the checksums of each."""

# A zero bit appended is a linear map of the 32 bits: column i is what it makes of bit i.
_POLYNOMIAL = 0xEDB88320
_ONE_BIT = [_POLYNOMIAL, *(1 << i for i in range(31))]


def joined_checksum(first: int, second: int, n_bytes: int) -> int:
    """Checksum of two pieces, one after the other, the second of ``n_bytes``.

    The first checksum is moved on by as many zero bytes, by squaring the map of one bit.

    Examples
    --------
    >>> import zlib
    >>> joined_checksum(zlib.crc32(b"abc"), zlib.crc32(b"defgh"), 5) == zlib.crc32(b"abcdefgh")
    True
    """
    step, left = _ONE_BIT, 8 * n_bytes
    while left:
        if left & 1:
            first = _applied(step, first)
        step = [_applied(step, column) for column in step]
        left >>= 1
    return first ^ second


def _applied(columns: list[int], bits: int) -> int:
    result = 0
    for column in columns:
        if bits & 1:
            result ^= column
        bits >>= 1
    return result
