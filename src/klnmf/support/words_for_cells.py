"""What `klnmf.tl` calls samples, features and components: cells, genes and programs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Cells of a matrix are not cells of an experiment.
_WORDS = {"sample": "cell", "feature": "gene", "component": "program", "cell": "entry"}
# Not names of arguments and attributes, nor quotes: n_components, components_, init='samples', and
# what an argument must be.
_WORD = re.compile(rf"(?<![\w.'\"`])({'|'.join(_WORDS)})(s?)(?![\w'\"`=(]| must\b)", re.IGNORECASE)
_ARE_USED: ContextVar[bool] = ContextVar("words for cells", default=False)


def for_cells(text: str) -> str:
    """Return a text of the library in the words of `klnmf.tl`.

    >>> for_cells("Components of 2 samples with n_components=3; 5 cells are missing.")
    'Programs of 2 cells with n_components=3; 5 entries are missing.'
    """

    def replaced(found: re.Match[str]) -> str:
        word = _WORDS[found[1].lower()]
        word = ("entries" if word == "entry" else f"{word}s") if found[2] else word
        return word.capitalize() if found[1][0].isupper() else word

    return _WORD.sub(replaced, text)


def worded(text: str) -> str:
    """Return a message in the words of whoever called the library."""
    return for_cells(text) if _ARE_USED.get() else text


@contextmanager
def words_for_cells() -> Iterator[None]:
    """Use these words in the warnings and errors of what is called within."""
    token = _ARE_USED.set(True)
    try:
        yield
    except (TypeError, ValueError) as error:
        error.args = tuple(for_cells(a) if isinstance(a, str) else a for a in error.args)
        raise
    finally:
        _ARE_USED.reset(token)
