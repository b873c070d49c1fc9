"""Every check of the data and of starting factors, and their messages."""

import inspect
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from klnmf.data.canonical import canonical, selected
from klnmf.data.cell_weights import without_cells
from klnmf.data.matrix_checks import checked_matrix, native_numbers
from klnmf.data.passes import value_summary
from klnmf.data.transposed import misplaced_names
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described
from klnmf.support.option_names import option

EXACT_IN_FLOAT32 = 2**24  # integers below this are
EXAMPLES = 5  # rows that a message names
# Positive values outside these bounds would under- or overflow in squares and quotients.
VALUE_RANGE = {"float32": (1e-15, 1e15), "float64": (1e-140, 1e140)}


def working_dtype(values: Array, requested: Any = None) -> np.dtype[Any]:
    """Float type to compute in: floats keep theirs, integers get the narrowest that is exact."""
    if requested is not None:
        dtype: np.dtype[Any] = np.dtype(object)
        if isinstance(requested, str | type | np.dtype):
            with suppress(TypeError):
                dtype = np.dtype(requested).newbyteorder("=")
        if dtype.name not in VALUE_RANGE:
            raise ValueError(f"dtype must be None, float32 or float64, got {described(requested)}.")
        return dtype
    if values.dtype.kind in "biu":
        return np.dtype(np.float32 if values.max(initial=0) < EXACT_IN_FLOAT32 else np.float64)
    return np.dtype(np.float32 if values.dtype.itemsize <= 4 else np.float64)


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code, however many calls are between it and this one."""
    frame, level = inspect.currentframe(), 1
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in ("klnmf", "sklearn"):
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class TransposedWarning(UserWarning):
    """Rows look like features, or columns like samples: genes × cells, or mutation types × tumours.

    ``warnings.simplefilter("ignore", klnmf.TransposedWarning)`` turns it off.
    """


def warn_if_transposed(whose: str, row_names: Any, column_names: Any, way_out: str) -> None:
    """Warn if names show that rows and columns were exchanged."""
    found = misplaced_names(row_names, column_names)
    if found is not None:
        wanted = "samples must be rows, and features columns"
        warn_caller(f"{whose}: {found}, but {wanted}. {way_out}", TransposedWarning)


def checked_input(
    X: Any,
    name: str = "X",
    *,
    model: Any = None,
    missing: sp.csr_array | None = None,
    n_threads: int = 1,
    **options: Any,
) -> Any:
    """Return X as scikit-learn checks it, after `checked_matrix`: an array, or a CSR array.

    NaN and infinity pass, unless ``ensure_all_finite=True``: `check_counts` has better advice.
    With a ``model``, X must have its ``n_features_in_`` and ``feature_names_in_``, or sets them
    (``reset=True``). ``missing`` cells become 0. A sparse X has no names, which is no news.
    """
    X = checked_matrix(X, name, n_threads)
    if missing is not None:
        X = without_cells(X, missing)
    options = {"accept_sparse": "csr", "ensure_all_finite": False} | options
    try:
        if model is None:
            return check_array(X, input_name=name, **options)
        with warnings.catch_warnings():
            if sp.issparse(X):
                warnings.filterwarnings("ignore", message="X does not have valid feature names")
            return validate_data(model, X, **options)
    except ValueError as error:
        _refuse_columns_of_texts(X, name, error)
        raise


def _refuse_columns_of_texts(X: Any, name: str, error: ValueError) -> None:
    """Name the columns of a DataFrame that hold texts, if one of these is why it was refused."""
    if hasattr(X, "iloc") and "could not convert string to float" in str(error):
        texts = [X.columns[j] for j in range(X.shape[1]) if isinstance(X.iloc[0, j], str)]
        listed = ", ".join(map(repr, texts))
        raise ValueError(
            f"{name} has columns of texts: {listed}. If they name the rows, make them the index: "
            f"pass {name}.set_index({texts[0] if len(texts) == 1 else texts!r})."
        ) from error


def _cell(X: sp.csr_array, entry: int, first_row: int) -> str:
    """Place and value of a stored entry."""
    row = first_row + int(np.searchsorted(X.indptr, entry, side="right")) - 1
    return f"X[{row}, {X.indices[entry]}] = {X.data[entry]}"


def _reject_not_finite(
    X: sp.csr_array, first_row: int, was_sparse: bool, takes_missing: bool
) -> None:
    if not X.data.size or (np.isfinite(X.data.max()) and np.isfinite(X.data.min())):
        return
    is_nan = np.isnan(X.data)
    if not is_nan.any():
        cell = _cell(X, int(np.isinf(X.data).argmax()), first_row)
        raise ValueError(f"Input X contains infinity: {cell}. Counts are finite numbers.")
    found = f"Input X contains NaN: {_cell(X, int(is_nan.argmax()), first_row)}. "
    if not takes_missing:
        raise ValueError(
            found + "Leave out the samples or features with NaN, or replace NaN by a count. Cells "
            "can be missing in KLNMF.fit, with missing=numpy.isnan(X), but not here."
        )
    pattern = "missing=numpy.isnan(X)."
    if was_sparse:
        pattern = (
            "missing=M, where M = X.copy() and M.data = numpy.isnan(X.data). If NaN stands for no "
            "count, replace it by 0."
        )
    raise ValueError(f"{found}If NaN marks cells that were not observed, pass {pattern}")


def _reject_negative(X: sp.csr_array, name: str, first_row: int) -> None:
    if X.data.size and X.data.dtype.kind != "b" and X.data.min() < 0:
        raise ValueError(
            f"Negative values in data passed to {name}: "
            f"{_cell(X, int(X.data.argmin()), first_row)}. KL divergence is for counts and other "
            "nonnegative data. Do not centre the data, and do not take logarithms of values below "
            "1."
        )


def check_values(values: Array, n_threads: int = 1) -> None:
    """Refuse positive values that the arithmetic cannot hold."""
    if values.size:
        facts = value_summary(values, n_threads)
        check_value_range(facts.smallest, facts.largest, facts.total, values.dtype)


def check_value_range(smallest: float, largest: float, total: float, dtype: np.dtype[Any]) -> None:
    """Refuse positive values that the arithmetic cannot hold; no values have a total of 0."""
    if not total:
        return
    low, high = VALUE_RANGE[dtype.name]
    # A nonzero that is alone in its row and column needs a product of about v² / ΣX.
    product = smallest * (smallest / total)
    too_far_apart = product < 1e8 * float(np.finfo(dtype).tiny)
    if smallest < low or not largest <= high or too_far_apart:
        wider = f" Use {option('dtype', 'float64')}, or" if dtype == np.float32 else " Please"
        raise ValueError(
            f"The positive values of X range from {smallest:.3g} to {largest:.3g}, but {dtype} "
            f"arithmetic is safe only from {low:g} to {high:g}, and not over all of that range in "
            f"one matrix.{wider} multiply X by a constant (the components scale with it), or set "
            "values that are numerical noise to 0."
        )


def warn_of_many_components(n_learned: int, shape: tuple[int, int]) -> None:
    """Warn if the learned components could reproduce any data; a single one is always fine."""
    if n_learned > 1 and n_learned >= min(shape):
        n, m = shape
        warn_caller(
            f"{n_learned} components are learned from {n:,} samples and {m:,} features. With as "
            "many components as samples or features, W Hᵀ can reproduce X exactly and the "
            f"components need not mean anything. Use a smaller {option('n_components')}.",
            ManyComponentsWarning,
        )


class ManyComponentsWarning(UserWarning):
    """As many components are learned as X has samples or features, or more."""


class EmptySamplesWarning(UserWarning):
    """Samples of X have no counts."""


def warn_of_empty_samples(
    is_empty: Array, names: Any = None, texts: Sequence[str] | None = None
) -> None:
    """Warn of samples without counts, see `empty_samples_message`.

    For documents, whose ``texts`` or beginnings are given, it says how many have no text at all.
    """
    are_texts = texts is not None
    message = empty_samples_message(is_empty, names, "left" if are_texts else "", are_texts)
    if message is not None:
        n_missing = sum(not text.strip() for text in texts or ())
        who, have = f"{n_missing:,} of them", "has" if n_missing == 1 else "have"
        if n_missing == np.count_nonzero(is_empty):
            who = "It" if n_missing == 1 else "They"
        missing = f" {who} {have} no text at all."
        warn_caller(message + (missing if n_missing else ""), EmptySamplesWarning)


def row_called(row: int, names: Any) -> str:
    """Return the number of a sample, with its name if there are names."""
    return f"{row}" if names is None else f"{row} ({names[row]!r})"


def empty_samples_message(
    is_empty: Array, names: Any = None, which: str = "", are_texts: bool = False
) -> str | None:
    """Say how many samples have no counts, and which are the first; None if there are none.

    ``which`` says more about the counts, or words, that they do not have.

    >>> print(empty_samples_message(np.array([False, True]), ["letter", "report"]))
    1 of 2 samples has no counts: row 1 ('report'). It gets no component.
    >>> print(empty_samples_message(np.array([True, True]), None, "left", are_texts=True))
    2 of 2 documents have no words left: rows 0, 1. They get no topic.
    """
    rows = np.flatnonzero(is_empty)
    if not len(rows):
        return None
    shown = [row_called(row, names) for row in rows[:EXAMPLES].tolist()]
    listed = ", ".join(shown) + (", ..." if len(rows) > EXAMPLES else "")
    nouns = ("documents", "words", "topic") if are_texts else ("samples", "counts", "component")
    samples, counts, component = nouns
    have, them = ("has", "row {}. It gets") if len(rows) == 1 else ("have", "rows {}. They get")
    found = f"{len(rows):,} of {len(is_empty):,} {samples} {have} {f'no {counts} {which}'.strip()}"
    return f"{found}: {them.format(listed)} no {component}."


def check_counts(
    X: Any,
    *,
    dtype: Any = None,
    name: str = "KLNMF",
    first_row: int = 0,
    takes_missing: bool = False,
    n_threads: int = 1,
    **options: Any,
) -> sp.csr_array:
    """Return X as a canonical CSR array of positive floats: the one gate for counts.

    X is never changed, and copied only where necessary. With ``dtype=None``, float32 and float64
    stay and integers get the one that is exact. Messages use ``name``, the estimator or function,
    and ``first_row``, where X is a block of a larger matrix; advice about NaN names the parameter
    ``missing`` if the caller has it. Options are for :func:`checked_input`.

    >>> X = check_counts(np.array([[0, 3], [1, 0]]))
    >>> X.nnz, X.dtype.name
    (2, 'float32')
    """
    if hasattr(X, "iloc"):
        warn_if_transposed("X", X.index, X.columns, "Pass X.T.")
    X = checked_input(X, n_threads=n_threads, **options)
    given = X if sp.issparse(X) else sp.csr_array(native_numbers(X))
    if not _is_sound(given.data, n_threads):
        _reject_not_finite(given, first_row, sp.issparse(X), takes_missing)
        _reject_negative(given, name, first_row)
    csr = canonical(given, n_threads)
    target = working_dtype(given.data, dtype)
    if dtype is None and given.dtype.kind in "biu" and csr.data.max(initial=0) >= EXACT_IN_FLOAT32:
        target = np.dtype(np.float64)  # duplicates may sum to more than any of them
    if csr.dtype != target:
        with np.errstate(over="ignore"):
            data = csr.data.astype(target)
        if not np.isfinite(data).all():
            advice = "Multiply X by a small constant."
            if target == np.float32:
                advice = f"Use {option('dtype', 'float64')}."
            raise ValueError(
                f"X holds values up to {np.format_float_scientific(csr.data.max(), 3, trim='-')}, "
                f"which {target} cannot represent. {advice}"
            )
        csr = sp.csr_array((data, csr.indices, csr.indptr), shape=csr.shape)
        csr = csr if data.all() else selected(csr, data != 0)  # the smallest may become 0
    check_values(csr.data, n_threads)
    return csr


def _is_sound(values: Array, n_threads: int) -> bool:
    """Whether one pass saw that all values are finite and not negative."""
    if values.dtype not in (np.float32, np.float64):
        return False
    facts = value_summary(values, n_threads)
    return facts.are_finite and facts.smallest >= 0


def refuse_first(bad: Array, values: Array, name: str, wanted: str) -> None:
    """Refuse values of which some are bad, and show the first of these: ``name[3, 0] = -1.0``."""
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        where = f"{name}[{', '.join(map(str, place))}]"
        raise ValueError(f"{wanted}, but {where} = {values[place]}.")


def checked_factor(
    factor: Any, name: str, shape: tuple[int | None, int | None], what: str = ""
) -> Array:
    """Return W (n × r), or H as in ``components_`` (r × m), as an array of real numbers.

    None in the shape stands for any size. The array may be the one that was given.
    """
    factor = checked_matrix(factor, name)
    factor = factor if sp.issparse(factor) else np.asarray(factor)
    fits = [
        len(given) == 2 and all(size in (None, g) for size, g in zip(shape, given, strict=True))
        for given in (factor.shape, factor.shape[::-1])
    ]
    if not fits[0]:
        axes = ("n_samples", "n_components") if name == "W" else ("n_components", "n_features")
        sizes = (axis if size is None else size for axis, size in zip(axes, shape, strict=True))
        hint = " It looks transposed: W is samples × components, H components × features, as in "
        raise ValueError(
            f"{what}{name} must have shape ({', '.join(map(str, sizes))}), got {factor.shape}."
            f"{f'{hint}components_.' if fits[1] else ''}"
        )
    dense = factor.toarray() if sp.issparse(factor) else factor
    if dense.dtype.kind not in "biuf":
        raise TypeError(f"{what}{name} must hold real numbers, got dtype {dense.dtype}.")
    bad = ~np.isfinite(dense) | (dense < 0)
    refuse_first(bad, dense, name, f"{what}{name} must be finite and nonnegative")
    return np.asarray(dense)


def check_start(factor: Any, name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """Return a starting factor as a fresh C-contiguous array, or say what is wrong with it."""
    dense = checked_factor(factor, name, shape, "The start ")
    low, high = VALUE_RANGE[dtype.name]
    largest = float(dense.max(initial=0))
    if largest > high or 0 < largest < low:
        raise ValueError(
            f"The largest entry of the start {name} is {largest:.3g}; {dtype} arithmetic is safe "
            f"from {low:g} to {high:g} only. Scale {name}, and the other factor the "
            "opposite way."
        )
    # Smaller entries would under- or overflow in products and quotients; 0 can still grow.
    return np.where(dense < low, 0, dense).astype(dtype)


def is_integer_valued(X: Any) -> bool:
    """Whether every value of a matrix or tensor is a whole number that an int64 holds exactly."""
    values = X.data if sp.issparse(X) else X.values
    return bool(np.all(values == np.floor(values)) and values.max(initial=0) < 2**53)
