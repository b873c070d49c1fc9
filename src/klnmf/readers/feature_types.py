"""Features of several types, as genes and antibodies: genes are used, and the rest is named.

One rule for the files of Cell Ranger, .h5ad files, and an AnnData in memory (`klnmf.tl`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from klnmf.data.canonical import Entries
from klnmf.data.names import LOGGER
from klnmf.data.streams import CountStream, Outline
from klnmf.support.input_files import ReadError
from klnmf.support.option_names import option

# What is used by default where there are several types of features.
GENES = "Gene Expression"
ALL_TYPES = "all"
# Column of ``var`` in which scanpy keeps the types of features.
FEATURE_TYPES = "feature_types"


def genes_among(
    types: Iterable[str], whose: object, choose: str, keep_all: str
) -> npt.NDArray[np.intp] | None:
    """Positions of the genes, with a line in the log on what is left out; None: all features.

    ``choose`` and ``keep_all`` say how to ask for one of the types, and for all of them.
    """
    kinds = np.array([*types], dtype=object)
    there = Counter(kinds.tolist())
    if len(there) < 2:
        return None
    if GENES not in there:
        message = "%s: features of several types are used together: %s; choose one with %s"
        LOGGER.warning(message, whose, counted_types(there), choose)
        return None
    del there[GENES]
    message = "%s: left out %s; to use them too, add %s"
    LOGGER.warning(message, whose, counted_types(there), keep_all)
    return np.flatnonzero(kinds == GENES)


def counted_types(types: Counter[str]) -> str:
    """Say how many features are of each type.

    >>> counted_types(Counter({"Peaks": 2000, "Custom": 1}))
    "1 feature of type 'Custom', 2,000 features of type 'Peaks'"
    """
    numbers = ((name, f"{n:,} feature{'s' * (n != 1)}") for name, n in sorted(types.items()))
    return ", ".join(f"{number} of type {name!r}" for name, number in numbers)


def of_type(
    path: Path, cells: CountStream, types: list[str] | None, wanted: str | None
) -> CountStream:
    """Stream of cells × features with the features of one type alone; by default of genes."""
    types = types or []
    if wanted is None:
        choose, keep_all = option("feature_type"), option("feature_type", ALL_TYPES)
        kept = genes_among(types, path, choose, keep_all)
    elif wanted == ALL_TYPES:
        kept = None
    else:
        kept = np.flatnonzero(np.array(types, dtype=object) == wanted)
        if not kept.size:
            known = ", ".join(sorted(set(types))) or "none"
            raise ReadError(path, f"no feature is of the type {wanted!r}; there are: {known}.")
    return cells if kept is None else _with_columns(cells, kept)


def _with_columns(cells: CountStream, kept: npt.NDArray[np.intp]) -> CountStream:
    def blocks(limit: int) -> Iterator[Entries]:
        place = np.full(cells.outline().shape[1], -1)
        place[kept] = np.arange(len(kept))
        for rows, features, counts in cells.blocks(limit):
            chosen = place[features] >= 0
            yield Entries(rows[chosen], place[features[chosen]], counts[chosen])

    def outline() -> Outline:
        shape, about, dtype = cells.outline()
        of_features = {
            name: [about[name][j] for j in kept]
            for name in ("column_names", "column_ids")
            if about.get(name) is not None
        }
        return Outline((shape[0], len(kept)), about | of_features, dtype)

    return replace(cells, blocks=blocks, outline=outline)
