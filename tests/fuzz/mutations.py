"""Changes of bytes and of text. A change takes a generator and a content, and returns another."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from random import Random

Change = Callable[[Random, bytes], bytes]

# Words that stand where a number, a name or a separator was expected.
_TEXTS = (
    *("", "0", "-0", "1", "-1", "+1", "1.5", "1,5", "1ab", "1e5", "1e-320", "1e400", "1e999"),
    *("nan", "inf", "-inf", "None", "true", "0x10", "1_000", ".", "1..2", "-", "'", '"', '""'),
    *("2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808"),
    *("99999999999999999999", "-9223372036854775808", "1" * 400, "9" * 5000, "1e-5", "1e308"),
    *("\x00", "1\x00", "\x00" * 9, "\t", "\n", "\r", "\r\n", "\n\n", " ", ",", ";", ":", "%"),
    *("\ufeff", "\u2028", "\x85", "\x0b", "\x1a", "é", "１", "#", "=1+1", "%%MatrixMarket"),
    *("x" * 300, "{}", "[]", "{", "}", "[" * 2000, "\\u0000", "\\ud800", "null", "array"),
    *("coordinate", "pattern", "symmetric", "hermitian", "complex", "integer", "real"),
)
_NOT_TEXT = (b"\xff", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80")
WORDS = (*(text.encode() for text in _TEXTS), *_NOT_TEXT)
BYTES = (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff" * 4, b"\xff" * 8, b"\x00" * 8)
LARGE = 100_000
_TOKEN = re.compile(rb"""[^\s,:"{}\[\]]+""")
# Members of a packed file that unpack to a mebibyte of one line each.
_MEBIBYTE = gzip.compress(b"1" * (1 << 20), 9, mtime=0)


def change_bytes(random: Random, content: bytes) -> bytes:
    """Flip, overwrite, insert, delete, repeat or cut off bytes anywhere."""
    if not content:
        return random.choice(BYTES)
    place, other = random.randrange(len(content)), random.randrange(len(content))
    length = min(random.choice((1, 1, 2, 4, 8, 16, 64, 256)), len(content) - place)
    before, piece, after = (
        content[:place],
        content[place : place + length],
        content[place + length :],
    )
    kind = random.randrange(7)
    if kind == 0:
        return before + bytes((piece[0] ^ (1 << random.randrange(8)),)) + piece[1:] + after
    if kind == 1:
        new = random.choice(BYTES)
        return before + new + content[place + len(new) :]
    if kind == 2:
        return before + random.choice((*BYTES, random.randbytes(length))) + piece + after
    if kind == 3:
        return before + after
    if kind == 4:
        return before + piece * random.choice((2, 3, 50)) + after
    if kind == 5:
        return before + content[other : other + length] + after
    return before


def change_word(random: Random, content: bytes) -> bytes:
    """Replace a word, or put one beside it."""
    found = list(_TOKEN.finditer(content))
    if not found:
        return random.choice(WORDS)
    word = random.choice(found)
    new = random.choice((*WORDS, random.choice(found)[0]))
    kept = random.choice((b"", b"", b"", b"", word[0], word[0] + b" ", word[0] + b","))
    return content[: word.start()] + kept + new + content[word.end() :]


def change_lines(random: Random, content: bytes) -> bytes:
    """Repeat, remove, exchange, join or add lines."""
    lines = content.splitlines(keepends=True) or [b""]
    place, other = random.randrange(len(lines)), random.randrange(len(lines))
    kind = random.randrange(6)
    if kind == 0:
        lines[place:place] = [lines[other]] * random.choice((1, 2, 100))
    elif kind == 1:
        del lines[place]
    elif kind == 2:
        lines[place], lines[other] = lines[other], lines[place]
    elif kind == 3:
        lines[place] = lines[place].rstrip(b"\r\n")
    elif kind == 4:
        lines[place] = random.choice(WORDS) + b"\n"
    else:
        lines[place] = lines[place].replace(b"\n", random.choice((b"\r\n", b"\r", b"", b"\n\n")))
    return b"".join(lines)


def change_encoding(random: Random, content: bytes) -> bytes:
    """Write the same text in another way."""
    text = content.decode("utf-8", "replace")
    encoding = random.choice(("utf-16", "utf-8-sig", "utf-32", "latin-1"))
    return text.encode(encoding, "replace")


def long_line(random: Random, content: bytes) -> bytes:
    """Make one word very long."""
    word = random.choice((b"1", b"x", b"[", b"{", b'"', b"0", b" ", b"1 ", b",", b"\x00"))
    place = random.randrange(len(content) + 1)
    return content[:place] + word * random.choice((5_000, 200_000, 3_000_000)) + content[place:]


def change_text(random: Random, content: bytes) -> bytes:
    """Apply one of the changes of text."""
    changes = (change_word, change_lines, change_bytes, change_encoding, long_line)
    return random.choices(changes, (60, 20, 20, 3, 1))[0](random, content)


def packed(random: Random, content: bytes) -> bytes:
    """Pack a content with gzip, rightly most of the time."""
    kind = random.randrange(12)
    if kind == 0:
        return change_bytes(random, gzip.compress(content, mtime=0))
    if kind == 1:
        return gzip.compress(content, mtime=0) + random.choice((b"\x00" * 9, b"junk", content))
    if kind == 2 and random.random() < 0.1:
        half = len(content) // 2
        return gzip.compress(content[:half], mtime=0) + _MEBIBYTE * random.choice((10, 2500))
    return gzip.compress(content, mtime=0)


def several(*changes: Change) -> Change:
    """Return the change that applies one to a few of these in a row."""

    def change(random: Random, content: bytes) -> bytes:
        for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
            content = random.choice(changes)(random, content)
            if len(content) > LARGE:  # what follows would take long
                break
        return content

    return change
