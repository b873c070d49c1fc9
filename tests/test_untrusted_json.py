"""JSON of strangers: a value, or a ValueError."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from klnmf import load_model
from klnmf.saved import SavedFileError
from klnmf.support.untrusted_json import DEPTH_LIMIT, parse_json, read_json


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_depth_is_bounded(opening: str) -> None:
    closing = {"[": "]", '{"a":': "}", '[{"a":': "}]"}[opening]
    per_step = len(closing)

    def nested(depth: int) -> str:
        return opening * (depth // per_step) + "1" + closing * (depth // per_step)

    for text in (nested(DEPTH_LIMIT), nested(DEPTH_LIMIT).encode()):
        assert parse_json(text) == json.loads(text)
    for depth in (DEPTH_LIMIT + 2, 900, 200_000):
        with pytest.raises(ValueError, match="nested more than 100 deep"):
            parse_json(nested(depth))
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        parse_json(opening * 200_000)


def test_many_lists_side_by_side_are_not_deep() -> None:
    text = "[" + ",".join(["[]"] * 1000) + "]"
    assert parse_json(text) == [[]] * 1000
    assert parse_json(json.dumps({"text": "[{" * 1000})) == {"text": "[{" * 1000}


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
    for text in ("[" * 200_000, '{"content": ' + "[" * 500 + "]" * 500 + "}"):
        with zipfile.ZipFile(tmp_path / "model", "w") as archive:
            archive.writestr("header.json", text)
        with pytest.raises(SavedFileError, match="nested more than 100 deep"):
            load_model(tmp_path / "model")
