"""Names that a page can hold."""

from typing import Any


def plain_text(value: Any, longest: int | None = None) -> str:
    """Return text without lone surrogates and NUL, which no file can hold, and not too long.

    >>> plain_text("north of the river", longest=6)
    'north…'
    """
    text = str(value).encode("utf-8", "replace").decode("utf-8").replace("\0", "�")
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"
