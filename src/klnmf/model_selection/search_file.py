"""A search in a file: killed, it goes on from there to the same result."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.model_selection.periodic_file import PeriodicFile, check_identity, klnmf_version
from klnmf.model_selection.search import Plan, Search
from klnmf.saved.arrays import FLOATS, array_named
from klnmf.saved.container import Container, SavedFileError, read_container
from klnmf.saved.fields import Fields
from klnmf.sparse_data import SparseData

Array = npt.NDArray[Any]

KIND = "rank search"


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

    def packed(self, state: Search) -> Container:
        """See :class:`PeriodicFile`."""
        search, splits = state, sorted(state.current)
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
        current = [search.current[split] for split in splits]
        n_backgrounds = len(search.plan.backgrounds)
        deviances = np.array([deviances for deviances, _ in current])
        arrays["current"] = deviances.reshape(len(splits) * n_backgrounds, n)
        arrays["current_seconds"] = np.array([seconds for _, seconds in current])
        content = {
            "identity": identity(search.plan),
            "seed": search.plan.seed,
            "current_splits": splits,
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
    n, m = plan.X.shape
    search = Search.new(plan)
    of_samples = array_named(arrays, "of_samples", FLOATS, 2)
    done = len(of_samples)
    of_splits, seconds = (array_named(arrays, name, FLOATS, 2) for name in ("of_splits", "seconds"))
    stability, backgrounds = (
        array_named(arrays, name, FLOATS, 1) for name in ("stability", "backgrounds")
    )
    current = array_named(arrays, "current", FLOATS, 2)
    current_seconds = array_named(arrays, "current_seconds", FLOATS, 1)
    splits = content.take("current_splits", list)
    shapes = (
        *(of_samples.shape, of_splits.shape, seconds.shape, stability.shape, backgrounds.shape),
        *(current.shape, current_seconds.shape),
    )
    of_rank = (done, plan.n_splits)
    wanted = (
        *((done, n), of_rank, of_rank, (done,), (done,)),
        *((len(splits) * len(plan.backgrounds), n), (len(splits),)),
    )
    if shapes != wanted or done > len(plan.ranks):
        raise SavedFileError(f"its arrays have the shapes {shapes} instead of {wanted}.")
    if splits != sorted(set(splits) & set(range(plan.n_splits))):
        raise SavedFileError(f"its current splits are {splits}.")
    search.of_samples, search.of_splits = list(of_samples), list(of_splits)
    search.seconds, search.stability = list(seconds), stability.tolist()
    search.backgrounds = backgrounds.tolist()
    by_split = current.reshape(len(splits), len(plan.backgrounds), n)
    search.current = {
        split: (by_split[i], float(current_seconds[i])) for i, split in enumerate(splits)
    }
    for split in range(plan.n_splits):
        n_fits = done + (split in search.current)
        if n_fits == 0:
            continue
        rank = plan.ranks[n_fits - 1]
        W, H = (array_named(arrays, f"{letter}{split}", FLOATS, 2) for letter in "WH")
        if (W.shape, H.shape) != ((n, rank), (m, rank)):
            raise SavedFileError(f"the factors of split {split} do not have {rank} components.")
        search.factors[split] = (W, H)
    return search
