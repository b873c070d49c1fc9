"""Names of features and samples: constraints on features are reordered, samples must agree."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from klnmf.data.sparse_tensor import SparseTensor

# Constraints with a row, or an entry, for each sample.
OF_SAMPLES = ("sample_weight", "exposure", "missing", "fixed_W", "zero_W")


def feature_names_of(X: Any) -> list[str] | None:
    """Names of the columns of a DataFrame; None: it has none, or not all of them are strings."""
    columns = getattr(X, "columns", None)
    if columns is None or not all(isinstance(column, str) for column in columns):
        return None
    return list(columns)


def names_seen_in_fit(model: Any) -> Any:
    """Names of a model's features; None: X had none, and scikit-learn then sets no attribute."""
    return getattr(model, "feature_names_in_", None)


_NAMES: ContextVar[Any] = ContextVar("names of samples", default=None)


@contextmanager
def named_samples(names: Any) -> Iterator[None]:
    """Name the rows of an X that has no names itself, in the messages of one fit."""
    token = _NAMES.set(names)
    try:
        yield
    finally:
        _NAMES.reset(token)


def sample_names_of(X: Any) -> Any:
    """Names of the rows of X, for messages; None where there are none, or not all are strings."""
    names = getattr(X, "row_names", None)
    if isinstance(X, SparseTensor):
        names = X.labels[0]
    names = _NAMES.get() if names is None else names
    if hasattr(X, "iloc") and len(X) and all(isinstance(label, str) for label in X.index):
        names = X.index
    return names


def in_feature_order(given: Any, name: str, feature_names: Any) -> Any:
    """Put columns of a DataFrame, or entries of a Series, in X's order; others are unchanged."""
    if feature_names is None:
        return given
    names = feature_names_of(given)
    is_series = names is None and not hasattr(given, "columns") and hasattr(given, "reindex")
    if is_series and all(isinstance(label, str) for label in given.index):
        names = list(given.index)
    if names is None:
        return given
    wanted = list(feature_names)
    if names == wanted:
        return given
    absent = set(wanted) ^ set(names)
    if absent or len({*names}) != len(names) or len(names) != len(wanted):
        reason = f"{sorted(absent)[:3]} are in only one of them" if absent else "some are repeated"
        raise ValueError(
            f"{name} and X have different feature names: {reason}. Pass {name} for the features of "
            "X."
        )
    return given.loc[wanted] if is_series else given[wanted]


def check_sample_order(given: dict[str, Any], X: Any) -> None:
    """Refuse Series and DataFrames that have the labels of X in another order."""
    if not hasattr(X, "iloc"):
        return
    for name in OF_SAMPLES:
        value: Any = given.get(name)
        if not hasattr(value, "iloc"):
            continue
        ours, theirs = X.index, value.index
        if len(ours) != len(theirs) or ours.equals(theirs):
            continue
        if ours.isin(theirs).all() and theirs.isin(ours).all():
            raise ValueError(
                f"{name} has the samples of X in another order. Put it in the order of X: pass "
                f"{name}.loc[X.index]."
            )
