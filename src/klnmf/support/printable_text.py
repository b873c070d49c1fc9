"""Text of files and users, for terminals."""


def printable(text: str) -> str:
    r"""Return a text in one line, with control characters of terminals escaped.

    Examples
    --------
    >>> print(printable("a\n b \x1b[2J"))
    a b \x1b[2J
    """
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
