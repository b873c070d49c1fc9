"""`RankSelection`: the result of `select_rank`."""

from __future__ import annotations

import json
import math
import os
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.saved.container import SavedFileError
from klnmf.saved.fields import Fields
from klnmf.support.array_types import FloatArray
from klnmf.support.result_tables import Column, ResultTable, ShownAsTable
from klnmf.support.untrusted_json import read_json
from klnmf.support.whole_files import writing

FORMAT = "klnmf rank selection"
VERSION = 2
# Stability at which the components of two folds agree.
STABLE = 0.9
# Share of the background from which the remarks say that samples have few counts.
MUCH_BACKGROUND = 0.3
_WHOLE = (
    "best_rank",
    "lowest_rank",
    "stable_rank",
    "n_splits",
    "random_state",
    "n_samples",
    "n_features",
)
_COLUMNS = ("deviance", "difference", "standard_error", "stability", "background", "seconds")


@dataclass(frozen=True, eq=False, repr=False)
class RankSelection(ShownAsTable):
    """Held-out deviances of ranks, as returned by `klnmf.model_selection.select_rank`.

    It shows itself as a table that marks the chosen rank.

    Attributes
    ----------
    best_rank : int
        The chosen rank: the smallest one within one standard error of the lowest deviance.
    lowest_rank : int
        The rank with the lowest held-out deviance.
    stable_rank : int
        The rank for reading: the largest one up to ``best_rank`` with a stability of at least 0.9.
        If there is none above 1, the smallest one above 1.
    ranks : ndarray of int
        Ranks that were fitted, in increasing order.
    deviance : ndarray of float
        Held-out Poisson deviance per sample at each rank; lower is better.
    difference, standard_error : ndarray of float
        Deviance minus that of ``lowest_rank``, and the standard error of this difference.
    stability : ndarray of float
        Mean cosine similarity of matched components from two folds, without fixed ones (NaN if
        there are no others). New data would agree less, because the samples outside two folds are
        mostly the same. Where the stability drops, the data no longer determine the components.
    background : ndarray of float
        Share of the rates that is spread over all features, for each rank.
    seconds : ndarray of float
        Total time of all fits of a rank.
    is_complete : bool
        Whether all requested ranks were fitted; False if the search stopped early.
    n_splits, random_state : int
        Number of folds, and the seed that was used.
    n_samples, n_features : int
        Size of the data.
    median_total : float
        Median of the samples' sums.
    """

    best_rank: int
    lowest_rank: int
    stable_rank: int
    ranks: npt.NDArray[np.int64]
    deviance: FloatArray
    difference: FloatArray
    standard_error: FloatArray
    stability: FloatArray
    background: FloatArray
    seconds: FloatArray
    is_complete: bool
    n_splits: int
    random_state: int
    n_samples: int
    n_features: int
    median_total: float

    @property
    def is_at_the_edge(self) -> bool:
        """Whether the largest rank has the lowest deviance, so that larger ones may be better."""
        return bool(self.is_complete and self.lowest_rank == self.ranks[-1])

    def table(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the table, for example for ``pandas.DataFrame``.

        Returns
        -------
        dict of ndarray
            rank, deviance, difference, standard_error, stability, background, seconds, is_best.
        """
        columns = {name: getattr(self, name) for name in _COLUMNS}
        return {"rank": self.ranks, **columns, "is_best": self.ranks == self.best_rank}

    def plot(self, ax: Any = None) -> Any:
        """Plot the held-out deviance with its standard errors, and the stability, against rank.

        The deviance is the mean per sample above the lowest one; bars are one standard error of
        this difference. The stability (right axis) is the similarity of the components of two
        folds. A line marks the chosen rank, and a larger square the rank for reading.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib Axes
            Those of the deviance. Those of the stability lie over them.
        """
        from klnmf.plots.history import draw_rank_selection

        return draw_rank_selection(self, ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the result to a JSON file for `load`.

        Parameters
        ----------
        path : str or path
            File to write.
        """
        with writing(path) as stream:
            stream.write((json.dumps(self.to_json(), indent=1) + "\n").encode())

    def to_json(self) -> dict[str, Any]:
        """Return the content of a file as plain lists and numbers."""
        content = {
            name: [None if entry != entry else entry for entry in value.tolist()]  # NaN is null
            if isinstance(value, np.ndarray)
            else value
            for name, value in asdict(self).items()
        }
        return {"format": FORMAT, "version": VERSION, **content}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RankSelection:
        """Load a file written by `save` or by ``klnmf rank``.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        RankSelection
        """
        try:
            return cls.from_json(Fields(read_json(Path(path)), "content"))
        except ValueError as error:
            raise SavedFileError(
                f"{path} is not a rank selection saved by klnmf, or it is damaged ({error})."
            ) from error

    @classmethod
    def from_json(cls, stored: Fields) -> RankSelection:
        """Reverse `to_json`; a ValueError says what is wrong."""
        if stored.take("format", str) != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        if stored.whole("version") != VERSION:
            raise ValueError(
                f"its version is {stored.whole('version')}, and this klnmf reads {VERSION}; run "
                "select_rank or klnmf rank again"
            )
        ranks = stored.take("ranks", list)
        if not ranks or not all(type(rank) is int and 0 < rank < 2**53 for rank in ranks):
            raise ValueError("its ranks are not positive whole numbers")
        values: dict[str, Any] = {name: stored.whole(name) for name in _WHOLE}
        for name in _COLUMNS:
            values[name] = _column(stored.take(name, list), len(ranks), name)
        for name in ("best_rank", "lowest_rank", "stable_rank"):
            if values[name] not in ranks:
                raise ValueError(f"{name} is {values[name]}, which is not one of its ranks")
        return cls(
            ranks=np.array(ranks, dtype=np.int64),
            is_complete=stored.take("is_complete", bool),
            median_total=stored.number("median_total"),
            **values,
        )

    def _shown(self) -> ResultTable:
        """Return the deviances by rank, and the remarks."""
        marks = {self.stable_rank: "for reading", self.lowest_rank: "lowest"}
        marks[self.best_rank] = "<- best"
        columns = [
            Column("rank", [str(rank) for rank in self.ranks]),
            Column("deviance", [f"{deviance:.4g}" for deviance in self.deviance]),
            Column("above lowest", [f"{difference:.3g}" for difference in self.difference]),
            Column("± s.e.", [f"± {error:.2g}" for error in self.standard_error]),
            Column("stability", ["–" if math.isnan(x) else f"{x:.3f}" for x in self.stability]),
            Column("", [marks.get(int(rank), "") for rank in self.ranks], is_text=True),
        ]
        best = int(np.flatnonzero(self.ranks == self.best_rank)[0])
        notes = [textwrap.fill(remark, 88) for remark in self.remarks()]
        return ResultTable(columns, notes, marked=best)

    def remarks(self) -> list[str]:
        """Return sentences that explain the choice and its limits."""
        found = [
            f"Chosen rank: {self.best_rank}, the smallest within one standard error of the lowest "
            f"held-out deviance (rank {self.lowest_rank}). Every entry of X was predicted from "
            f"other samples ({self.n_splits} folds) and from other features."
        ]
        chosen = list(self.ranks).index(self.best_rank)
        few = (
            f"Half of the samples have a sum of {self.median_total:.3g} or less: the choice is "
            "what these counts can show, not how many components there are."
        )
        if self.best_rank == 1:
            found.append(
                "No larger model predicts clearly better than the row and column sums. Either "
                f"there is no structure, or there are too few counts to see it. {few}"
            )
        elif self.background[chosen] >= MUCH_BACKGROUND:
            found.append(
                "A sample has few counts from which to learn its own mixture of components: "
                f"predictions are best if {self.background[chosen]:.0%} of each comes from the "
                f"mean of all samples. {few}"
            )
        if 1 < self.best_rank == self.ranks[0] and len(self.ranks) > 1:
            found.append(
                f"{self.best_rank} is the smallest rank tried. Smaller ones may predict as well: "
                "try them, and rank 1, which says whether there is any structure."
            )
        if len(self.ranks) == 1:
            found.append("Only this rank was tried, so there is nothing to compare it with.")
        elif self.is_at_the_edge:
            found.append(
                f"The deviance was still falling at rank {self.ranks[-1]}, the largest one tried. "
                "Larger ranks may predict better. In real data finer and finer components often "
                "do, and there is no true number of them."
            )
        if not self.is_complete:
            found.append(
                f"The search stopped early at rank {self.ranks[-1]}, because the deviance had "
                "clearly risen."
            )
        if self.stable_rank < self.best_rank:
            found.append(self._for_reading())
        return found

    def _for_reading(self) -> str:
        if self.stability[self.ranks == self.stable_rank] >= STABLE:
            return (
                f"For reading: {self.stable_rank}, the largest rank up to the choice with a "
                f"stability of at least {STABLE:g}. Beyond it, other samples give other components."
            )
        return (
            f"No rank above 1 up to the choice has a stability of at least {STABLE:g}: other "
            f"samples give other components. For reading, take few: {self.stable_rank}, the "
            "smallest tried."
        )


def stable_rank(ranks: npt.NDArray[np.int64], stability: FloatArray, best_rank: int) -> int:
    """Return the largest rank up to the best one that has a stability of at least 0.9.

    Without any it is the smallest rank. Rank 1 does not count if the best one is larger: the mean
    of all samples is always stable, and there is nothing to read in it.

    Examples
    --------
    >>> stable_rank(np.array([1, 2, 4, 8, 16]), np.array([1.0, 0.8, 0.93, 0.85, 0.95]), 8)
    4
    >>> stable_rank(np.array([1, 2, 4]), np.array([1.0, 0.8, 0.7]), 4)
    2
    """
    readable = (ranks <= best_rank) & (ranks >= min(2, best_rank))
    agree = readable & (stability >= STABLE)
    return int(ranks[agree][-1] if agree.any() else ranks[readable][0])


def _column(entries: list[Any], length: int, name: str) -> FloatArray:
    """Return the numbers of a column, with NaN for null."""
    numbers = [math.nan if entry is None else entry for entry in entries]
    if len(numbers) != length or not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"{name} is not a list of {length} numbers")
    if not all(abs(number) < 2**53 for number in numbers if type(number) is int):
        raise ValueError(f"{name} has a number that is too large")
    return np.array(numbers, dtype=np.float64)
