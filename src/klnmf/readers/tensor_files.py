"""Files of tensors: .tns, .npz, and tables of events (.csv, .tsv, .parquet)."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.data.matrix_checks import first_wrong, is_count
from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.tensor_checks import LARGEST, MOST_MODES
from klnmf.readers.entries import REAL, is_plausible
from klnmf.readers.events import narrowed, read_events, whole
from klnmf.readers.layouts import is_number
from klnmf.readers.npz_arrays import npz_array, opened_npz
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described
from klnmf.support.input_files import (
    ReadError,
    line_blocks,
    not_there,
)
from klnmf.support.option_names import option
from klnmf.support.printable_text import shown
from klnmf.support.whole_files import packed_if_named_so, replacing

PathLike = str | os.PathLike[str]
_OF_EVENTS = (".csv", ".tsv", ".parquet")
ENDINGS = (".tns", ".npz", *_OF_EVENTS)
# Bytes of a text that are made into numbers at a time, and entries that are written at a time.
_TEXT, _WRITTEN = 1 << 22, 1 << 16
_COMMENT = re.compile(rb"#[^\n]*+")
_LINES = rb"(?:[ \t]*+(?:(?:[0-9]{1,18}+[ \t]++){%d}%b)?+[ \t\r]*+\n)*+"


def read_tensor(
    path: PathLike,
    *,
    modes: Sequence[str] | None = None,
    values: str | None = None,
    bins: Mapping[str, str] | None = None,
    shape: Sequence[int] | None = None,
) -> SparseTensor:
    r"""Read a tensor of counts from a file.

    - .tns: text of FROSTT, one nonzero per line: its places, counted from 1, then its value.
    - .npz: what :func:`write_tensor` writes, or arrays ``coords`` (nnz × modes), ``vals`` and
      ``shape``.
    - .csv, .tsv, .parquet: one event per line, below a header, with commas, semicolons or tabs; see
      :meth:`klnmf.SparseTensor.from_events`. .parquet needs ``pip install "klnmf[files]"``.

    Text files may be compressed (.gz).

    Parameters
    ----------
    path : path
        File to read. Its name tells the format.
    modes : sequence of str, default=None
        For events: the columns that become the modes. For .tns and .npz: names of the modes.
    values, bins
        For events: as in :meth:`klnmf.SparseTensor.from_events`.
    shape : sequence of int, default=None
        For .tns and .npz: size of each mode. None takes those of the file; a .tns file has the
        largest places only.

    Returns
    -------
    SparseTensor
        The counts.

    Raises
    ------
    ReadError
        If the file is broken, or does not hold counts. It is a ValueError.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from klnmf.readers import read_tensor
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "visits.tns")
    ...     _ = path.write_text("1 1 2 5\n3 1 1 2\n")
    ...     read_tensor(path)
    SparseTensor(3 × 1 × 2, 2 nonzeros, total 7)
    """
    path = Path(os.path.expanduser(path))
    ending = _ending(path)
    if not path.exists():
        raise not_there(path)
    if path.is_dir() or not path.stat().st_size:
        raise ReadError(path, "this is a folder." if path.is_dir() else "the file is empty.")
    given = {"values": values, "bins": bins, "shape": shape}
    is_of_cells = ending not in _OF_EVENTS
    for name in ("values", "bins") if is_of_cells else ("shape",):
        if given[name] is not None:
            raise TypeError(f"{option(name)} cannot be used with {ending} files.")
    if is_of_cells:
        arrays = _read_tns(path) if ending == ".tns" else _read_npz(path)
        for name, value in (("shape", shape), ("mode_names", modes)):
            if value is not None:
                arrays[name] = value
        return _made(path, partial(SparseTensor, **arrays))
    if modes is None or isinstance(modes, str):
        example = option("modes", ["customer", "product", "date"])
        raise TypeError(f"modes must name the columns of a {ending} file, such as {example}.")
    events = read_events(path, ending, modes, values)
    return _made(path, partial(SparseTensor.from_events, events, modes, values, bins=bins))


def write_tensor(path: PathLike, tensor: SparseTensor) -> None:
    """Write a tensor of counts, so that `read_tensor` can read it.

    An existing file of that name is replaced when the new one is complete.

    - .npz: everything, with names and labels.
    - .tns, .tns.gz: places from 1 on, and values. Names, labels and sizes are not in it: pass
      ``shape=tensor.shape`` to `read_tensor`, if the last slices of a mode may be empty.

    Parameters
    ----------
    path : path
        File to write, in an existing folder.
    tensor : SparseTensor
        Counts to write.
    """
    path = Path(os.path.expanduser(path))
    if not isinstance(tensor, SparseTensor):
        raise TypeError(f"tensor must be a SparseTensor; got {described(tensor)}.")
    ending = _ending(path)
    if ending in _OF_EVENTS:
        raise ValueError(f"{path}: tensors are written as .npz, .tns or .tns.gz.")
    with replacing(path) as part:
        if ending == ".npz":
            with part.open("wb") as stream:
                np.savez_compressed(stream, **_arrays(tensor))
        else:
            _write_tns(part, tensor)


def _ending(path: Path) -> str:
    name = path.name.lower()
    plain = name.removesuffix(".gz")
    for ending in ENDINGS:
        if (name if ending in (".npz", ".parquet") else plain).endswith(ending):
            return ending
    raise ValueError(
        f"{path}: the format of a tensor is known by the ending of the name: {', '.join(ENDINGS)}; "
        ".tns, .csv and .tsv may be followed by .gz."
    )


def _made(path: Path, make: Any) -> SparseTensor:
    """Tensor of what was read; what is wrong with it becomes a `ReadError`."""
    try:
        tensor: SparseTensor = make()
    except (TypeError, ValueError) as error:
        raise ReadError(path, str(error)) from error
    if not is_plausible(tensor.shape, tensor.nnz):
        claim = f"a mode has {max(tensor.shape):,} slices for {tensor.nnz:,} nonzeros"
        raise ReadError(path, f"{claim}: nearly all would be empty. Are the places right?")
    return tensor


# ---- .tns ----------------------------------------------------------------------------------------


def _read_tns(path: Path) -> dict[str, Any]:
    coords, values = [], []
    width = 0  # numbers per line
    for line, content in line_blocks(path, _TEXT):
        text = _COMMENT.sub(b"", content)
        width = width or len(next(filter(None, map(bytes.split, text.split(b"\n"))), ()))
        if width:
            numbers = _numbers(path, text, line, width)
            coords.append(numbers[:, :-1].T.astype(np.int32) - 1)
            values.append(numbers[:, -1])
    if not width:
        raise ReadError(path, "there are no nonzeros in this file, so that its modes are unknown.")
    return {"coords": np.hstack(coords), "values": narrowed(np.concatenate(values))}


def _numbers(path: Path, text: bytes, line: int, width: int) -> Array:
    """Numbers of whole lines; a `ReadError` names the first line that is wrong."""
    is_right = 2 < width <= MOST_MODES + 1
    if is_right and re.fullmatch(_LINES % (width - 1, REAL), text):
        numbers: Array = np.fromstring(text, sep=" ").reshape(-1, width)
        places, values = numbers[:, :-1], numbers[:, -1]
        in_range = not places.size or (places.min() >= 1 and places.max() <= LARGEST)
        if in_range and first_wrong(values) is None:
            return numbers
    for number, content in enumerate(text.split(b"\n"), line + 1):
        fields = content.split()
        if fields and (not is_right or len(fields) != width):
            wanted = f"{width - 1}" if is_right else f"2 to {MOST_MODES}"
            problem = f"expected {wanted} places and a value, found {shown(content)}."
            raise ReadError(path, problem, number)
        for place in fields[:-1]:
            if not (place.isdigit() and len(place) <= 18 and 1 <= int(place) <= LARGEST):
                wanted = f"places are whole numbers from 1 to {LARGEST:,}"
                problem = f"{shown(place)} is no place; in .tns files {wanted}."
                raise ReadError(path, problem, number)
        value = fields[-1].decode("latin-1") if fields else "0"
        if not is_number(value) or not is_count(float(value)):
            problem = f"{shown(value)} is no count; counts are finite numbers of 0 or more."
            raise ReadError(path, problem, number)
    raise ReadError(path, "it has characters that do not occur in .tns files.", line + 1)


def _write_tns(path: Path, tensor: SparseTensor) -> None:
    if not tensor.nnz:
        raise ValueError("A tensor without nonzeros cannot be written as .tns. Write .npz.")
    with packed_if_named_so(path) as stream:
        for start in range(0, tensor.nnz, _WRITTEN):
            block = slice(start, start + _WRITTEN)
            columns = [*(tensor.coords[:, block] + 1), whole(tensor.values[block])]
            lines = zip(*(map(str, column.tolist()) for column in columns), strict=True)
            stream.write("".join(f"{' '.join(fields)}\n" for fields in lines).encode())


# ---- .npz ----------------------------------------------------------------------------------------


def _read_npz(path: Path) -> dict[str, Any]:
    what = "this is not a tensor that klnmf.readers.write_tensor wrote, or it is damaged"
    with opened_npz(path, what) as (archive, names):
        if "coords" not in names or not {"values", "vals"} & names:
            held = ", ".join(sorted(names)[:5]) or "none"
            raise ReadError(path, f"{what}: it needs the arrays coords and values, and has {held}.")
        found: dict[str, Any] = {"coords": npz_array(archive, "coords")}
        if "values" in names:
            found["values"] = npz_array(archive, "values")
        else:  # one row per entry
            found |= {"coords": found["coords"].T, "values": npz_array(archive, "vals")}
        for name in {"shape", "mode_names"} & names:
            found[name] = npz_array(archive, name).tolist()
        if any(name.startswith("labels_") for name in names):
            labels = [f"labels_{mode}" for mode in range(min(MOST_MODES, len(found["coords"])))]
            found["labels"] = [npz_array(archive, n) if n in names else None for n in labels]
    return found


def _arrays(tensor: SparseTensor) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "coords": tensor.coords,
        "values": tensor.values,
        "shape": np.array(tensor.shape),
    }
    texts = {"mode_names": np.array(tensor.mode_names, dtype=object)}
    texts |= {f"labels_{m}": each for m, each in enumerate(tensor.labels) if each is not None}
    for name, labels in texts.items():
        arrays[name] = labels.astype(np.str_)
        if (arrays[name] != labels).any():
            raise ValueError(f"{name} end in NUL characters, which .npz files cannot hold.")
    return arrays
