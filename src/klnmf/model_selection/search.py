"""The way through ranks and splits: which fits were done, what they gave, which one is next.

All splits of a rank come before the next rank, so that the search can stop when the deviance has
clearly risen, and so that the components of the splits can be compared while they are at hand. Of
every split only the last fit is kept: the next one starts from it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.model_selection.choice import Comparison, compared
from klnmf.model_selection.growth import Factors
from klnmf.model_selection.speckles import SpeckledSplit
from klnmf.model_selection.thinning import ThinnedSplit
from klnmf.topics import match_components

FloatArray = npt.NDArray[np.float64]

METHODS = {"thinning": ThinnedSplit, "speckled": SpeckledSplit}

# The data of all splits stay in memory while they take no more than this; else they are drawn anew,
# the same ones, for each fit.
KEPT_BYTES = 1 << 30
_BYTES_PER_NONZERO = 40


def is_small(X: sp.csr_array, n_splits: int) -> bool:
    """Whether the data of all splits may stay in memory."""
    return bool(_BYTES_PER_NONZERO * X.nnz * n_splits <= KEPT_BYTES)


class Step(NamedTuple):
    """One fit: of one split with one rank."""

    factors: Factors
    deviances: FloatArray  # held-out, for each background and sample
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What the search is about; nothing here changes."""

    X: sp.csr_array
    ranks: tuple[int, ...]
    n_splits: int
    train_fraction: float
    backgrounds: tuple[float, ...]  # of which each rank gets the best
    method: str
    seed: int
    n_threads: int


@dataclass
class Search:
    """Where the search has come to: enough to go on, from memory or from a file, to the end."""

    plan: Plan
    factors: list[Factors | None]  # the last fit of each split
    current: dict[int, tuple[FloatArray, float]] = field(default_factory=dict)  # of this rank
    of_samples: list[FloatArray] = field(default_factory=list)  # of each rank, mean over the splits
    of_splits: list[FloatArray] = field(default_factory=list)  # of each rank, mean over the samples
    seconds: list[FloatArray] = field(default_factory=list)  # of each rank and split
    stability: list[float] = field(default_factory=list)  # of each rank
    backgrounds: list[float] = field(default_factory=list)  # of each rank
    _kept: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def new(cls, plan: Plan) -> Search:
        """Return a search that has done nothing yet."""
        return cls(plan, [None] * plan.n_splits)

    @property
    def n_ranks_done(self) -> int:
        """Ranks whose splits are all fitted."""
        return len(self.of_samples)

    @property
    def is_complete(self) -> bool:
        """Whether every rank was fitted."""
        return self.n_ranks_done == len(self.plan.ranks)

    @property
    def rank(self) -> int:
        """Rank that is being fitted."""
        return self.plan.ranks[self.n_ranks_done]

    @property
    def splits_to_do(self) -> list[int]:
        """Splits that are not yet fitted with this rank."""
        return [split for split in range(self.plan.n_splits) if split not in self.current]

    def step(self, split: int) -> Step:
        """Fit one split with this rank; changes nothing, so that several can be done at once."""
        started = time.perf_counter()
        data = self._split(split)
        factors = data.fitted(self.factors[split], self.rank, [self.plan.seed, split, self.rank])
        deviances = data.deviances(factors, self.plan.backgrounds)
        return Step(factors, deviances, time.perf_counter() - started)

    def _split(self, split: int) -> Any:
        if split in self._kept:
            return self._kept[split]
        plan = self.plan
        seed = [plan.seed, split]
        data = METHODS[plan.method](plan.X, plan.train_fraction, seed, plan.n_threads)
        if is_small(plan.X, plan.n_splits):
            self._kept[split] = data
        return data

    def accept(self, split: int, step: Step) -> None:
        """Note what a step gave; with the last split the rank is done."""
        self.factors[split] = step.factors
        self.current[split] = (step.deviances, step.seconds)
        if self.splits_to_do:
            return
        by_split = [self.current[split] for split in range(self.plan.n_splits)]
        by_background = np.array([deviances for deviances, _ in by_split]).swapaxes(0, 1)
        best = int(np.argmin(by_background.mean(axis=(1, 2))))
        deviances = by_background[best]
        self.backgrounds.append(self.plan.backgrounds[best])
        self.of_samples.append(deviances.mean(axis=0))
        self.of_splits.append(deviances.mean(axis=1))
        self.seconds.append(np.array([seconds for _, seconds in by_split]))
        self.stability.append(agreement([pair[1].T for pair in self.factors if pair is not None]))
        self.current = {}

    def comparison(self) -> Comparison:
        """Compare the ranks that are done."""
        return compared(np.array(self.of_samples), np.array(self.of_splits))


def agreement(models: list[npt.NDArray[Any]]) -> float:
    """Mean cosine similarity of matched components over all pairs of models; NaN for one model.

    Examples
    --------
    >>> import numpy as np
    >>> agreement([np.eye(3), np.eye(3)[::-1]])
    1.0
    """
    pairs = list(combinations(models, 2))
    if not pairs:
        return float("nan")
    return float(np.mean([match_components(*pair).similarity.mean() for pair in pairs]))
