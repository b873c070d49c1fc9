"""A search in a file: killed, it goes on from there to the same result."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.data.sparse_data import SparseData
from klnmf.model_selection.growth import Factors
from klnmf.model_selection.search import Held, Plan, Search
from klnmf.saved.arrays import FLOATS, array_named, is_factor
from klnmf.saved.container import Container, SavedFileError, read_container
from klnmf.saved.fields import Fields, shortened
from klnmf.saved.periodic_file import PeriodicFile, check_identity, klnmf_version

Array = npt.NDArray[Any]

KIND = "rank search"
# Of deviances, objectives and seconds; deviances and seconds are not negative.
_LARGEST, _ROUNDING = 1e100, 1e-6
_SIGNED = ("objectives", "current_objectives", "stability")


def identity(plan: Plan) -> dict[str, Any]:
    """Return everything that decides the numbers of a search, but for the seed."""
    (n, m), nnz, dtype, checksum = SparseData(plan.X).fingerprint
    return {
        "shape of X": [n, m],
        "nonzeros of X": nnz,
        "type of X": dtype,
        "checksum of X": checksum,
        "ranks": list(plan.ranks),
        "n_splits": plan.n_splits,
        "train_fraction": plan.train_fraction,
        "backgrounds": list(plan.backgrounds),
        "method": plan.method,
    }


class SearchFile(PeriodicFile[Search]):
    """The file of one search."""

    def packed(self, work: Search) -> Container:
        """See :class:`PeriodicFile`."""
        search, splits = work, sorted(work.current)
        arrays: dict[str, Array] = {}
        for split, factors in enumerate(search.factors):
            if factors is not None:
                arrays[f"W{split}"], arrays[f"H{split}"] = factors
        n, n_splits = search.plan.X.shape[0], search.plan.n_splits
        done = search.n_ranks_done
        arrays["of_samples"] = np.array(search.of_samples).reshape(done, n)
        arrays["of_splits"] = np.array(search.of_splits).reshape(done, n_splits)
        arrays["seconds"] = np.array(search.seconds).reshape(done, n_splits)
        arrays["stability"] = np.array(search.stability)
        arrays["backgrounds"] = np.array(search.backgrounds)
        arrays["objectives"] = np.array(search.objectives)
        current = [search.current[split] for split in splits]
        n_backgrounds = len(search.plan.backgrounds)
        deviances = np.array([held.deviances for held in current])
        arrays["current"] = deviances.reshape(len(splits) * n_backgrounds, n)
        arrays["current_objectives"] = np.array([held.objective for held in current])
        arrays["current_seconds"] = np.array([held.seconds for held in current])
        for split, factors in enumerate(search.top):
            if factors is not None:
                arrays[f"top_W{split}"], arrays[f"top_H{split}"] = factors
        content = {
            "identity": identity(search.plan),
            "seed": search.plan.seed,
            "current_splits": splits,
            "back": search.back,
            "n_swept": search.n_swept,
            "n_fits": search.n_fits,
        }
        return Container(KIND, content, arrays)

    def stored_seed(self) -> int:
        """Seed of the search in the file."""
        return Fields(read_container(self.path, KIND).content, "content").whole("seed")

    def resumed(self, plan: Plan) -> Search:
        """Return the search that was written, or raise a SavedFileError if it is another one."""
        container = read_container(self.path, KIND)
        content = Fields(container.content, "content")
        found = dict(content.fields("identity").members)
        found |= {"seed": content.whole("seed"), "version of klnmf": container.klnmf_version}
        wanted = identity(plan) | {"seed": plan.seed, "version of klnmf": klnmf_version()}
        check_identity(self.path, found, wanted, "search")
        try:
            search = _search(plan, content, container.arrays)
        except ValueError as error:
            raise SavedFileError(f"The checkpoint {self.path} cannot be read: {error}") from error
        self.was_read()
        return search


def _search(plan: Plan, content: Fields, arrays: dict[str, Array]) -> Search:
    """Search of this plan, checked."""
    n = plan.X.shape[0]
    of_samples = array_named(arrays, "of_samples", FLOATS, 2)
    done = len(of_samples)
    splits = content.take("current_splits", list)
    if splits != [split for split in range(plan.n_splits) if split in splits]:
        raise SavedFileError(f"its current splits are {shortened(splits)}.")
    shapes: dict[str, tuple[int, ...]] = {
        "of_samples": (done, n),
        **dict.fromkeys(("of_splits", "seconds"), (done, plan.n_splits)),
        **dict.fromkeys(("stability", "backgrounds", "objectives"), (done,)),
        "current": (len(splits) * len(plan.backgrounds), n),
        **dict.fromkeys(("current_objectives", "current_seconds"), (len(splits),)),
    }
    found = {name: array_named(arrays, name, FLOATS, len(shapes[name])) for name in shapes}
    for name, shape in shapes.items():
        if found[name].shape != shape or done > len(plan.ranks):
            raise SavedFileError(f"{name} has the shape {found[name].shape} instead of {shape}.")
    _check_numbers(found)
    search = Search.new(plan)
    search.of_samples, search.of_splits = list(of_samples), list(found["of_splits"])
    search.seconds, search.stability = list(found["seconds"]), found["stability"].tolist()
    search.backgrounds = found["backgrounds"].tolist()
    search.objectives = found["objectives"].tolist()
    search.n_swept, search.n_fits = content.whole("n_swept"), content.whole("n_fits")
    back = content.members.get("back")
    if back is not None:
        search.back = content.whole("back")
        if not search.end_of_way_back <= search.back < done - 1:
            raise SavedFileError(f"its way back is at {back}, of {done} ranks.")
        search.top = [
            _factors(plan, arrays, "top_{}" + str(split), plan.ranks[done - 1])
            for split in range(plan.n_splits)
        ]
    by_split = found["current"].reshape(len(splits), len(plan.backgrounds), n)
    numbers = zip(found["current_objectives"], found["current_seconds"], strict=True)
    for split, deviances, (objective, seconds) in zip(splits, by_split, numbers, strict=True):
        search.current[split] = Held(deviances, float(objective), float(seconds))
    for split in range(plan.n_splits):
        if search.back is None:
            position = done - 1 + (split in search.current)
        else:
            position = search.back + (split not in search.current)
        if position >= 0:
            search.factors[split] = _factors(plan, arrays, "{}" + str(split), plan.ranks[position])
    return search


def _check_numbers(found: dict[str, Array]) -> None:
    """Refuse numbers that no fit gives, and whose squares and sums would not be finite."""
    for name, array in found.items():
        # There is no stability of a single split.
        numbers = array[~np.isnan(array)] if name == "stability" else array
        least = -_LARGEST if name in _SIGNED else -_ROUNDING
        if not ((numbers >= least) & (numbers <= _LARGEST)).all():  # NaN neither
            raise SavedFileError(f"{name} has numbers that are negative, too large or not finite.")


def _factors(plan: Plan, arrays: dict[str, Array], name: str, rank: int) -> Factors:
    W, H = (array_named(arrays, name.format(letter), FLOATS, 2) for letter in "WH")
    if (W.shape, H.shape) != ((plan.X.shape[0], rank), (plan.X.shape[1], rank)):
        raise SavedFileError(f"{name.format('W')} and H do not have {rank} components.")
    if not (is_factor(W) and is_factor(H)):
        raise SavedFileError(
            f"{name.format('W')} or H has entries that are negative or not finite."
        )
    return W, H
