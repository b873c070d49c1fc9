"""Small tables of events for the tests of commands, reports and plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from klnmf import PoissonCP, SparseTensor

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
