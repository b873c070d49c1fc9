"""What `TopicModel` takes as texts, and what it refuses."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from klnmf import KLNMF, TextsWarning, TopicModel
from klnmf.readers import read_documents
from klnmf.texts.documents import LONGEST_EXCERPT, excerpt_of
from klnmf.topic_model.corpus import corpus_of

TEXTS = ["a ship at sea", "rain on corn", "the ship and the rain"]


@pytest.mark.parametrize(
    "texts",
    [TEXTS, tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, dtype=object), pd.Series(TEXTS)],
)
def test_sequences_of_str(texts: Any) -> None:
    found = corpus_of(texts)
    assert list(found.texts) == TEXTS
    assert found.names == ["document 0", "document 1", "document 2"]
    assert found.metadata == {}


JAPANESE = [
    "吾輩は猫である。名前はまだ無い。",
    "どこで生れたかとんと見当がつかぬ。",
    "何でも薄暗い所",
]
TAGGED = ["The <br /> sea", "corn</p>", "a < b and c > d"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            JAPANESE,
            r"no spaces .*'(吾輩は猫である|名前はまだ無い)'.*token_pattern=r\"\\w\"",
        ),
        (["ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำ", *TEXTS], "1 of 4 texts have no spaces between words"),
        ([*TEXTS * 60, *TAGGED], r"2 of 183 texts have HTML tags"),
        (TAGGED, r"2 of 3 texts have HTML tags, such as '<br />'.*re.sub\(r'<\[\^<>\]\*>', ' '"),
    ],
)
def test_texts_whose_words_are_not_what_is_counted(texts: list[str], message: str) -> None:
    model = TopicModel(1, min_df=1, max_df=1.0)
    with pytest.warns(TextsWarning, match=message) as caught:
        model.fit(texts)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        ([*TEXTS, "a < b", "I <3 c"], {}),
        ([*TEXTS, "what </b> means"], {}),
        (["in 日本語の文章です it was said, and then some more"] * 3, {}),
        (["안녕하세요 저는 학생입니다 오늘은", "für die Übung an der See"], {}),
        (["吾輩 は 猫 で ある 。", "名前 は まだ 無い 。"], {}),
        (JAPANESE, {"analyzer": "char", "ngram_range": (2, 2)}),
        (JAPANESE, {"token_pattern": r"\w", "ngram_range": (2, 2)}),
        (JAPANESE, {"tokenizer": list, "token_pattern": None}),
        (TAGGED, {"preprocessor": lambda text: text.replace("<br />", " ")}),
    ],
)
def test_texts_whose_words_are_counted(texts: list[str], options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", TextsWarning)
        TopicModel(1, vectorizer=CountVectorizer(**options)).fit(texts)


def test_an_iterator() -> None:
    assert corpus_of(iter(TEXTS)).texts == TEXTS


def test_a_column_of_a_data_frame_with_metadata() -> None:
    frame = pd.DataFrame(
        {"year": [1, 2, 3], "abstract": TEXTS, "by": list("abc")}, index=["x", "y", "z"]
    )
    found = corpus_of(frame, "abstract", {"more": [7, 8, 9]})
    assert found.texts == TEXTS
    assert found.names == ["x", "y", "z"]
    assert found.metadata == {"year": [1, 2, 3], "by": ["a", "b", "c"], "more": [7, 8, 9]}
    assert corpus_of(frame[["abstract"]]).texts == TEXTS


def test_the_column_must_be_named() -> None:
    frame = pd.DataFrame({"title": TEXTS, "abstract": TEXTS})
    with pytest.raises(ValueError, match=r"'title', 'abstract'\. Say which .*: text=COLUMN"):
        corpus_of(frame)
    with pytest.raises(ValueError, match=r"none is 'abstracts'\. Did you mean text='abstract'\?"):
        corpus_of(frame, "abstracts")
    with pytest.raises(ValueError, match="of which several are 'text'"):
        corpus_of(frame.set_axis(["text", "text"], axis=1), "text")
    with pytest.raises(ValueError, match="texts has no columns"):
        corpus_of(TEXTS, "abstract")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (["x", "y", "z"], {"label": ["x", "y", "z"]}),
        (pd.Series([1, 2, 3], name="year"), {"year": [1, 2, 3]}),
        (pd.DataFrame({"a": [1, 2, 3]}), {"a": [1, 2, 3]}),
        ({"a": np.arange(3)}, {"a": [0, 1, 2]}),
    ],
)
def test_metadata(metadata: Any, expected: dict[str, Any]) -> None:
    assert corpus_of(TEXTS, metadata=metadata).metadata == expected


@pytest.mark.parametrize("metadata", [{"a": [1]}, {"a": "xyz"}, {"a": 5}, "xyz"])
def test_metadata_of_another_length(metadata: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="metadata"):
        corpus_of(TEXTS, metadata=metadata)


def test_metadata_are_not_y() -> None:
    with pytest.raises(TypeError, match="metadata by name"):
        TopicModel(2).fit(TEXTS, {"year": [1, 2, 3]})


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        (b"bytes", "is bytes, not a str. Decode it first"),
        (3, "is 3, not a str. Is it the right column"),
        (["tokens"], r"is \['tokens'\], not a str. Join the words"),
        (pd.DataFrame({"a": [1]}), r"is a DataFrame of shape \(1, 1\), not a str"),
    ],
)
def test_an_entry_that_is_no_text_is_named(entry: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=rf"texts\[1\] \(document 1\) {shown}"):
        TopicModel(2).fit([TEXTS[0], entry, TEXTS[2]])
    with pytest.raises(ValueError, match=rf"texts\[1\] \(b\) {shown}"):
        corpus_of(pd.Series([TEXTS[0], entry, TEXTS[2]], index=list("abc"), dtype=object))


def test_one_str_is_no_list_of_texts() -> None:
    with pytest.raises(ValueError, match=r"a single text, 'a ship at sea'\. Pass a list of texts"):
        TopicModel(2).fit("a ship at sea")


@pytest.mark.parametrize("texts", [5, b"text", {"a": "b"}, None, np.array([["a"], ["b"]])])
def test_what_is_no_sequence_of_texts(texts: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="texts must be a sequence of str"):
        TopicModel(2).fit(texts)


def test_without_texts() -> None:
    with pytest.raises(ValueError, match=r"There are no texts\."):
        TopicModel(2).fit([])


@pytest.mark.parametrize(
    ("texts", "stop_words", "message"),
    [
        (["", " "], "english", r"All 2 texts are empty or missing\.$"),
        (["the of", "and"], "english", "There are no words besides stop words. Give fewer stop_w"),
        (["a b", "c"], None, r"give vectorizer=CountVectorizer\(token_pattern='REGEX'\)"),
    ],
)
def test_without_words(texts: list[str], stop_words: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TopicModel(2, stop_words=stop_words, min_df=1, max_df=1.0).fit(texts)


def test_too_few_texts_for_the_defaults() -> None:
    with pytest.raises(
        ValueError, match=r"no word is .* of 3 documents .* use min_df=1 and max_df=1\.0"
    ):
        TopicModel(2).fit(TEXTS)


# ---- files ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, text in enumerate(TEXTS):
        (tmp_path / f"{i}.txt").write_text(text, encoding="utf-8")
    return tmp_path


def test_paths_of_files(folder: Path) -> None:
    paths = sorted(folder.glob("*.txt"))
    found = corpus_of(paths)
    assert found.texts == TEXTS
    assert found.names == [str(path) for path in paths]
    with pytest.raises(ValueError, match="names of files"):
        corpus_of([str(path) for path in paths])


def test_a_folder(folder: Path) -> None:
    found = corpus_of(folder)
    assert found.texts == TEXTS
    assert found.names == ["0.txt", "1.txt", "2.txt"]
    assert corpus_of(str(folder)) == found


def test_a_folder_of_folders(folder: Path) -> None:
    for i in range(3):
        (folder / "ab"[i % 2]).mkdir(exist_ok=True)
        (folder / f"{i}.txt").rename(folder / "ab"[i % 2] / f"{i}.txt")
    assert list(corpus_of(folder).metadata.values()) == [["a", "a", "b"]]


def test_a_table_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "letters.csv"
    path.write_text("year,body\n" + "\n".join(f"{1900 + i},{t}" for i, t in enumerate(TEXTS)))
    found = corpus_of(path, "body")
    assert found.texts == TEXTS
    assert found.metadata == {"year": [1900, 1901, 1902]}
    with pytest.raises(ValueError, match=r"'year', 'body'. Choose one of them with text='NAME'"):
        corpus_of(path)
    with pytest.raises(ValueError, match=r"no field 'bdy'; .* Did you mean text='body'\?"):
        corpus_of(path, "bdy")
    path.write_text("year;body\n1900;a ship\n")
    with pytest.raises(ValueError, match=r"for example read_documents\(path, delimiter=';'\)"):
        corpus_of(path, "body")
    with pytest.raises(FileNotFoundError, match=r"no file .*leters\.csv'\. Did you mean .*letters"):
        TopicModel(2).fit(str(path.with_name("leters.csv")))
    path.with_name("t.csv").touch()
    with pytest.raises(FileNotFoundError, match=r"no file .*nope\.csv'\.$"):  # equal endings only
        TopicModel(2).fit(str(path.with_name("nope.csv")))


def test_files_in_another_encoding_and_files_that_cannot_be_read(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.txt" for name in "abc"]
    for path, text in zip(paths, TEXTS, strict=True):
        path.write_text(f"{text} café", encoding="latin-1")
    for given in (tmp_path, paths):
        with pytest.raises(ValueError, match=r"encoding='latin-1'.* add skip_unreadable=True\."):
            TopicModel(2).fit(given)
        assert corpus_of(given, encoding="latin-1").texts[0] == f"{TEXTS[0]} café"
    paths[1].write_text("sea and ship")
    for given in (tmp_path, paths):
        with pytest.raises(ValueError, match=r"left out 2 documents .*: a\.txt, .*; c\.txt, "):
            corpus_of([paths[0], paths[2]], skip_unreadable=True)
        assert corpus_of(given, skip_unreadable=True).texts == ["sea and ship"]
    with pytest.raises(ValueError, match="encoding is for files, and these texts are in memory"):
        TopicModel(2).fit(TEXTS, encoding="latin-1")


@pytest.mark.parametrize(
    "parameters",
    [
        *({"n_topics": 0}, {"n_topics": "many"}, {"n_topics": [2, 0]}, {"n_topics": None}),
        *({"min_df": 1.5}, {"max_df": "all"}, {"max_features": 0}, {"stop_words": "klingon"}),
        *({"ngram_range": (2, 1)}, {"seed_words": ["sea"]}, {"nmf": KLNMF(tol=-1)}),
        *({"vectorizer": CountVectorizer(token_pattern="(")}, {"random_state": -1}),
    ],
)
def test_parameters_are_checked_before_any_text_is_read(parameters: dict[str, Any]) -> None:
    class Unread:
        def __fspath__(self) -> str:
            raise AssertionError("the texts were read")

    with pytest.raises((TypeError, ValueError)):
        TopicModel(**{"n_topics": 2, **parameters}).fit(Unread())


def test_documents_that_were_read(tmp_path: Path) -> None:
    path = tmp_path / "letters.jsonl"
    path.write_text(
        "".join(f'{{"id": "l{i}", "t": "{t}", "l": "x"}}\n' for i, t in enumerate(TEXTS))
    )
    documents = read_documents(path, text_field="t", id_field="id", label_field="l")
    found = corpus_of(documents)
    assert (found.texts, found.names) == (TEXTS, ["l0", "l1", "l2"])
    assert found.metadata == {"l": ["x"] * 3}


def test_excerpts_are_short() -> None:
    assert excerpt_of(" a\n\n b ") == "a b"
    assert len(excerpt_of("word " * 10**5)) == LONGEST_EXCERPT
