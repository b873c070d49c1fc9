"""The state of a rank search: finished fits, their results, and the next fit.

All folds of a rank are fitted before the next rank, so that the search can stop when the deviance
has clearly risen, and so that the components of the folds can be compared. Only the last fit of
each fold is kept; the next one starts from it.

The search goes up through the ranks, and then back to the smallest one by merging components. A
rank keeps the fits of the way up or of the way back, whichever have the lower objective on the
training data; held-out data are not used for that. If the deviance has then no longer clearly
risen, the search continues upwards.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.estimators.checked_counts import ConstrainedCounts
from klnmf.model_selection.growth import Factors
from klnmf.model_selection.hold_out import Fold, fold_of_samples
from klnmf.support.array_types import Array, FloatArray
from klnmf.topics import match_components

# The data of all folds stay in memory if they take no more than this. Otherwise they are selected
# again for each fit.
KEPT_BYTES = 1 << 30
_BYTES_PER_NONZERO = 40
# The search stops when this many ranks in a row are worse than the best one by more than this many
# standard errors.
RISEN_RANKS = 3
RISEN_ERRORS = 2.0


def is_small(X: sp.csr_array, n_splits: int) -> bool:
    """Whether the training data of all folds may stay in memory."""
    return bool(_BYTES_PER_NONZERO * X.nnz * n_splits <= KEPT_BYTES)


class Step(NamedTuple):
    """A fit of one fold with one rank."""

    factors: Factors
    deviances: FloatArray  # for each background and sample of the fold
    objective: float  # on the training data
    seconds: float


@dataclass(frozen=True)
class Plan:
    """The settings of a search."""

    counts: ConstrainedCounts
    ranks: tuple[int, ...]
    n_splits: int  # at most the number of samples
    backgrounds: tuple[float, ...]  # each rank takes the best one
    seed: int
    n_threads: int
    backend: str = "auto"

    @cached_property
    def folds(self) -> Array:
        """Fold of each sample."""
        return fold_of_samples(self.counts.X.shape[0], self.n_splits, self.seed)


@dataclass
class Search:
    """The progress of a search, with everything needed to continue it."""

    plan: Plan
    factors: list[Factors | None]  # the last fit of each fold
    current: dict[int, Step] = field(default_factory=dict)  # of this rank, by fold
    of_samples: list[FloatArray] = field(default_factory=list)  # deviances of each rank
    seconds: list[FloatArray] = field(default_factory=list)  # of each rank and fold
    stability: list[float] = field(default_factory=list)  # of each rank
    backgrounds: list[float] = field(default_factory=list)  # of each rank
    objectives: list[float] = field(default_factory=list)  # of each rank, sum over the folds
    back: int | None = None  # index of the rank that is fitted on the way back
    top: list[Factors | None] = field(default_factory=list)  # where the way back began
    n_swept: int = 0  # number of ranks at that time
    n_fits: int = 0  # all fits so far
    _kept: dict[int, Fold] = field(default_factory=dict)

    @classmethod
    def new(cls, plan: Plan) -> Search:
        """Return a search that has done nothing yet."""
        return cls(plan, [None] * plan.n_splits)

    @property
    def n_ranks_done(self) -> int:
        """Ranks whose folds are all fitted."""
        return len(self.of_samples)

    @property
    def is_complete(self) -> bool:
        """Whether all ranks were fitted."""
        return self.n_ranks_done == len(self.plan.ranks)

    @property
    def rank(self) -> int:
        """Rank that is being fitted."""
        return self.plan.ranks[self.n_ranks_done if self.back is None else self.back]

    @property
    def end_of_way_back(self) -> int:
        """Index of the last rank on the way back.

        Rank 1 is optimal already, and without a free component there is nothing to merge.
        """
        return int(self.plan.ranks[0] == max(1, self.plan.counts.n_fixed))

    @property
    def ranks_ahead(self) -> list[int]:
        """Ranks of the remaining fits without early stopping: the way up and one way back."""
        ranks, lowest = self.plan.ranks, self.end_of_way_back
        turn = self.n_swept - 1 if self.back is not None else len(ranks) - 1
        first = turn - 1 if self.back is None else self.back
        ahead = [*ranks[self.n_ranks_done :]] if self.back is None else []
        if self.back is not None or self.n_swept < len(ranks):
            ahead += reversed(ranks[lowest : first + 1])
        every = [rank for rank in ahead for _ in range(self.plan.n_splits)]
        return every[len(self.current) :]

    @property
    def splits_to_do(self) -> list[int]:
        """Folds that are not yet fitted with this rank."""
        return [split for split in range(self.plan.n_splits) if split not in self.current]

    def seconds_left(self, jobs: int) -> float | None:
        """Seconds to the end of all ranks, as if the time of a fit grew with its rank.

        None before the first measurement: rank 1 has a closed form and says nothing.
        """
        done = list(zip(self.plan.ranks, self.seconds, strict=False))
        if self.back is None:
            done += [(self.rank, np.array([step.seconds])) for step in self.current.values()]
        measured = [(rank * len(times), times.sum()) for rank, times in done if rank > 1]
        if not self.ranks_ahead:
            return 0.0
        if not measured:
            return None
        of_ranks, seconds = np.sum(measured, axis=0)
        return float(sum(self.ranks_ahead) * seconds / of_ranks / min(jobs, self.plan.n_splits))

    def record(self, rank: int, split: int, step: Step, jobs: int) -> dict[str, Any]:
        """Return what a callback is told of a step."""
        return {
            "rank": rank,
            "split": split,
            "deviance": float(step.deviances.mean(axis=1).min()),
            "seconds": step.seconds,
            "seconds_left": self.seconds_left(jobs),
            "n_done": self.n_fits,
            "n_fits": self.n_fits + len(self.ranks_ahead),
        }

    def step(self, split: int) -> Step:
        """Fit one fold with this rank; the search is not changed, so threads can do several."""
        started = time.perf_counter()
        data = self._split(split)
        seed = [self.plan.seed, split, self.rank]
        last = self.factors[split]
        if self.back is None or last is None:
            factors = data.fitted(last, self.rank, seed)
        else:
            factors = data.merged(last, self.rank, [*seed, self.n_swept])
        deviances = data.deviances(factors, self.plan.backgrounds)
        return Step(factors, deviances, data.objective(factors), time.perf_counter() - started)

    def _split(self, split: int) -> Fold:
        if split in self._kept:
            return self._kept[split]
        plan = self.plan
        data = Fold(plan.counts, plan.folds == split, plan.seed, plan.n_threads, plan.backend)
        if is_small(plan.counts.X, plan.n_splits):
            self._kept[split] = data
        return data

    def accept(self, split: int, step: Step) -> None:
        """Add the result of a step; the last fold completes the rank."""
        self.factors[split] = step.factors
        self.current[split] = step
        self.n_fits += 1
        if self.splits_to_do:
            return
        steps = [self.current[split] for split in range(self.plan.n_splits)]
        objective = sum(each.objective for each in steps)
        seconds = np.array([each.seconds for each in steps])
        self.current = {}
        if self.back is None:
            self._note(self.n_ranks_done, steps, objective, seconds)
            return
        seconds += self.seconds[self.back]
        if objective < self.objectives[self.back]:
            self._note(self.back, steps, objective, seconds)
        else:
            self.seconds[self.back] = seconds
        self.back -= 1
        if self.back < self.end_of_way_back:
            self.back, self.factors, self.top = None, self.top, []

    def _note(
        self, position: int, steps: list[Step], objective: float, seconds: FloatArray
    ) -> None:
        """Store the results of a rank in place of earlier ones."""
        by_background = np.empty((len(self.plan.backgrounds), len(self.plan.folds)))
        for split, step in enumerate(steps):
            by_background[:, self.plan.folds == split] = step.deviances
        best = int(np.argmin(by_background.mean(axis=1)))
        models = [self._split(k).free_components(step.factors).T for k, step in enumerate(steps)]
        for column, value in (
            (self.backgrounds, self.plan.backgrounds[best]),
            (self.of_samples, by_background[best]),
            (self.seconds, seconds),
            (self.stability, agreement(models)),
            (self.objectives, objective),
        ):
            column[position : position + 1] = [value]  # type: ignore[list-item]

    def goes_on(self, early_stop: bool) -> bool:
        """Change direction if it is time; return whether there is anything left to do."""
        if self.back is not None or self.current:
            return True
        has_risen = early_stop and self.n_ranks_done > 0 and self.comparison().has_clearly_risen
        if not self.is_complete and not has_risen:
            return True
        n_new = self.n_ranks_done - self.n_swept
        if n_new == 0:
            return False
        # A way back for every rank or two would take longer than all else.
        if self.n_swept and not self.is_complete and n_new < max(RISEN_RANKS, self.n_swept // 4):
            return True
        self.n_swept = self.n_ranks_done
        if self.n_ranks_done - 2 < self.end_of_way_back:
            return False
        self.back, self.top = self.n_ranks_done - 2, list(self.factors)
        return True

    def comparison(self) -> Comparison:
        """Compare the ranks that are done."""
        return compared(np.array(self.of_samples), self.plan.folds)


def agreement(models: list[npt.NDArray[Any]]) -> float:
    """Mean cosine similarity of matched components over all pairs of models; NaN without any.

    Examples
    --------
    >>> import numpy as np
    >>> agreement([np.eye(3), np.eye(3)[::-1]])
    1.0
    """
    pairs = list(combinations(models, 2))
    if not pairs or not len(models[0]):
        return float("nan")
    return float(np.mean([match_components(*pair).similarity.mean() for pair in pairs]))


# ---- choice of a rank ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Each rank compared with the one of lowest deviance; arrays have one entry per rank."""

    deviance: FloatArray  # mean over the samples
    difference: FloatArray  # deviance − lowest deviance
    standard_error: FloatArray  # of the difference; 0 for the lowest itself
    lowest: int  # index of the lowest deviance
    chosen: int  # index of the chosen rank

    @property
    def has_clearly_risen(self) -> bool:
        """Whether the last ranks are all clearly worse than an earlier one."""
        last = slice(-RISEN_RANKS, None)
        return bool(
            len(self.difference) - self.lowest > RISEN_RANKS
            and np.all(self.difference[last] > RISEN_ERRORS * self.standard_error[last])
        )


