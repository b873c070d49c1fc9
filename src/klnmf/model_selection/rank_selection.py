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
from klnmf.support.untrusted_json import read_json
from klnmf.support.whole_files import writing

FORMAT = "klnmf rank selection"
VERSION = 1
_WHOLE = ("best_rank", "lowest_rank", "n_splits", "random_state", "n_samples", "n_features")
_COLUMNS = ("deviance", "difference", "standard_error", "stability", "background", "seconds")


@dataclass(frozen=True, eq=False)
class RankSelection:
    """Held-out deviances of ranks, as returned by `klnmf.model_selection.select_rank`.

    It prints as a table that marks the chosen rank.

    Attributes
    ----------
    best_rank : int
        The chosen rank: the smallest one within one standard error of the lowest deviance.
    lowest_rank : int
        The rank with the lowest held-out deviance.
    ranks : ndarray of int
        Ranks that were fitted, in increasing order.
    deviance : ndarray of float
        Held-out Poisson deviance per sample at each rank; lower is better.
    difference, standard_error : ndarray of float
        Deviance minus that of ``lowest_rank``, and the standard error of this difference.
    stability : ndarray of float
        Mean cosine similarity of matched components from two splits; NaN for a single split. New
        data would agree less, because splits share most of their counts. Where the stability drops,
        the data no longer determine the components.
    background : ndarray of float
        Share of the rates that is spread over all features, for each rank.
    seconds : ndarray of float
        Total time of all fits of a rank.
    is_complete : bool
        Whether all requested ranks were fitted; False if the search stopped early.
    method : {"thinning", "speckled"}
        How data were held out.
    n_splits, train_fraction, random_state
        As passed to `select_rank`; ``random_state`` is the seed that was used.
    n_samples, n_features : int
        Size of the data.
    """

    best_rank: int
    lowest_rank: int
    ranks: npt.NDArray[np.int64]
    deviance: FloatArray
    difference: FloatArray
    standard_error: FloatArray
    stability: FloatArray
    background: FloatArray
    seconds: FloatArray
    is_complete: bool
    method: str
    n_splits: int
    train_fraction: float
    random_state: int
    n_samples: int
    n_features: int

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
        """Plot deviance and stability by rank with `klnmf.plots.plot_rank_selection`.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from klnmf.plots import plot_rank_selection

        return plot_rank_selection(self, ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the result to a JSON file for `load`.

        Parameters
        ----------
        path : str or path
            File to write.
        """
        content = {
            name: [None if entry != entry else entry for entry in value.tolist()]  # NaN is null
            if isinstance(value, np.ndarray)
            else value
            for name, value in asdict(self).items()
        }
        text = json.dumps({"format": FORMAT, "version": VERSION, **content}, indent=1)
        with writing(path) as stream:
            stream.write((text + "\n").encode())

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
            return cls._from_json(Fields(read_json(Path(path)), "content"))
        except ValueError as error:
            raise SavedFileError(
                f"{path} is not a rank selection saved by klnmf, or it is damaged ({error})."
            ) from error

    @classmethod
    def _from_json(cls, stored: Fields) -> RankSelection:
        if stored.take("format", str) != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        if stored.whole("version") != VERSION:
            raise ValueError(f"its version is {stored.whole('version')}, not {VERSION}")
        ranks = stored.take("ranks", list)
        if not ranks or not all(type(rank) is int and 0 < rank < 2**53 for rank in ranks):
            raise ValueError("its ranks are not positive whole numbers")
        values: dict[str, Any] = {name: stored.whole(name) for name in _WHOLE}
        for name in _COLUMNS:
            values[name] = _column(stored.take(name, list), len(ranks), name)
        for name in ("best_rank", "lowest_rank"):
            if values[name] not in ranks:
                raise ValueError(f"{name} is {values[name]}, which is not one of its ranks")
        return cls(
            ranks=np.array(ranks, dtype=np.int64),
            is_complete=stored.take("is_complete", bool),
            method=stored.take("method", str),
            train_fraction=stored.number("train_fraction"),
            **values,
        )

    def __str__(self) -> str:
        """Return the table and the remarks."""
        lines = ["rank   deviance  above lowest  (± s.e.)   stability"]
        for i, rank in enumerate(self.ranks):
            mark = "  <- best" if rank == self.best_rank else ""
            mark += "  (lowest)" if rank == self.lowest_rank != self.best_rank else ""
            stability = "–" if np.isnan(self.stability[i]) else f"{self.stability[i]:.3f}"
            lines.append(
                f"{rank:4d} {self.deviance[i]:10.4g} {self.difference[i]:13.3g}  "
                f"(± {self.standard_error[i]:.2g})".ljust(42)
                + f"{stability:>9}{mark}"
            )
        return "\n".join([*lines, "", *(textwrap.fill(remark, 88) for remark in self.remarks())])

    def remarks(self) -> list[str]:
        """Return sentences that explain the choice and its limits."""
        percentage = f"{100 * self.train_fraction:.3g}%"
        how = f"{percentage} of the counts"
        if self.method != "thinning":
            how = f"at least {percentage} of the cells; the others were hidden"
        found = [
            f"Chosen rank: {self.best_rank}, the smallest within one standard error of the lowest "
            f"held-out deviance (rank {self.lowest_rank}). Number of splits: {self.n_splits}. Each "
            f"model was fitted to {how}."
        ]
        if self.is_at_the_edge:
            found.append(
                f"The deviance was still falling at rank {self.ranks[-1]}, the largest one tried. "
                "Try larger ranks."
            )
        if not self.is_complete:
            found.append(
                f"The search stopped early at rank {self.ranks[-1]}, because the deviance had "
                "clearly risen."
            )
        return found


def _column(entries: list[Any], length: int, name: str) -> FloatArray:
    """Return the numbers of a column, with NaN for null."""
    numbers = [math.nan if entry is None else entry for entry in entries]
    if len(numbers) != length or not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"{name} is not a list of {length} numbers")
    if not all(abs(number) < 2**53 for number in numbers if type(number) is int):
        raise ValueError(f"{name} has a number that is too large")
    return np.array(numbers, dtype=np.float64)
