"""Changes of HDF5 files through h5py: items, attributes and values.

Not of their bytes: what damaged structures do to the HDF5 library is a matter of that library.
"""

from __future__ import annotations

import io
from random import Random
from typing import Any

import h5py
import numpy as np

from fuzz.trees import change_array, change_values

# A file of every system, which no count table may show.
SYSTEM_FILE = "/etc/passwd"
_ODD = (
    *(0, -1, 1.5, np.nan, "text", "", 10**18, [], [-1], [1, 2, 3], [np.nan] * 4, ["a", "b"]),
    *([[1, 2], [3, 4]], np.zeros((0, 5)), np.ones((2, 2, 2)), [2**40, 2**40], [1.5, 2]),
)


def change_hdf5(random: Random, content: bytes) -> bytes:
    """Change a few things in a file, or cut it off."""
    if random.random() < 0.1:
        return content[: random.randrange(len(content) + 1)]
    stream = io.BytesIO(content)
    try:
        with h5py.File(stream, "r+") as file:
            for _ in range(random.choice((1, 1, 1, 2, 3))):
                _change(random, file)
    except Exception:  # what h5py refuses to write is no file
        return content[: len(content) // 2]
    return stream.getvalue()


def _change(random: Random, file: Any) -> None:
    names: list[str] = []
    file.visit(names.append)
    name = random.choice(sorted(names))
    item, kind = file[name], random.randrange(6)
    if kind == 0:
        del file[name]
    elif kind == 1:
        file.move(name, random.choice((f"{name}x", f"x/{name}", random.choice(names))))
    elif kind == 2:
        known = ("encoding-type", "shape", "_index")
        attribute = random.choice([*item.attrs] * 3 + [*known])
        item.attrs[attribute] = random.choice((*_ODD, "csc_matrix", "array", "_index", "x"))
    elif isinstance(item, h5py.Dataset):
        attributes, values = dict(item.attrs), item[()]
        if kind == 3:
            values = random.choice(_ODD)
        elif isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
            values = random.choice((change_values, change_array))(random, values)
        elif isinstance(values, np.ndarray):
            values = values[: random.randrange(len(values) + 1)]
        del file[name]
        file.create_dataset(name, data=values).attrs.update(attributes)
