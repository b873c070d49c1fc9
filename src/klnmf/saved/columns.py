"""Columns of metadata, one value per sample, as plain arrays."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from klnmf.saved.arrays import array_named, pack_names, unpack_names
from klnmf.saved.container import SavedFileError
from klnmf.saved.fields import Fields, shortened
from klnmf.support.array_types import Array
from klnmf.support.number_checks import is_missing

NAME = "sample_metadata"
EXCERPT = "excerpt"  # the column with the beginnings of documents


def pack_columns(
    arrays: dict[str, Array], columns: Mapping[str, Sequence[Any]]
) -> list[dict[str, str]]:
    """Pack each column as numbers (``<f8``) if all values are, and as text otherwise.

    Dates become ISO text. Missing values (None, NaN, NaT) are NaN, or empty text.
    """
    about = []
    for place, (name, values) in enumerate(columns.items()):
        numbers = _numbers(values)
        if numbers is not None:
            arrays[f"{NAME}.{place}"] = numbers
        else:
            pack_names(arrays, f"{NAME}.{place}", [_text(value) for value in values])
        about.append({"name": str(name), "kind": "text" if numbers is None else "number"})
    return about


def unpack_columns(
    arrays: dict[str, Array], about: list[Any], n_samples: int
) -> dict[str, list[Any]]:
    """Return the columns by name: whole numbers as int, missing text as None."""
    columns: dict[str, list[Any]] = {}
    for place, entry in enumerate(about):
        fields = Fields(entry, f"samples.metadata[{place}]")
        name, kind = fields.take("name", str), fields.take("kind", str)
        if name in columns or kind not in ("text", "number"):
            raise SavedFileError(f"{shortened(entry)} is not a column of metadata.")
        if kind == "text":
            texts = unpack_names(arrays, f"{NAME}.{place}", n_samples)
            columns[name] = [text or ("" if name == EXCERPT else None) for text in texts]
            continue
        numbers = array_named(arrays, f"{NAME}.{place}", [np.float64], 1)
        if len(numbers) != n_samples:
            raise SavedFileError(f"{name!r} has {len(numbers)} values for {n_samples} samples.")
        is_whole = bool((numbers == np.trunc(numbers)).all() and (np.abs(numbers) < 2**53).all())
        columns[name] = (numbers.astype(np.int64) if is_whole else numbers).tolist()
    return columns


def _numbers(values: Sequence[Any]) -> Array | None:
    """Return values as float64; None if one is not a number, or all are missing."""
    numbers = []
    for value in values:
        is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
        if not (value is None or is_number) or (is_number and abs(value) >= 2**53):
            return None
        numbers.append(math.nan if value is None else float(value))
    column = np.array(numbers)
    return None if np.isnan(column).all() else column


def _text(value: Any) -> str:
    """Return a value as text; what cannot be encoded is replaced, and what is missing is empty."""
    if is_missing(value):
        return ""
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return text.encode("utf-8", "replace").decode("utf-8")
