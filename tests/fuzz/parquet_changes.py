"""Changes of Parquet files through pyarrow: columns, types, names, metadata, row groups."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.mutations import change_bytes
from fuzz.trees import change_json, odd_value

_INDEX = json.dumps({"index_columns": ["__index_level_0__"], "columns": []}).encode()


def change_parquet(random: Random, content: bytes) -> bytes:
    """Another table, written well; sometimes other bytes."""
    if random.random() < 0.3:
        return change_bytes(random, content)
    try:
        table = pq.read_table(io.BytesIO(content))
        for _ in range(random.choice((1, 1, 2, 3))):
            table = _changed(random, table)
        return _written(random, table)
    except Exception:  # what pyarrow refuses to write is no file
        return change_bytes(random, content)


def _changed(random: Random, table: Any) -> Any:
    kind = random.randrange(10)
    names, columns = list(table.column_names), list(table.columns)
    metadata = table.schema.metadata
    place = random.randrange(len(columns)) if columns else 0
    if kind <= 3 and columns:
        columns[place] = _odd_column(random, table.num_rows)
    elif kind == 4 and columns:
        del names[place], columns[place]
    elif kind == 5:
        names.append(random.choice((*names, "x", "")))
        columns.append(_odd_column(random, table.num_rows))
    elif kind == 6 and columns:
        names[place] = random.choice((*names, "", "\x00", "a.b", "count", "__index_level_0__"))
    elif kind == 7:
        metadata = _odd_metadata(random, metadata)
    elif kind == 8:
        rows = random.choice((0, 1, max(0, table.num_rows - 1)))
        columns = [column.slice(0, rows) for column in columns]
    else:
        random.shuffle(columns)
    return pa.table(columns, names=names).replace_schema_metadata(metadata)


def _odd_metadata(random: Random, metadata: Any) -> dict[bytes, bytes]:
    found = (metadata or {}).get(b"pandas", _INDEX)
    odd = json.dumps(odd_value(random)).encode("utf-8", "replace")
    texts = (odd, change_json(random, found), _INDEX, b"5", b"", b"\xff", b"[" * 100_000, b"null")
    wide = {b"pandas": random.choice(texts)}
    return random.choice((wide, wide, {b"ARROW:schema": b"x"}, {}))


def _odd_column(random: Random, n: int) -> Any:
    """A column of n values of some type, with or without nulls."""
    numbers = [random.choice((0, 1, 2, 5, -1, 2**31, 2**53, 0)) for _ in range(n)]
    reals = [random.choice((0.0, 1.5, -1.0, np.nan, np.inf, 1e308)) for _ in range(n)]
    texts = [random.choice(("a", "b", "", "\x00", "1", "x" * 50)) for _ in range(n)]
    whole = [abs(number) for number in numbers]
    columns: tuple[Any, ...] = (
        pa.array(numbers, pa.int64()),
        pa.array(whole, pa.int64()),
        pa.array(whole, pa.uint64()),
        pa.array([number % 2 == 1 for number in whole]),
        pa.array(reals),
        pa.array(np.array([1.0] * n, np.float16)),
        pa.array(texts),
        pa.array(texts, pa.large_string()),
        pa.array(texts).dictionary_encode(),
        pa.array(whole, pa.int64()).dictionary_encode(),
        pa.array([text.encode() for text in texts], pa.binary()),
        pa.array([b"\xff\xfe"] * n, pa.binary()),
        pa.array([None] * n, pa.null()),
        pa.array([None if number == 1 else number for number in whole], pa.int64()),
        pa.array([1] * n, pa.timestamp("ns")),
        pa.array([1] * n, pa.timestamp("us", "UTC")),
        pa.array([1] * n, pa.date32()),
        pa.array([1] * n, pa.duration("s")),
        pa.array([1] * n, pa.time64("us")),
        pa.array([Decimal("1.5")] * n),
        pa.array([Decimal(10) ** 30] * n, pa.decimal256(60, 2)),
        pa.array([Decimal("NaN")] * n) if n == 0 else pa.array([[1, 2]] * n),
        pa.array([{"a": 1}] * n),
        pa.array([[]] * n, pa.list_(pa.int32())),
        pa.array([[("k", 1)]] * n, pa.map_(pa.string(), pa.int64())),
    )
    return random.choice(columns)


def _written(random: Random, table: Any) -> bytes:
    stream = io.BytesIO()
    settings: dict[str, Any] = {
        "compression": random.choice(("snappy", "gzip", "none", "zstd")),
        "row_group_size": random.choice((None, 1, 2)),
        "use_dictionary": random.choice((True, False)),
        "store_schema": random.random() < 0.9,
    }
    if not settings["use_dictionary"]:
        encodings = ("PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")
        strings = (f.name for f in table.schema if f.type in (pa.string(), pa.large_string()))
        settings["column_encoding"] = {name: random.choice(encodings) for name in strings}
    pq.write_table(table, stream, **settings)
    return stream.getvalue()
