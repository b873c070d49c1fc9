"""Changes of JSON and of archives of NumPy arrays, which stay well formed around the change."""

from __future__ import annotations

import io
import json
import struct
import warnings
import zipfile
from random import Random
from typing import Any

import numpy as np

from fuzz.mutations import WORDS, change_bytes

# Stands for a text that json.dumps would not write.
_RAW = "@raw@"
_RAW_TEXTS = (
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000, "1" + "0" * 400, "-0", "0.0"),
    *("1e-400", "[" * 100_000, '{"a":' * 100_000, "[" * 50 + "]" * 50, "", "{", '"\\ud800"'),
    *("[" * 900 + "]" * 900, "[" * 5000 + "]" * 5000),
)


def odd_value(random: Random) -> Any:
    """A value of JSON that is seldom expected."""
    return random.choice(
        (
            *(None, True, False, 0, 1, -1, 2, 3, 1.5, -0.5, 1e308, 5e-324, 2**31, 2**32, 2**53 + 1),
            *(2**63 - 1, 2**63, 2**64, 10**30, -(2**63), -(10**30), "", "x", "0", "1", "nan"),
            *("\x00", "../../x", "x" * 10_000, "\ud800", [], {}, [None], [[]], [0], [1, 2], ["x"]),
            *([1] * 1000, {"": 0}, {"a": {"b": []}}, [-1, -1], [2**40, 2**40], [10**400], [1.5, 2]),
            *("<f4", "<f8", "|O", "float32", "float64", "object", "srcd", "mu", "auto", "inf"),
            *(_RAW, _RAW, _RAW, _RAW),
        )
    )


def change_json(random: Random, content: bytes) -> bytes:
    """Replace, remove, add or move one value; sometimes change the text instead."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return change_bytes(random, content)
    places = list(_places(tree))
    if not places or random.random() < 0.03:
        return _written(random, odd_value(random))
    parent, key = random.choice(places)
    kind = random.randrange(8)
    if kind == 0:
        del parent[key]
    elif kind == 1:
        other, its_key = random.choice(places)
        parent[key] = json.loads(json.dumps(other[its_key]))
    elif kind == 2 and isinstance(parent, dict):
        parent[random.choice(("x", "", "\x00", "W", key + "x"))] = parent.pop(key)
    elif kind == 3 and isinstance(parent, dict):
        parent["added"] = odd_value(random)
    elif kind == 4 and type(parent[key]) in (int, float) and abs(parent[key]) < 1e300:
        change = random.choice((1, -1, 0.5, 1e-9, 2**31, -(2**31), 1e300))
        parent[key] = parent[key] + change
    else:
        parent[key] = odd_value(random)
    return _written(random, tree)


def _places(tree: Any, depth: int = 0) -> Any:
    if depth > 50 or not isinstance(tree, dict | list):
        return
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value, depth + 1)


def _written(random: Random, tree: Any) -> bytes:
    text = json.dumps(tree).replace(f'"{_RAW}"', random.choice(_RAW_TEXTS))
    return text.encode("utf-8", "replace")


# ---- arrays --------------------------------------------------------------------------------------

_TYPES = (
    "<f4",
    "<f8",
    "<i4",
    "<i8",
    "|u1",
    "<u8",
    "<i2",
    "<f2",
    "|b1",
    ">f8",
    "<c8",
    "|S3",
    "<M8[s]",
)
_NUMBERS = (
    *(0, -0.0, 1, -1, 2, 1e308, -1e308, 5e-324, 1e-30, 1e30, np.nan, np.inf, -np.inf),
    *(2.0**31, 2.0**31 - 1, -(2.0**31), 2.0**62, 1.5, 50_000_000, 3.4e38),
)


def change_array(random: Random, array: Any) -> Any:
    """Another array: of changed values, or (seldom) of another type or shape."""
    kind = random.randrange(12)
    if kind == 0:
        return _retyped(array, random.choice(_TYPES))
    if kind == 1:
        return array.reshape(random.choice(_shapes(array)))
    if kind == 2:
        return array.reshape(-1)[: random.randrange(array.size + 1)]
    if kind == 3:
        return (
            np.concatenate([array, array[: random.randrange(len(array) + 1)]])
            if array.ndim
            else array
        )
    return change_values(random, array)


def change_values(random: Random, array: Any) -> Any:
    """Change one, a few or all values of an array, whose type and shape stay."""
    changed = np.array(array)
    flat = changed.reshape(-1)
    if not flat.size or flat.dtype.kind not in "biuf":
        return changed
    kind = random.randrange(6)
    with np.errstate(all="ignore"):
        value = np.array(random.choice(_NUMBERS)).astype(flat.dtype)
        place, other = random.randrange(flat.size), random.randrange(flat.size)
        if kind == 0:
            flat[:] = value
        elif kind == 1:
            flat[place], flat[other] = flat[other], flat[place]
        elif kind == 2:
            flat[place] = flat[other]
        elif kind == 3:
            flat[:] = flat[::-1].copy()
        elif kind == 4:
            flat[place:] = value
        else:
            flat[place] = value
    return changed


def _retyped(array: Any, kind: str) -> Any:
    if array.dtype.kind not in "biuf":
        return np.zeros(array.shape, dtype=kind)
    with np.errstate(all="ignore"):
        return np.nan_to_num(array).astype(kind)


def _shapes(array: Any) -> list[tuple[int, ...]]:
    n = array.size
    shapes: list[tuple[int, ...]] = [(n,), (1, n), (n, 1), (1, 1, n), (n, *(1,) * 20)]
    return [*shapes, tuple(array.shape[::-1]), *([()] if n == 1 else [])]


def npy_bytes(array: Any) -> bytes:
    """An .npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=True)
    return stream.getvalue()


