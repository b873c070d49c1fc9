"""The runs of a consensus in a file: killed, it goes on from there to the same result.

The number of runs is no part of what the file belongs to: more of them can be added later.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from klnmf.data.sparse_data import SparseData
from klnmf.model_selection.restarts import Fit
from klnmf.saved.arrays import FLOATS, INDICES, array_named, is_factor
from klnmf.saved.container import Container, SavedFileError, read_container
from klnmf.saved.fields import Fields
from klnmf.saved.periodic_file import PeriodicFile, check_identity, klnmf_version

Array = npt.NDArray[Any]

KIND = "consensus runs"


class Runs(NamedTuple):
    """What decides the runs, and those that are done, by number."""

    identity: dict[str, Any]
    seed: int
    fits: dict[int, Fit]


def identity(data: SparseData, **settings: Any) -> dict[str, Any]:
    """Return everything that decides a run, but for the seed and its number."""
    (n, m), nnz, dtype, checksum = data.fingerprint
    return {
        "shape of X": [n, m],
        "nonzeros of X": nnz,
        "type of X": dtype,
        "checksum of X": checksum,
        **settings,
    }


class RunsFile(PeriodicFile[Runs]):
    """The file of the runs of one consensus."""

    def packed(self, work: Runs) -> Container:
        """See :class:`PeriodicFile`."""
        numbers = sorted(work.fits)
        fits = [work.fits[number] for number in numbers]
        rank, width = work.identity["n_components"], work.identity["shape of X"][1]
        spectra = np.array([fit.components for fit in fits], dtype=np.float32)
        arrays: dict[str, Array] = {
            "runs": np.array(numbers, dtype=np.int64),
            "objectives": np.array([fit.objective for fit in fits], dtype=np.float64),
            "spectra": spectra.reshape(len(fits) * rank, width),
        }
        return Container(KIND, {"identity": work.identity, "seed": work.seed}, arrays)

    def stored_seed(self) -> int:
        """Seed of the runs in the file."""
        return Fields(read_container(self.path, KIND).content, "content").whole("seed")

    def resumed(self, expected: Runs) -> Runs:
        """Return the runs that were written, or raise a SavedFileError if they are others."""
        container = read_container(self.path, KIND)
        content, arrays = Fields(container.content, "content"), container.arrays
        found = dict(content.fields("identity").members)
        found |= {"seed": content.whole("seed"), "version of klnmf": container.klnmf_version}
        wanted = expected.identity | {"seed": expected.seed, "version of klnmf": klnmf_version()}
        check_identity(self.path, found, wanted, "consensus")
        numbers = array_named(arrays, "runs", INDICES, 1)
        objectives = array_named(arrays, "objectives", FLOATS, 1)
        spectra = array_named(arrays, "spectra", FLOATS, 2)
        rank, width = wanted["n_components"], wanted["shape of X"][1]
        is_whole = (
            len(numbers) == len(objectives) == len(np.unique(numbers))
            and spectra.shape == (len(numbers) * rank, width)
            and is_factor(spectra)
        )
        if not is_whole:
            raise SavedFileError(
                f"The checkpoint {self.path} cannot be read: {len(numbers)} runs, "
                f"{len(objectives)} objectives and components of shape {spectra.shape} do not "
                "belong together."
            )
        by_run = spectra.reshape(len(numbers), rank, width)
        fits = {
            int(number): Fit(components, float(objective))
            for number, components, objective in zip(numbers, by_run, objectives, strict=True)
        }
        self.was_read()
        return expected._replace(fits=fits)
