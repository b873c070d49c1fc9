"""Changes of HDF5 files through h5py: items, links, attributes, types, shapes and values."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import h5py
import numpy as np

from fuzz.mutations import change_bytes
from fuzz.trees import change_array, change_values

# A file of every system, which no count table may show.
SYSTEM_FILE = "/etc/passwd"


def change_hdf5(random: Random, content: bytes) -> bytes:
    """Change a few things in a file; seldom its bytes."""
    if random.random() < 0.15:
        return change_bytes(random, content)
    stream = io.BytesIO(content)
    try:
        with h5py.File(stream, "r+") as file:
            for _ in range(random.choice((1, 1, 1, 2, 3))):
                _change(random, file)
    except Exception:  # what h5py refuses to write is no file
        return change_bytes(random, content)
    changed = stream.getvalue()
    return change_bytes(random, changed) if random.random() < 0.05 else changed


def _items(file: Any) -> list[str]:
    names: list[str] = []
    file.visit(names.append)
    return sorted(names)


def _change(random: Random, file: Any) -> None:
    names = _items(file)
    if not names:
        file.create_dataset("X", data=[[1, 2], [3, 4]])
        return
    name = random.choice(names)
    if random.random() < 0.35:
        _change_attributes(random, file[random.choice((name, "/"))])
        return
    item = file.get(name)
    kinds = [_remove, _rename, _relink, _replace]
    if isinstance(item, h5py.Dataset):
        kinds += [_other_values] * 4 + [_odd_dataset] * 3
    random.choice(kinds)(random, file, name)


def _remove(random: Random, file: Any, name: str) -> None:
    del file[name]


def _rename(random: Random, file: Any, name: str) -> None:
    target = random.choice(_items(file))
    file.move(name, random.choice((f"{name}x", f"{target}y", "x", f"x/{name}")))


def _relink(random: Random, file: Any, name: str) -> None:
    """Put a link in the place of an item."""
    links = (
        h5py.SoftLink("/nowhere"),
        h5py.SoftLink(f"/{name}"),
        h5py.SoftLink("/"),
        h5py.SoftLink(f"/{random.choice(_items(file))}"),
        h5py.ExternalLink("other.h5", "/X"),
        h5py.ExternalLink(SYSTEM_FILE, "/"),
    )
    target = random.choice((*links, file["/"], file.get(random.choice(_items(file)))))
    del file[name]
    file[name] = target


def _replace(random: Random, file: Any, name: str) -> None:
    """A group for a dataset, a dataset for a group, or a named type."""
    attributes = _attributes(file.get(name))
    del file[name]
    kind = random.randrange(3)
    if kind == 0:
        item = file.create_group(name)
    elif kind == 1:
        item = file.create_dataset(name, data=_odd_data(random))
    else:
        file[name] = np.dtype("f8")
        item = file[name]
    _restore(item, attributes)


def _other_values(random: Random, file: Any, name: str) -> None:
    dataset = file[name]
    attributes, values = _attributes(dataset), dataset[()]
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        change = random.choice((change_values, change_values, change_array))
        values = change(random, values)
    elif isinstance(values, np.ndarray) and values.ndim == 1:
        kind = random.randrange(4)
        values = values[: random.randrange(len(values) + 1)] if kind == 0 else values
        values = np.concatenate([values, values]) if kind == 1 else values
        values = np.full(len(values), b"\xff\x00x") if kind == 2 else values
        values = np.arange(len(values)) if kind == 3 else values
    del file[name]
    _restore(file.create_dataset(name, data=values), attributes)


def _odd_dataset(random: Random, file: Any, name: str) -> None:
    """A dataset that declares more than it has, is stored elsewhere, or is of an odd type."""
    attributes, old = _attributes(file[name]), file[name]
    shape, kind = old.shape, old.dtype
    del file[name]
    choice = random.randrange(8)
    if choice == 0:
        huge = random.choice(((10**12,), (10**9, 10**5), (10**15,), (2**40, 3), (10**7,), (0,)))
        dataset = file.create_dataset(name, shape=huge, dtype="i4", chunks=True)
    elif choice == 1:
        # As many dimensions as there were.
        huge = tuple(random.choice((n, 10**6, 10**12, 0)) for n in shape) or (10**12,)
        dataset = file.create_dataset(name, shape=huge, dtype=kind, chunks=(1000,) * len(huge))
    elif choice == 2:
        external = [(SYSTEM_FILE, 0, h5py.h5f.UNLIMITED)]
        dataset = file.create_dataset(name, shape=shape, dtype="i1", external=external)
    elif choice == 3:
        layout = h5py.VirtualLayout(shape=shape or (3,), dtype="i4")
        source = random.choice((".", "other.h5", SYSTEM_FILE))
        layout[...] = h5py.VirtualSource(source, f"/{name}x", shape=shape or (3,))
        dataset = file.create_virtual_dataset(name, layout)
    elif choice == 4:
        dataset = file.create_dataset(name, data=h5py.Empty("f4"))
    elif choice == 5:
        dataset = file.create_dataset(name, shape=shape, dtype=_odd_type(random))
    else:
        dataset = file.create_dataset(name, data=_odd_data(random))
    _restore(dataset, attributes)


def _odd_type(random: Random) -> Any:
    kinds = ("f2", "f4", "c8", "b1", "S1", "V5", "u8", "i1", ">i4", "f8", "S200")
    special = (
        h5py.string_dtype(),
        h5py.vlen_dtype("i4"),
        h5py.ref_dtype,
        h5py.enum_dtype({"a": 1, "b": 2}),
        np.dtype([("a", "i4"), ("b", "f4")]),
        np.dtype((np.int32, (3,))),
    )
    return random.choice((*kinds, *special))


def _odd_data(random: Random) -> Any:
    return random.choice(
        (
            *(0, -1, 1.5, np.nan, "text", b"\xff\xfe", "", 10**18, True, 1j),
            *([], [0], [-1], [1, 2, 3], [np.nan] * 4, ["a", "b"], [[1, 2], [3, 4]], [[[1]]]),
            *(np.zeros((0, 5)), np.zeros((5, 0)), np.ones((2, 2, 2)), np.full((3, 3), -1)),
        )
    )


# ---- attributes ----------------------------------------------------------------------------------


def _change_attributes(random: Random, item: Any) -> None:
    if item is None:
        return
    names = sorted(item.attrs)
    known = ("encoding-type", "encoding-version", "shape", "_index", "column-order", "categories")
    name = random.choice(names * 4 + list(known))
    if random.random() < 0.2:
        if name in item.attrs:
            del item.attrs[name]
        return
    text = ("csr_matrix", "csc_matrix", "array", "dataframe", "categorical", "string-array", "dict")
    text += ("null", "rec-array", "nullable-integer", "", "x", "\udcff", "0.1.0", "99.0", "_index")
    other = tuple(names and [item.attrs[random.choice(names)]])
    numbers = (
        [3, 4],
        [4, 3],
        [-1, 5],
        [2**40, 2**40],
        [10**9, 5],
        [0, 0],
        [3],
        [1, 2, 3],
        [1.5, 2],
    )
    value = random.choice((*text, *text, *numbers, *numbers, *other, _odd_data(random)))
    item.attrs[name] = value


def _attributes(item: Any) -> dict[str, Any]:
    return {} if item is None else dict(item.attrs)


def _restore(item: Any, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        item.attrs[name] = value
