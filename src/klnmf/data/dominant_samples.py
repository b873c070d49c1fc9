"""Samples with so many counts that one of them outweighs a whole component.

However many components such a sample has for itself alone, their sum is one row: a single component
with the sample's own profile fits it exactly (docs/maths/local_optima.md). So starts give it one,
and swaps see it, whatever rows they draw. Whether one is wanted, only the user knows: a fit warns.
"""

from typing import Any

import numpy as np

from klnmf.data.validation import EXAMPLES, row_called, warn_caller
from klnmf.support.array_types import Array
from klnmf.support.descriptions import percentage
from klnmf.support.option_names import option, options_in_use

# Among few samples, some have more counts than a component on average: that alone is nothing odd.
_TIMES_MEAN = 5.0


class DominantSamplesWarning(UserWarning):
    """A sample holds more of all counts than a component does on average.

    ``warnings.simplefilter("ignore", klnmf.DominantSamplesWarning)`` turns it off.
    """


def dominant_rows(row_sums: Array, n_components: int) -> Array:
    """Rows that hold more of X than a component on average, 1/r, and far more than the mean row.

    They are fewer than r.

    >>> dominant_rows(np.array([10.0] * 50 + [200.0]), 4)
    array([50])
    >>> dominant_rows(np.array([10.0] * 50 + [200.0]), 3)
    array([], dtype=int64)
    """
    n_filled = int(np.count_nonzero(row_sums))
    share = max(1.0 / n_components, _TIMES_MEAN / max(n_filled, 1))
    return np.flatnonzero(row_sums > share * row_sums.sum())


def with_dominant(rows: Array, own: Array) -> Array:
    """Return a random order of rows with the dominant ones, ``own``, first."""
    return np.concatenate([own, rows[~np.isin(rows, own)]])


def warn_of_dominant_samples(
    row_sums: Array, n_components: int, names: Any = None, weights: str = "sample_weight"
) -> None:
    """Warn of samples that can take a component each; weights are part of ``row_sums``.

    Some callers have no argument for ``weights``: for them splitting is the only advice.
    """
    rows = dominant_rows(row_sums, n_components)
    if not len(rows):
        return
    rows = rows[np.argsort(-row_sums[rows], kind="stable")]
    shares = row_sums[rows] / row_sums.sum()
    listed = ", ".join(
        f"{percentage(share)} in row {row_called(row, names)}"
        for row, share in zip(rows[:EXAMPLES].tolist(), shares.tolist(), strict=False)
    )
    more = ", ..." if len(rows) > EXAMPLES else ""
    hint = " (see klnmf.capped_weights)" if weights == "sample_weight" else ""
    limits = "".join(
        f", or limit its influence with {spelled}{hint}" for spelled in options_in_use([weights])
    )
    warn_caller(
        f"Much of all counts is in {len(rows)} of {len(row_sums):,} samples: {listed}{more}. With "
        f"{option('n_components', n_components)}, a component has "
        f"{percentage(1 / n_components)} on average, so such a sample can take one for itself. If "
        f"that is not wanted, split it into parts{limits}.",
        DominantSamplesWarning,
    )
