"""Checkpoints of rank searches and of consensus runs, to resume them with the same result."""

from typing import Any, NamedTuple

import numpy as np

from klnmf.constraints.penalties import factor_name
from klnmf.data.tensor_data import data_in_memory
from klnmf.estimators.work_file import WorkFile
from klnmf.model_selection.growth import Factors
from klnmf.model_selection.search import Plan, Search, Step
from klnmf.saved.arrays import FLOATS, INDICES, array_named, nonnegative, shaped_array
from klnmf.saved.container import Container, SavedFileError
from klnmf.saved.fields import Fields, shortened
from klnmf.saved.periodic_file import data_identity
from klnmf.support.array_types import Array

# Largest absolute value of deviances, objectives and seconds, and their rounding errors below 0.
_LARGEST, _ROUNDING = 1e100, 1e-6
_SIGNED = ("objectives", "current_objectives", "stability")


# ---- consensus -----------------------------------------------------------------------------------


class EndOfRun(NamedTuple):
    """The result of a run."""

    # n_components × n_features, float32, each of Euclidean length 1; of a tensor, the modes after
    # the first side by side, each of the same length.
    components: Array
    objective: float


Ends = dict[int, EndOfRun]  # by the number of the run


class Runs(NamedTuple):
    """The finished runs of a consensus by number; more of them can be added later."""

    identity: dict[str, Any]
    seed: int
    fits: Ends
    null_fits: Ends


class RunsFile(WorkFile[Runs]):
    """The checkpoint of the runs of a consensus."""

    kind, work_name = "consensus runs", "consensus"

    def identity(self, work: Runs) -> dict[str, Any]:
        """See :class:`WorkFile`."""
        return work.identity

    def packed(self, work: Runs) -> Container:
        """See :class:`PeriodicFile`."""
        arrays: dict[str, Array] = {}
        rank, width = work.identity["n_components"], sum(work.identity["shape of X"][1:])
        for prefix, done in (("", work.fits), ("null_", work.null_fits)):
            numbers = sorted(done)
            spectra = np.array([done[run].components for run in numbers], dtype=np.float32)
            arrays[f"{prefix}runs"] = np.array(numbers, dtype=np.int64)
            arrays[f"{prefix}objectives"] = np.array([done[run].objective for run in numbers])
            arrays[f"{prefix}spectra"] = spectra.reshape(len(numbers) * rank, width)
        return Container(self.kind, {"identity": work.identity, "seed": work.seed}, arrays)

    def unpacked(self, work: Runs, content: Fields, arrays: dict[str, Array]) -> Runs:
        """See :class:`WorkFile`."""
        has_null = "null_runs" in arrays  # files of older versions have none
        return work._replace(
            fits=_unpacked_fits(work, arrays, ""),
            null_fits=_unpacked_fits(work, arrays, "null_") if has_null else {},
        )


def _unpacked_fits(work: Runs, arrays: dict[str, Array], prefix: str) -> Ends:
    numbers = array_named(arrays, f"{prefix}runs", INDICES, 1)
    n, rank = len(numbers), work.identity["n_components"]
    width = sum(work.identity["shape of X"][1:])
    objectives = shaped_array(arrays, f"{prefix}objectives", (n,)).tolist()
    spectra = shaped_array(arrays, f"{prefix}spectra", (n * rank, width))
    nonnegative(spectra, f"{prefix}spectra")
    if len(np.unique(numbers)) < n:
        raise SavedFileError("it holds a run twice.")
    fits = map(EndOfRun, spectra.reshape(n, rank, width), objectives)
    return dict(zip(numbers.tolist(), fits, strict=True))


# ---- rank search ---------------------------------------------------------------------------------

_OF_RANKS = ("of_samples", "seconds", "stability", "backgrounds", "objectives")


