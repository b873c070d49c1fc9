"""The name that was meant by a mistyped one."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import islice

# Names that are compared, and their characters: files of strangers may have any number of both.
_MOST, _LONGEST = 1000, 200


def nearest_name(given: object, names: Iterable[str]) -> str | None:
    """Return the name that is most like the given one; None if no name is much like it.

    >>> nearest_name("bdy", ["id", "year", "body"]), nearest_name("TEXT", ["id", "text"])
    ('body', 'text')
    >>> nearest_name("k", ["id", "year"]) is None
    True
    """
    if not isinstance(given, str) or len(given) > _LONGEST:
        return None
    short = (name for name in islice(names, _MOST) if len(name) <= _LONGEST)
    by_folded = {name.casefold(): name for name in short}
    found = get_close_matches(given.casefold(), by_folded, 1)
    return by_folded[found[0]] if found else None


def did_you_mean(given: object, names: Iterable[str], spelled: Callable[[str], str] = repr) -> str:
    """Return the question to add to an error, or nothing if no name is like the given one.

    >>> did_you_mean("bdy", ["id", "body"]), did_you_mean("k", ["id"])
    (" Did you mean 'body'?", '')
    """
    meant = nearest_name(given, names)
    return "" if meant is None else f" Did you mean {spelled(meant)}?"
