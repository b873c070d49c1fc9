"""The checks of a tensor's parts, and their messages: what was given, what is wanted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from klnmf.data.events import checked_numbers, texts_of
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described, listed
from klnmf.support.number_checks import is_missing

MOST_MODES = 8
LARGEST = 2**31 - 1  # of a size, and of the sum of all sizes: places are int32


def checked_parts(
    coords: Any, values: Any, shape: Any, mode_names: Any, labels: Any
) -> tuple[Array, Array, tuple[int, ...], tuple[str, ...], tuple[Any, ...]]:
    """Return the parts of a tensor as they are kept, but for the order of the entries."""
    coords = _checked_coords(coords)
    sizes = _checked_shape(shape, coords)
    names = _checked_names(mode_names, len(sizes))
    values = _checked_values(values, coords.shape[1])
    coords = coords.astype(np.int32, order="C")  # a copy
    return coords, values, sizes, names, _checked_labels(labels, sizes, names)


def _checked_coords(given: Any) -> Array:
    """Return places as integers, none of them negative."""
    wanted = "coords must be whole numbers of shape (n_modes, nnz), one row per mode"
    try:
        coords = np.asarray(given)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{wanted}; got rows of different lengths.") from error
    if coords.ndim != 2 or coords.dtype.kind not in "iuf":
        raise ValueError(f"{wanted}; got {described(given)} of the type {coords.dtype}.")
    n_modes, n_entries = coords.shape
    if not 2 <= n_modes <= MOST_MODES:
        advice = f"A tensor has 2 to {MOST_MODES} modes."
        if n_modes == 1:
            advice = "That is a vector; use numpy.bincount to add up its counts."
        elif n_entries <= MOST_MODES:
            advice += " It looks transposed: pass coords.T."
        raise ValueError(f"{wanted}; got {n_modes} rows. {advice}")
    if coords.dtype.kind == "f" and (coords != np.rint(coords)).any():  # NaN too
        _refuse_place(coords, coords != np.rint(coords), "a whole number")
    if n_entries and coords.min() < 0:
        _refuse_place(coords, coords < 0, "0 or more; places are counted from 0")
    if n_entries and coords.max() >= LARGEST:
        _refuse_place(coords, coords >= LARGEST, f"below {LARGEST:,}")
    return coords


def _refuse_place(coords: Array, is_wrong: Array, wanted: str) -> None:
    mode, entry = (int(place) for place in np.argwhere(is_wrong)[0])
    raise ValueError(f"coords[{mode}, {entry}] = {coords[mode, entry]}; it must be {wanted}.")


def _checked_shape(given: Any, coords: Array) -> tuple[int, ...]:
    """Return the sizes of the modes, in which all places are."""
    if given is None:
        if not coords.shape[1]:
            raise ValueError("There are no entries to take the sizes from. Pass shape=(...).")
        return _checked_shape([int(places.max()) + 1 for places in coords], coords)
    sizes = listed(given, "shape", "a tuple with the size of each mode")
    if len(sizes) != len(coords):
        raise ValueError(f"shape has {len(sizes)} sizes for the {len(coords)} modes of coords.")
    if not all(isinstance(size, int | np.integer) and 1 <= size <= LARGEST for size in sizes):
        raise ValueError(
            f"shape must be whole numbers from 1 to {LARGEST:,}; got {described(given)}. Leave out "
            "modes that have no slices."
        )
    shape = tuple(map(int, sizes))
    if sum(shape) > LARGEST:
        raise ValueError(
            f"The sizes of all modes add up to {sum(shape):,}; the most is {LARGEST:,}. Leave out "
            "slices without counts."
        )
    is_outside = coords >= np.array(shape)[:, None]
    if is_outside.any():
        mode = int(np.argwhere(is_outside)[0, 0])
        _refuse_place(coords, is_outside, f"below {shape[mode]}, the size of mode {mode} in shape")
    return shape


def _checked_values(given: Any, n_entries: int) -> Array:
    """Return counts, of any type of numbers that NumPy has."""
    if given is None:
        return np.ones(n_entries, dtype=np.float32)
    values = np.asarray(given)
    if values.shape != (n_entries,):
        raise ValueError(
            f"values must have one count for each of the {n_entries:,} columns of coords; got "
            f"{described(given)}."
        )
    return checked_numbers(values, "values")


def default_names(n_modes: int) -> tuple[str, ...]:
    """Return the names of modes that have none."""
    return tuple(f"mode_{mode}" for mode in range(n_modes))


def _checked_names(given: Any, n_modes: int) -> tuple[str, ...]:
    """Return the names of the modes."""
    if given is None:
        return default_names(n_modes)
    names = listed(given, "mode_names", "a list of names")
    are_texts = all(isinstance(name, str) and name for name in names)
    if len(names) != n_modes or not are_texts or len(set(names)) < n_modes:
        wanted = f"{n_modes} texts, one for each mode, that differ from each other"
        raise ValueError(f"mode_names must be {wanted}; got {described(given)}.")
    return tuple(map(str, names))


def _checked_labels(given: Any, shape: Sequence[int], names: Sequence[str]) -> tuple[Any, ...]:
    """Return for each mode an array of texts, or None."""
    if given is None:
        return (None,) * len(shape)
    wanted = f"a list of {len(shape)}, for each mode None or its labels"
    if isinstance(given, str | Mapping) or not hasattr(given, "__len__"):
        raise TypeError(f"labels must be {wanted}; got {described(given)}.")
    if len(given) != len(shape):
        raise ValueError(f"labels must be {wanted}; got {len(given)}.")
    return tuple(
        None if each is None else _labels_of_mode(each, size, f"labels of the mode {name!r}")
        for each, size, name in zip(given, shape, names, strict=True)
    )


def _labels_of_mode(given: Any, size: int, what: str) -> Array:
    is_vector = isinstance(given, np.ndarray) and given.ndim == 1
    entries = given if is_vector else listed(given, f"The {what}", "a list of labels")
    if len(entries) != size:
        raise ValueError(f"There are {len(entries):,} {what}, which has {size:,} slices.")
    if any(map(is_missing, entries)):
        raise ValueError(
            f"Some {what} are missing or empty. Give each slice a label, or pass None."
        )
    texts = texts_of(entries)
    repeated = [text for text, times in Counter(texts).items() if times > 1]
    if repeated:
        raise ValueError(
            f"The {what} have {described(repeated[0])} more than once. Make them unique, or give "
            "these slices the same coords, so that they are summed."
        )
    return np.array(texts, dtype=object)