class SearchFile(WorkFile[Search]):
    """The checkpoint of a rank search."""

    kind, work_name = "rank search", "search"

    def identity(self, work: Search) -> dict[str, Any]:
        """See :class:`WorkFile`."""
        plan = work.plan
        constraints = plan.counts.constraints
        return data_identity(data_in_memory(plan.counts.X)) | {
            "ranks": list(plan.ranks),
            "n_splits": plan.n_splits,
            "backgrounds": list(plan.backgrounds),
            "penalties": plan.counts.penalties.by_name,
            "constraints": constraints.names,
            # In older versions, weights did not multiply the deviances.
            **({"weights": "of deviances"} if constraints.sample_weight is not None else {}),
            "checksum of constraints": constraints.checksum,
        }

    def packed(self, work: Search) -> Container:
        """See :class:`PeriodicFile`."""
        splits = sorted(work.current)
        steps = [work.current[split] for split in splits]
        values = {name: getattr(work, name) for name in _OF_RANKS} | {
            "current_objectives": [step.objective for step in steps],
            "current_seconds": [step.seconds for step in steps],
        }
        arrays: dict[str, Array] = {
            name: np.array(values[name]).reshape(shape)
            for name, shape in _shapes(work.plan, work.n_ranks_done, len(splits)).items()
        }
        for split, step in zip(splits, steps, strict=True):
            arrays[f"deviances{split}"] = step.deviances
        for prefix, pairs in (("", work.factors), ("top_", work.top)):
            for split, factors in enumerate(pairs):
                for mode, factor in enumerate(factors or ()):
                    arrays[f"{prefix}{factor_name(mode)}{split}"] = factor
        content = {
            "identity": self.identity(work),
            "seed": work.plan.seed,
            "current_splits": splits,
            "back": work.back,
            "n_swept": work.n_swept,
            "n_fits": work.n_fits,
        }
        return Container(self.kind, content, arrays)

    def unpacked(self, work: Search, content: Fields, arrays: dict[str, Array]) -> Search:
        """See :class:`WorkFile`."""
        search, plan = work, work.plan
        done = min(len(array_named(arrays, "of_samples", FLOATS, 2)), len(plan.ranks))
        splits = content.take("current_splits", list)
        if splits != [split for split in range(plan.n_splits) if split in splits]:
            raise SavedFileError(f"the current splits are {shortened(splits)}.")
        shapes = _shapes(plan, done, len(splits)) | {
            f"deviances{split}": (len(plan.backgrounds), _n_test(plan, split)) for split in splits
        }
        found = {name: shaped_array(arrays, name, shape) for name, shape in shapes.items()}
        _check_numbers(found)
        for name in _OF_RANKS:
            column = found[name]
            setattr(search, name, column.tolist() if column.ndim == 1 else list(column))
        search.n_swept, search.n_fits = content.whole("n_swept"), content.whole("n_fits")
        if content.members.get("back") is not None:
            search.back, first = content.whole("back"), search.end_of_way_back
            if not first <= search.back < done - 1:
                raise SavedFileError(
                    f"content.back is {search.back}; it must be from {first} to {done - 2}."
                )
            search.top = [
                _factors(plan, split, arrays, "top_", plan.ranks[done - 1])
                for split in range(plan.n_splits)
            ]
        for split in range(plan.n_splits):
            if search.back is None:
                position = done - 1 + (split in splits)
            else:
                position = search.back + (split not in splits)
            if position >= 0:
                search.factors[split] = _factors(plan, split, arrays, "", plan.ranks[position])
        by_split = [found[f"deviances{split}"] for split in splits]
        numbers = (found[f"current_{name}"].tolist() for name in ("objectives", "seconds"))
        steps = map(Step, (search.factors[split] for split in splits), by_split, *numbers)
        search.current = dict(zip(splits, steps, strict=True))
        return search


def _shapes(plan: Plan, n_ranks: int, n_current: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of a search with these numbers of finished ranks and current splits."""
    return {
        "of_samples": (n_ranks, plan.counts.X.shape[0]),
        "seconds": (n_ranks, plan.n_splits),
        **dict.fromkeys(("stability", "backgrounds", "objectives"), (n_ranks,)),
        **dict.fromkeys(("current_objectives", "current_seconds"), (n_current,)),
    }


def _n_test(plan: Plan, split: int) -> int:
    return int(np.sum(plan.folds == split))


def _check_numbers(found: dict[str, Array]) -> None:
    """Refuse numbers that no fit gives, and whose squares and sums would not be finite."""
    for name, array in found.items():
        # Without free components there is no stability.
        numbers = array[~np.isnan(array)] if name == "stability" else array
        least = -_LARGEST if name in _SIGNED else -_ROUNDING
        if not ((numbers >= least) & (numbers <= _LARGEST)).all():  # false for NaN
            raise SavedFileError(f"{name} has numbers that are negative, too large or not finite.")


def _factors(plan: Plan, split: int, arrays: dict[str, Array], prefix: str, rank: int) -> Factors:
    n, *others = plan.counts.X.shape
    sizes = enumerate([n - _n_test(plan, split), *others])
    named = [(f"{prefix}{factor_name(mode)}{split}", (size, rank)) for mode, size in sizes]
    return tuple(nonnegative(shaped_array(arrays, *each), each[0]) for each in named)
