"""Words of texts, counted by scikit-learn's CountVectorizer with its own options."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import CountVectorizer

from klnmf.support.input_files import ReadError
from klnmf.support.option_names import option

# Options that say where the text comes from, which the readers decide.
_OURS = frozenset(("input", "encoding", "decode_error", "dtype"))
VECTORIZER_OPTIONS = frozenset(CountVectorizer().get_params()) - _OURS


def counted(path: Path, documents: Iterator[str], options: dict[str, Any]) -> tuple[Any, Any]:
    """Count the words of documents; return the counts and the words."""
    vectorizer = CountVectorizer(**options)
    try:
        X = vectorizer.fit_transform(documents)
    except ReadError:
        raise
    except (ValueError, re.error) as error:
        given = ", ".join(option(name, value) for name, value in options.items()) or "none"
        problem = f"the words cannot be counted: {str(error).rstrip('.')}."
        raise ReadError(path, f"{problem} Options that were given: {given}.") from error
    return X, vectorizer.get_feature_names_out()