def compared(of_samples: FloatArray, folds: Array) -> Comparison:
    """Choose the smallest rank within one standard error of the lowest deviance.

    ``of_samples`` (n_ranks × n_samples) are held-out deviances. The differences between two ranks
    have a spread over the samples, which gives a standard error of their mean if samples are
    independent. They are not quite, because the samples of a fold share a fit, which may have ended
    in a bad optimum. The spread of the means of the ``folds`` includes that, but there are few of
    them. The larger of the two estimates is used.

    Examples
    --------
    >>> import numpy as np
    >>> of_samples = np.array([[5.0, 6.0, 7.0], [4.0, 4.2, 4.1], [4.1, 4.1, 4.05]])
    >>> compared(of_samples, folds=np.array([0, 1, 2])).chosen
    1
    """
    deviance = of_samples.mean(axis=1)
    lowest = int(np.argmin(deviance))
    differences = of_samples - of_samples[lowest]
    sizes = np.bincount(folds)
    of_folds = np.array([np.bincount(folds, weights=row) / sizes for row in differences])
    squared = np.maximum(_squared_error(differences), _squared_error(of_folds))
    difference = deviance - deviance[lowest]
    chosen = int(np.flatnonzero(difference <= np.sqrt(squared))[0])
    return Comparison(deviance, difference, np.sqrt(squared), lowest, chosen)


def _squared_error(values: FloatArray) -> FloatArray:
    """Squared standard error of the row means."""
    return np.asarray(values.var(axis=1, ddof=1) / values.shape[1])
