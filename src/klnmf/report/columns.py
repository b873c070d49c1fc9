"""Mean shares of the topics by the columns of the metadata, as far as they can be shown."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from klnmf.report.vocabulary import plain_text
from klnmf.support.array_types import Array
from klnmf.support.number_checks import is_missing
from klnmf.topics.grouping import Period, suitable_periods
from klnmf.topics.shares_by_group import MeanShares, mean_shares

MOST_COLUMNS = 6
MOST_GROUPS = 40
LONGEST_GROUP = 40
MOST_NUMBERS = 4000  # groups × topics of one column


def shares_by_column(
    W: Array, components: Array, metadata: Mapping[str, Sequence[Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Mean shares with intervals by column; names of the columns that are left out.

    A column of times is there once for each period of suitable length, shortest first. Left out are
    columns with one value only, those with more values than a chart can hold, and columns beyond
    the first few, times first.
    """
    most_groups = int(np.clip(MOST_NUMBERS // len(components), 8, MOST_GROUPS))
    shown: list[dict[str, Any]] = []
    left_out: list[str] = []
    periods: dict[str, Sequence[Period | None]] = {
        name: suitable_periods(values, most_groups) for name, values in metadata.items()
    }
    for name in sorted(metadata, key=lambda name: not periods[name]):  # times first
        column, lengths = metadata[name], periods[name]
        n_values = len({str(value) for value in column if not is_missing(value)})
        is_full = len({other["name"] for other in shown}) == MOST_COLUMNS
        if n_values < 2 or not (lengths or n_values <= most_groups) or is_full:
            left_out.append(name)
            continue
        for every in lengths or [None]:
            means = mean_shares(W, components, column, every=every)
            shown.append(_packed(name, every, means))
    return shown, left_out


def _packed(name: str, every: Period | None, means: MeanShares) -> dict[str, Any]:
    """Return a column for the page. Shares are in ten-thousandths."""
    filled = np.flatnonzero(means.n_samples > 0)
    return {
        "name": name,
        "every": every,
        "ordered": means.is_ordered,
        "at": _positions(means)[filled],
        "groups": [plain_text(means.group_names[group], LONGEST_GROUP) for group in filled],
        "n": means.n_samples[filled],
        "missing": means.n_missing,
        "share": np.round(10_000 * means.shares[filled].T),
        "lower": np.round(10_000 * means.lower[filled].T),
        "upper": np.round(10_000 * means.upper[filled].T),
    }


def _positions(means: MeanShares) -> Array:
    """Return where the groups stand on an axis: days, numbers, or one after the other."""
    if means.groups.dtype.kind == "M":
        return np.asarray(means.groups.astype("datetime64[D]").astype(np.int64))
    return means.groups if means.is_ordered else np.arange(len(means.groups))
