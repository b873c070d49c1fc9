"""Columns of metadata in a model file: one value for each sample."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from klnmf import load_model
from klnmf.saved import SavedFileError
from klnmf.saved.container import Container, read_container, write_container
from saved_model_checks import COUNTS, fitted

N = COUNTS.shape[0]


def stored(path: Path, **columns: Any) -> dict[str, list[Any]]:
    fitted().save(path, sample_metadata=columns)
    return load_model(path).sample_metadata


def of_length(*values: Any) -> list[Any]:
    return [values[i % len(values)] for i in range(N)]


def test_numbers_texts_and_dates_come_back(tmp_path: Path) -> None:
    days = of_length(datetime.date(2020, 2, 29), None)
    found = stored(
        tmp_path / "m.klnmf",
        year=of_length(1611, np.int64(1769)),
        score=of_length(0.5, None, float("nan")),
        city=of_length("Ωxford", "", None, "lone \ud800"),
        day=days,
        flag=of_length(True, False),
    )
    assert list(found) == ["year", "score", "city", "day", "flag"]
    assert found["year"] == of_length(1611, 1769)
    assert type(found["year"][0]) is int
    assert found["score"][0] == 0.5
    assert np.isnan(found["score"][1:3]).all()
    assert found["city"][:4] == ["Ωxford", None, None, "lone ?"]
    assert found["day"] == of_length("2020-02-29", None)
    assert found["flag"][:2] == ["True", "False"]


def test_a_file_without_them_has_none(tmp_path: Path) -> None:
    assert stored(tmp_path / "m.klnmf") == {}


def test_a_column_of_another_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"'year'\] has 2 values for {N} samples"):
        fitted().save(
            tmp_path / "m.klnmf", sample_names=of_length("a"), sample_metadata={"year": [1, 2]}
        )
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": "a"},
        [{"name": "a", "kind": "code"}],
        [{"name": "a", "kind": "number"}, {"name": "a", "kind": "number"}],
        [{"name": "a", "kind": "text"}],
        [{"name": 1, "kind": "number"}],
        ["a"],
    ],
)
def test_strange_columns_are_refused(metadata: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.klnmf"
    stored(path, a=of_length(1.0))
    found = read_container(path, "model")
    found.content["samples"]["metadata"] = metadata
    write_container(path, Container("model", found.content, found.arrays))
    with pytest.raises(SavedFileError):
        load_model(path)


def test_a_short_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.klnmf"
    stored(path, a=of_length(1.0))
    found = read_container(path, "model")
    short = {**found.arrays, "sample_metadata.0": np.ones(3)}
    write_container(path, Container("model", found.content, short))
    with pytest.raises(SavedFileError, match="'a' has 3 values for"):
        load_model(path)
