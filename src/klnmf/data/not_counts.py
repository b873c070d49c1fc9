"""Whether data look like counts that were normalised or log-transformed.

Fractions alone are no mistake: expected counts, averages, intensities. Recognised are
transformations that leave a trace in every sample and change the meaning of a fit:

- samples scaled to the same sum (CPM, TPM, proportions) or to the same length (tf-idf);
- samples that are whole numbers times one factor per sample: scaled, then features were left out.
  One factor for all samples is harmless: images divided by 255;
- logarithms log(1 + x), base e, 2 or 10, of whole numbers or of either kind above.
"""

import numpy as np

from klnmf.data.sparse_data import RowView
from klnmf.data.validation import warn_caller
from klnmf.support.array_types import Array

# Rows that are checked, spread evenly over X; fewer where they are long.
_MOST_ROWS = 128
_MOST_VALUES = 1 << 17
# The sums of two samples may agree by chance.
_LEAST_ROWS = 3
_LEAST_VALUES = 10
# Expected counts are whole wherever a read has one origin; transformed counts are rarely whole.
_WHOLE_SHARE_OF_COUNTS = 0.2
# Sums are the same up to the rounding of values in text files.
_SAME_SUM = 5e-4
# Distance from a whole number, up to the largest multiple that rounding does not move further.
_NEAR_WHOLE = 0.05
_LARGEST_MULTIPLE = 20.0
_SHARE_NEAR_WHOLE = 0.9
# Logarithms are small numbers.
_LARGEST_LOGARITHM = 40.0

# For fractions without such a trace, where counts are elsewhere in the same object.
NOT_RAW = "is probably not the raw counts"


class NotCountsWarning(UserWarning):
    """X looks like counts that were transformed: normalised, weighted or logarithmised.

    ``warnings.simplefilter("ignore", klnmf.NotCountsWarning)`` turns it off.
    """


def warn_if_not_counts(view: RowView) -> None:
    """Warn if X, by its rows, looks like counts that were transformed."""
    warn_of(transformation_of(view))


def warn_of(transformation: str | None) -> None:
    """Warn of what :func:`transformation_of` found, if anything."""
    if transformation is not None:
        warn_caller(
            f"X {transformation}. The model treats values as Poisson counts, where larger values "
            "are more certain; a transformation changes that, and with it the components. Fit the "
            "raw counts if you have them. If the transformation is intended, ignore this warning.",
            NotCountsWarning,
        )


def warn_of_fractions(place: str, fraction: float, looks: str, where: str) -> None:
    """Warn of fractions, by how they look, and say ``where`` the counts may be."""
    warn_caller(
        f"{place} holds fractions (for instance {fraction:.4g}) and {looks}. The model is for raw "
        f"counts. {where}",
        NotCountsWarning,
    )


def transformation_of(view: RowView) -> str | None:
    """Say how the values look transformed, after "X" or another name; None: they do not.

    The data must be nonnegative and finite. Only a few rows are read.

    >>> import scipy.sparse as sp
    >>> from klnmf.data.sparse_data import view_of
    >>> counts = np.random.default_rng(0).poisson(2.0, size=(20, 30))
    >>> transformation_of(view_of(sp.csr_array(counts)))
    >>> shares = counts / counts.sum(axis=1, keepdims=True)
    >>> transformation_of(view_of(sp.csr_array(1e6 * shares)))
    'looks normalised: every sample sums to 1e+06, as in CPM, TPM or proportions'
    """
    values, starts = _some_values(view)
    if len(starts) < _LEAST_ROWS or len(values) < _LEAST_VALUES:
        return None
    if np.mean(values == np.floor(values)) > _WHOLE_SHARE_OF_COUNTS:
        return None
    with np.errstate(over="ignore"):  # unchecked data may have huge values
        return _found_in(values, starts)


def _some_values(view: RowView) -> tuple[Array, Array]:
    """Positive values of some rows, in float64, and where each row begins; none is empty."""
    n_looked_at = min(_MOST_ROWS, view.n_rows)
    rows = np.linspace(0, view.n_rows - 1, n_looked_at).astype(np.int64)
    lengths = view.indptr[rows + 1] - view.indptr[rows]
    n_rows = max(_LEAST_ROWS, int(np.searchsorted(np.cumsum(lengths), _MOST_VALUES)))
    every = max(1, -(-len(rows) // n_rows))  # still spread evenly
    indptr, _, values = view.take_rows(rows[::every])
    is_positive = values > 0  # unchecked data may have stored zeros
    ends = np.concatenate([[0], np.cumsum(is_positive)])[indptr]
    return values[is_positive].astype(np.float64), ends[:-1][np.diff(ends) > 0]


def _found_in(values: Array, starts: Array) -> str | None:
    sums, squares = np.add.reduceat(values, starts), np.add.reduceat(values**2, starts)
    if _are_the_same(sums):
        found = f"every sample sums to {sums.mean():.4g}"
        return f"looks normalised: {found}, as in CPM, TPM or proportions"
    if _are_the_same(squares):
        found = f"every sample has the Euclidean length {np.sqrt(squares.mean()):.4g}"
        return f"looks weighted: {found}, as in tf-idf weights"
    if _are_multiples(values, starts):
        units = np.minimum.reduceat(values, starts)
        # A factor that all samples have in common changes nothing but the scale of the components.
        is_shared = _near_whole(units / units.min())
        if is_shared.sum() >= _SHARE_NEAR_WHOLE * len(is_shared):
            return None
        found = "the values of each sample are whole numbers times a factor"
        return f"looks normalised: {found} that differs between samples"
    if values.max() > _LARGEST_LOGARITHM:
        return None
    for name, base in (("log", np.e), ("log2", 2.0), ("log10", 10.0)):
        before = np.expm1(np.log(base) * values)
        if _are_the_same(np.add.reduceat(before, starts)) or _are_multiples(before, starts):
            found = f"the values are {name}(1 + x) of counts"
            return f"looks log-transformed: {found} or of normalised counts"
    return None


def _are_the_same(sums: Array) -> bool:
    return bool(np.ptp(sums) <= _SAME_SUM * sums.max())


def _are_multiples(values: Array, starts: Array) -> bool:
    """Whether the values of a row are multiples of its smallest one, which was a count of 1."""
    units = np.minimum.reduceat(values, starts)
    near = _near_whole(values / np.repeat(units, np.diff(starts, append=len(values))))
    return len(near) >= _LEAST_VALUES and bool(near.mean() >= _SHARE_NEAR_WHOLE)


def _near_whole(ratios: Array) -> Array:
    """Whether ratios from 1 on are near whole numbers, without those near 1 and large ones."""
    told = ratios[(ratios > 1.0 + _NEAR_WHOLE) & (ratios < _LARGEST_MULTIPLE)]
    result: Array = np.abs(told - np.rint(told)) <= _NEAR_WHOLE
    return result
