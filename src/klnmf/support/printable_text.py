"""Text of files and users, for terminals and messages."""

# Characters of a line that a message shows.
_SHOWN = 60


def printable(text: str) -> str:
    r"""Return a text in one line, with control characters of terminals escaped.

    Examples
    --------
    >>> print(printable("a\n b \x1b[2J"))
    a b \x1b[2J
    """
    return escaped(" ".join(text.split()))


def escaped(text: str, kept: str = "") -> str:
    r"""Return a text with all characters escaped that are neither printable nor to be kept.

    Examples
    --------
    >>> print(escaped("a\tb\x9b2J", kept="\t\n"))
    a	b\x9b2J
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)


def shown(content: bytes | str) -> str:
    """Quote the beginning of a line for an error message.

    Examples
    --------
    >>> print(shown(b"1 2 x"), shown(""))
    '1 2 x' nothing
    """
    text = content if isinstance(content, str) else content.decode("utf-8", "backslashreplace")
    text = text.rstrip("\r\n")
    if not text:
        return "nothing"
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
