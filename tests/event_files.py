"""Small tables of events for the tests of commands, reports and plots."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from klnmf import PoissonCP, SparseTensor
from klnmf.readers.events import whole
from klnmf.support.spreadsheet_cells import as_cell

MODES = ["customer", "product", "date"]


def sales(n_events: int = 600, seed: int = 0, crowd: int = 0) -> dict[str, list[Any]]:
    """Two habits: tea and rice in spring by Ann and Bo, ink and pens in autumn by Cy and Di.

    With a crowd, so many others share each habit.
    """
    generator = np.random.default_rng(seed)
    habits = [(["Ann", "Bo"], ["tea", "rice"], 3), (["Cy", "Di"], ["ink", "pen"], 9)]
    for who, _, _ in habits:
        who += [f"{who[0]} {i}" for i in range(crowd)]
    rows = []
    for _ in range(n_events):
        who, what, month = habits[int(generator.random() < 0.4)]
        day = np.datetime64(f"2024-{month:02d}-01") + int(generator.integers(60))
        rows.append([generator.choice(who), generator.choice(what), str(day)])
    columns = dict(zip(MODES, map(list, zip(*rows, strict=True)), strict=True))
    return columns | {"units": generator.integers(1, 4, n_events).tolist()}


def write_sales(path: Path, **options: Any) -> Path:
    """Write sales as a .csv or .tsv file."""
    columns = sales(**options)
    sign = "\t" if path.suffix == ".tsv" else ","
    lines = [columns, *zip(*columns.values(), strict=True)]
    path.write_text("\n".join(sign.join(map(str, line)) for line in lines) + "\n")
    return path


def tensor_of_sales(bin: str = "month") -> SparseTensor:
    return SparseTensor.from_events(sales(), MODES, "units", bins={"date": bin})


def model_of_sales(bin: str = "month") -> PoissonCP:
    return PoissonCP(2, random_state=0).fit(tensor_of_sales(bin))


def write_table(path: Path, tensor: SparseTensor) -> None:
    """Write nonzeros as events with a ``count``, and a 0 for each slice that has none."""
    parts = [tensor.coords]
    for mode in range(tensor.ndim):
        empty = np.flatnonzero(tensor.margin(mode) == 0)
        parts.append(np.outer(np.arange(tensor.ndim) == mode, empty).astype(np.int32))
    coords = np.hstack(parts)
    count = np.append(tensor.values, np.zeros(coords.shape[1] - tensor.nnz))
    names = zip(tensor.mode_names, tensor.labels, coords, strict=True)
    columns = {name: at if labels is None else labels[at] for name, labels, at in names}
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns | {"count": whole(count)}), path)
        return
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter="\t" if ".tsv" in path.name else ",")
    writer.writerow(map(as_cell, [*columns, "count"]))
    cells = (map(as_cell, column.tolist()) for column in [*columns.values(), count])
    writer.writerows(zip(*cells, strict=True))
    content = stream.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