def change_npy(random: Random, content: bytes) -> bytes:
    """Change an array, or the head of its file."""
    try:
        array = np.lib.format.read_array(io.BytesIO(content))
    except Exception:
        return change_bytes(random, content)
    kind = random.randrange(20)
    if kind == 0:
        return change_bytes(random, content)
    if kind == 1:
        return _with_head(random, array)
    if kind == 2:
        return npy_bytes(np.array([random.choice(("x", None, 1, {}))] * 3, dtype=object))
    if array.dtype.kind in "SU":
        word = random.choice(
            (b"csr", b"csc", b"coo", b"bsr", b"dia", b"lil", b"", b"x", "csr", "ü")
        )
        return npy_bytes(np.array(word))
    return npy_bytes(change_array(random, array))


def _with_head(random: Random, array: Any) -> bytes:
    """An array whose head is another one's."""
    shape = random.choice(
        ("()", "(1,)", "(10**15,)", "(1000000000000,)", "(-1,)", "(3, 4000000000)")
    )
    shape = random.choice(
        (shape, str(tuple(array.shape)), "(999999999999999999999,)", "x", "(1.5,)")
    )
    kind = random.choice((*_TYPES, "|O", "<f99", "[('a', '<f4')]", "|V8", "<U99999999"))
    order = random.choice(("False", "True", "3"))
    head = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}"
    head = random.choice((head, head, head[:-3], "[" * 300 + "]" * 300, " " * 20_000)) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + array.tobytes()


# ---- archives ------------------------------------------------------------------------------------


def members_of(content: bytes) -> dict[str, bytes]:
    """What a zip archive holds."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of these members, with right checksums."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", compression) as archive:
        warnings.simplefilter("ignore")  # two members of one name are wanted
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return stream.getvalue()


def change_members(random: Random, members: dict[str, bytes]) -> list[tuple[str, bytes]]:
    """Remove, add, rename, repeat or exchange members."""
    listed = list(members.items()) or [("x.npy", b"")]
    place, other = random.randrange(len(listed)), random.randrange(len(listed))
    kind = random.randrange(5)
    if kind == 0:
        del listed[place]
    elif kind == 1:
        name = random.choice(WORDS).decode("latin-1")[:100]
        listed.append((random.choice((name, "x.npy", "../x.npy")) or "x", listed[other][1]))
    elif kind == 2:
        listed[place] = (listed[place][0] + random.choice(("x", ".npy", "/")), listed[place][1])
    elif kind == 3:
        listed.append(listed[place])
    else:
        listed[place] = (listed[place][0], listed[other][1])
    return listed


def change_npz(random: Random, content: bytes) -> bytes:
    """Change the arrays of an archive, or the archive."""
    if random.random() < 0.15:
        return change_bytes(random, content)
    try:
        members = members_of(content)
    except Exception:
        return change_bytes(random, content)
    listed = list(members.items())
    if random.random() < 0.15:
        listed = change_members(random, members)
    for _ in range(random.choice((1, 1, 2, 3))):
        if listed:
            place = random.randrange(len(listed))
            listed[place] = (listed[place][0], change_npy(random, listed[place][1]))
    compression = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED))
    return zipped(listed, compression)
