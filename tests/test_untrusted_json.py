"""JSON of strangers: a value, or a ValueError."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from klnmf import load_model
from klnmf.saved import SavedFileError
from klnmf.support.untrusted_json import parse_json, read_json


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_depth_is_bounded(opening: str) -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json(opening * 200_000)


@pytest.mark.parametrize("text", ["", "{", b"\xff", "9" * 5000, '{"a": 1} x'])
def test_all_that_is_wrong_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_size_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1, 2]")
    assert read_json(tmp_path / "a.json", 6) == [1, 2]
    with pytest.raises(ValueError, match="it has more than 5 bytes"):
        read_json(tmp_path / "a.json", 5)


def test_models_with_deep_headers_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model", "w") as archive:
        archive.writestr("header.json", "[" * 200_000)
    with pytest.raises(SavedFileError, match="nested too deep"):
        load_model(tmp_path / "model")
