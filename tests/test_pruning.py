"""Features that are left out, and stop words, in all formats alike."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from klnmf.readers import CountTable, ReadError, open_matrix, prepare, read_counts, write_counts
from klnmf.texts.stop_words import is_available, stop_words_of

TEXTS = [
    "the sea and the ship and the sea",
    "The corn on the field",
    "a ship on the sea, sail",
    "field, corn, corn and sun",
    "sea",
]
ALL = CountVectorizer().fit(TEXTS)


def saved(path: Path) -> Path:
    """Write all counts of the texts, or the texts themselves, in the format of the name."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    else:
        words = ALL.get_feature_names_out()
        write_counts(CountTable(ALL.transform(TEXTS), None, words), path)
    return path


@pytest.mark.parametrize("name", ["a.npz", "a.mtx", "a.csv", "a.parquet", "a.h5ad", "a.jsonl"])
@pytest.mark.parametrize(
    "options",
    [
        {"min_df": 2},
        {"max_df": 2},
        {"min_df": 0.4, "max_df": 0.6},
        {"max_features": 4},
        {"min_df": 2, "max_features": 2},
        {"stop_words": ["the", "And", "on"]},
        {"stop_words": "english", "min_df": 2},
    ],
)
def test_features_are_left_out_as_scikit_learn_does(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    lower = options | {"stop_words": ["the", "and", "on"]} if "And" in str(options) else options
    expected = CountVectorizer(**lower)
    X = expected.fit_transform(TEXTS)
    found = read_counts(saved(tmp_path / name), **options)
    assert found.column_names.tolist() == expected.get_feature_names_out().tolist()
    np.testing.assert_array_equal(found.X.toarray(), X.toarray())


def test_a_kept_feature_keeps_its_id_and_samples_keep_what_they_have() -> None:
    table = CountTable(
        [[1, 0, 2], [1, 1, 1]],
        ["a", "b"],
        ["x", "y", "z"],
        ["l", "m"],
        column_ids=["1", "2", "3"],
        metadata={"year": [1, 2]},
    )
    found = table.with_features(np.array([0, 2]))
    assert (found.column_ids.tolist(), found.labels.tolist()) == (["1", "3"], ["l", "m"])
    assert found.metadata == {"year": [1, 2]}
    assert found.X.toarray().tolist() == [[1, 2], [1, 1]]


def test_prepared_matrices_are_pruned_before(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.npz")
    prepare(source, tmp_path / "disk", min_df=3)
    assert open_matrix(tmp_path / "disk").column_names.tolist() == ["sea", "the"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_df": 2, "max_df": 0.5},
        {"max_features": 4, "stop_words": "english"},
        {"ngram_range": (1, 2), "binary": True, "max_features": 5},
    ],
)
def test_texts_are_prepared_without_being_held(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words of a file of texts are counted in blocks, and are those of the whole file."""
    source, lines = tmp_path / "a.csv", list[str]()
    source.write_text("id,body\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS)))
    reading = {"text_field": "body", "id_field": "id", **options}
    expected = read_counts(source, **reading)
    monkeypatch.setattr("klnmf.readers.preparing.BYTES_PER_ENTRY", 1 << 16)  # blocks of 16 letters
    monkeypatch.setattr(CountTable, "__post_init__", None)  # no table in memory
    found = prepare(source, tmp_path / "disk", memory="1M", say=lines.append, **reading)
    monkeypatch.undo()
    assert not any("into memory" in line for line in lines)
    assert found.open_features
    assert found.column_names.tolist() == expected.column_names.tolist()
    assert found.row_names.tolist() == expected.row_names.tolist()
    table = read_counts(tmp_path / "disk")
    np.testing.assert_array_equal(table.X.toarray(), expected.X.toarray())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_df": 1.5}, r"min_df must be a number of samples \(1, 2, ...\) or a share"),
        ({"max_df": 0}, "max_df must be a number of samples"),
        ({"max_features": 0}, "max_features must be a whole number of at least 1; got 0"),
        (
            {"min_df": 6},
            "min_df=6 is more than the number of samples, 5. Choose a lower min_df",
        ),
        (
            {"min_df": 3, "max_df": 2},
            "no feature is in 3 or more of 5 samples and in 2 or fewer. To keep all features, use",
        ),
        (
            {"min_df": 5},
            "none of its 9 features is in 5 to 5 of 5 samples. To keep all features, use min_df=1 "
            "and max_df=1.0",
        ),
        (
            {"stop_words": ALL.get_feature_names_out().tolist()},
            "stop words. Give fewer stop_words",
        ),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    for name in ("a.npz", "a.jsonl"):
        with pytest.raises(ValueError, match=message):
            read_counts(saved(tmp_path / name), **options)


def test_stop_words_need_names(tmp_path: Path) -> None:
    write_counts(CountTable(np.eye(3)), tmp_path / "a.npz")
    with pytest.raises(ReadError, match=r"no names, so that .* Add column_names='FILE'"):
        read_counts(tmp_path / "a.npz", stop_words="english")


# ---- lists of stop words -------------------------------------------------------------------------


def test_stop_words_of_languages_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(stop_words_of("english")) == ENGLISH_STOP_WORDS
    assert {"der", "und"} <= set(stop_words_of("german"))
    assert stop_words_of("de") == stop_words_of("german")
    path = tmp_path / "words"
    path.write_text("\ufeffder\r\n\r\n und \n", encoding="utf-8")
    assert stop_words_of(path) == ["der", "und"] == stop_words_of(str(path))
    assert is_available(str(path))
    assert is_available("german")
    assert is_available(["der"])
    assert not is_available("klingon")
    both = set(stop_words_of("english")) | set(stop_words_of("german"))
    for given in ("english,german", ["en", "german"], "english, de"):
        assert set(stop_words_of(given)) == both
        assert is_available(given)
    assert set(stop_words_of(f"english,{path}")) == {*ENGLISH_STOP_WORDS, "der", "und"}
    assert stop_words_of(["english", "letter"]) == ["english", "letter"]  # words
    with pytest.raises(ValueError, match=r"'klingon' is neither a .* The languages are: arabic, b"):
        stop_words_of("klingon")
    with pytest.raises(ValueError, match=r"'germn' is neither .* Did you mean 'german'\?"):
        stop_words_of("english,germn")
    with pytest.raises(ValueError, match="must be a list of str"):
        stop_words_of([1])  # type: ignore[list-item]
    path.write_text("\n")
    with pytest.raises(ReadError, match="no stop words in this file"):
        stop_words_of(path)
    monkeypatch.setitem(sys.modules, "stop_words", None)
    monkeypatch.setattr("klnmf.texts.stop_words.installed_version", lambda name: None)
    with pytest.raises(ImportError, match=r"klnmf\[texts\]"):
        stop_words_of("german")


def test_stop_words_are_normalised_as_the_texts_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Über ﬁsch Don't U\u0308ber sea")
    options = {"normalize": "NFKC", "stop_words": ["ÜBER", "fisch", "don't", "two words"]}
    assert read_counts(tmp_path, **options).column_names.tolist() == ["sea"]
    kept = read_counts(tmp_path, lowercase=False, **options).column_names.tolist()
    assert kept == ["Don", "sea", "Über"]
