"""What `select_rank` returns: a table, a choice, a picture, a file."""

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
from klnmf.support.untrusted_json import read_json
from klnmf.support.whole_files import writing

FloatArray = npt.NDArray[np.float64]

FORMAT = "klnmf rank selection"
VERSION = 1
_WHOLE = ("best_rank", "lowest_rank", "n_splits", "random_state", "n_samples", "n_features")
_COLUMNS = ("deviance", "difference", "standard_error", "stability", "background", "seconds")


@dataclass(frozen=True, eq=False)
class RankSelection:
    """Ranks compared by held-out deviance; `klnmf.model_selection.select_rank` makes it.

    Printed, it is a table with the choice marked.

    Attributes
    ----------
    best_rank : int
        The choice: the smallest rank whose deviance is not above the lowest one by more than one
        standard error of the difference.
    lowest_rank : int
        The rank of lowest held-out deviance.
    ranks : ndarray of int
        Ranks that were fitted, rising.
    deviance : ndarray of float
        Mean held-out Poisson deviance of a sample at each rank: lower is better.
    difference, standard_error : ndarray of float
        Deviance above that of ``lowest_rank``, and the standard error of this difference.
    stability : ndarray of float
        Mean cosine similarity of the components of two splits, matched; 1 is the same. NaN for a
        single split. Splits share most of their counts, so that this is an upper bound of what new
        data would show; where it falls, the components are not determined any more.
    background : ndarray of float
        Share of the rates that was spread over all features, for each rank.
    seconds : ndarray of float
        Time of all fits of a rank together.
    is_complete : bool
        Whether every rank that was asked for was fitted; if not, the deviance had clearly risen.
    method : {"thinning", "speckled"}
        How data were held out.
    n_splits, train_fraction, random_state
        As given to `select_rank`; ``random_state`` is the seed in use.
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
        """Whether the largest rank was the best: larger ones may be better still."""
        return bool(self.is_complete and self.lowest_rank == self.ranks[-1])

    def table(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the table by name; ``pandas.DataFrame`` takes them as they are.

        Returns
        -------
        dict of ndarray
            rank, deviance, difference, standard_error, stability, background, seconds, is_best.
        """
        columns = {name: getattr(self, name) for name in _COLUMNS}
        return {"rank": self.ranks, **columns, "is_best": self.ranks == self.best_rank}

    def plot(self, ax: Any = None) -> Any:
        """Draw deviance and stability against rank: `klnmf.plots.plot_rank_selection`.

        Parameters
        ----------
        ax : matplotlib Any, optional
            Where to draw; by default a new figure.

        Returns
        -------
        ax : matplotlib Axes
            The axes drawn on.
        """
        from klnmf.plots import plot_rank_selection

        return plot_rank_selection(self, ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file that `load` reads.

        Parameters
        ----------
        path : str or path
            File to write; it appears under this name when it is whole.
        """
        content = {
            name: [_to_json(entry) for entry in value] if isinstance(value, np.ndarray) else value
            for name, value in asdict(self).items()
        }
        text = json.dumps({"format": FORMAT, "version": VERSION, **content}, indent=1)
        with writing(path) as stream:
            stream.write((text + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RankSelection:
        """Read a file that `save`, or ``klnmf rank``, wrote.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        RankSelection
        """
        try:
            return cls._from_json(read_json(Path(path)))
        except ValueError as error:
            raise SavedFileError(
                f"{path} is not a rank selection that klnmf wrote, or it is damaged ({error})."
            ) from error

    @classmethod
    def _from_json(cls, content: Any) -> RankSelection:
        stored = Fields(content, "content")
        if stored.take("format", str) != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        if stored.whole("version") != VERSION:
            raise ValueError(f"version {stored.whole('version')} instead of {VERSION}")
        ranks = stored.take("ranks", list)
        if not ranks or not all(type(rank) is int and 0 < rank < 2**53 for rank in ranks):
            raise ValueError("its ranks are not positive whole numbers")
        values: dict[str, Any] = {"ranks": np.array(ranks, dtype=np.int64)}
        for name in _COLUMNS:
            values[name] = _column(stored.take(name, list), len(ranks), name)
        for name in _WHOLE:
            values[name] = stored.whole(name)
        for name in ("best_rank", "lowest_rank"):
            if values[name] not in ranks:
                raise ValueError(f"{name} is {values[name]}, which is none of its ranks")
        return cls(
            is_complete=stored.take("is_complete", bool),
            method=stored.take("method", str),
            train_fraction=stored.number("train_fraction"),
            **values,
        )

    def __str__(self) -> str:
        """Return the table and the choice in words."""
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
        """Say in words what was chosen, how, and what to keep in mind."""
        how = (
            f"{100 * self.train_fraction:.3g} % of the counts"
            if self.method == "thinning"
            else f"the cells that are not hidden, {100 * self.train_fraction:.3g} % or more"
        )
        found = [
            f"{self.best_rank} component{'s' if self.best_rank != 1 else ''}: the fewest within "
            f"one standard error of the lowest held-out deviance, which {self.lowest_rank} "
            f"ha{'ve' if self.lowest_rank != 1 else 's'}; {self.n_splits} "
            f"split{'s' if self.n_splits != 1 else ''}, each fitted to {how}."
        ]
        if self.is_at_the_edge:
            found.append(
                f"The deviance was still falling at {self.ranks[-1]}, the largest rank tried: "
                "larger ones may be better."
            )
        if not self.is_complete:
            found.append(f"Beyond {self.ranks[-1]} nothing was tried: it had clearly risen.")
        return found


def _column(entries: list[Any], length: int, name: str) -> FloatArray:
    """Numbers of a column; null stands for NaN."""
    numbers = [math.nan if entry is None else entry for entry in entries]
    if len(numbers) != length or not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"{name} is not a list of {length} numbers")
    if not all(abs(number) < 2**53 for number in numbers if type(number) is int):
        raise ValueError(f"{name} has a number that is too large")
    return np.array(numbers, dtype=np.float64)


def _to_json(value: Any) -> Any:
    number = value.item()
    return None if number != number else number
