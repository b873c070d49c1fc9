"""A consensus in a file, in klnmf's open format."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.saved.arrays import FLOATS, INDICES, array_named, is_factor
from klnmf.saved.container import Container, SavedFileError, read_container, write_container
from klnmf.saved.fields import Fields, number_to_json

KIND = "consensus"
_NUMBERS = ("divergence", "kkt_residual", "density_threshold")
_DIMENSIONS = {"components": 2, "W": 2, "spectra": 2}  # all others have one


def write_consensus(path: str | os.PathLike[str], result: Any) -> None:
    """Write all fields of a Consensus."""
    arrays = {
        field.name: np.ascontiguousarray(getattr(result, field.name))
        for field in fields(result)
        if field.name not in _NUMBERS
    }
    content = {name: number_to_json(float(getattr(result, name))) for name in _NUMBERS}
    write_container(Path(path), Container(KIND, content, arrays))


def read_consensus(path: str | os.PathLike[str], kind: type[Any]) -> Any:
    """Read what `write_consensus` wrote, or raise a SavedFileError."""
    container = read_container(Path(path), KIND)
    content = Fields(container.content, "content")
    try:
        values: dict[str, Any] = {name: content.number(name) for name in _NUMBERS}
        for field in fields(kind):
            if field.name not in _NUMBERS:
                types = INDICES if field.name == "labels" else FLOATS
                values[field.name] = array_named(
                    container.arrays, field.name, types, _DIMENSIONS.get(field.name, 1)
                )
        _check_sizes(values)
    except SavedFileError as error:
        raise SavedFileError(f"{path} cannot be read: {error}") from error
    return kind(**values)


def _check_sizes(values: dict[str, Any]) -> None:
    r, m = values["components"].shape
    n_runs = len(values["run_objectives"])
    wanted = {
        "W": (len(values["W"]), r),
        "spectra": (n_runs * r, m),
        **dict.fromkeys(("stability", "run_share", "silhouette"), (r,)),
        **dict.fromkeys(("labels", "neighbour_distance"), (n_runs * r,)),
    }
    for name, shape in wanted.items():
        if values[name].shape != shape:
            raise SavedFileError(f"{name} has the shape {values[name].shape}, not {shape}.")
    for name in ("components", "W", "spectra"):
        if not is_factor(values[name]):
            raise SavedFileError(f"{name} has entries that are negative or not finite.")
    labels = values["labels"]
    if len(labels) and not (labels.min() >= -1 and labels.max() < r):
        raise SavedFileError(f"its labels are not those of {r} components.")
