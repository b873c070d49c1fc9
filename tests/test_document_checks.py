"""Documents that need a word: missing, without words, copies, and badly explained ones."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from klnmf import EmptySamplesWarning, TopicModel
from klnmf.readers import read_documents
from klnmf.topic_model import document_checks
from klnmf.topic_model.document_checks import deviance_ratios
from topic_texts import TEXTS, topic_about

SETTINGS: dict[str, Any] = {"max_df": 1.0, "random_state": 0, "n_threads": 1}
# Between the texts: two that are missing, an empty one, one without a word that another has, a copy
# of the first, and a text of one word.
ODD = [None, float("nan"), "", "xyzzy plugh", TEXTS[0], " ".join(["ship"] * 60)]


def frame() -> pd.DataFrame:
    return pd.DataFrame({"body": [*TEXTS, *ODD], "year": np.arange(len(TEXTS) + len(ODD))})


@pytest.fixture(scope="module", name="model")
def model_of_odd_documents() -> TopicModel:
    with pytest.warns(EmptySamplesWarning):
        return TopicModel(3, **SETTINGS).fit(frame(), text="body")


def written(kind: str, folder: Path) -> Path:
    path = folder / f"letters.{kind}"
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        frame().to_parquet(path)
    elif kind == "jsonl":
        frame().to_json(path, orient="records", lines=True)
    else:
        frame().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_missing_texts_in_a_table_and_in_a_file(
    kind: str, model: TopicModel, tmp_path: Path
) -> None:
    path = written(kind, tmp_path)
    assert read_documents(path, text_field="body").texts[len(TEXTS) :][:3] == ["", "", ""]
    with pytest.warns(EmptySamplesWarning) as caught:
        read = TopicModel(3, **SETTINGS).fit(path, text="body")
    assert [str(warning.message) for warning in caught] == [
        "4 of 96 documents have no words left: rows 90 ('document 90'), 91 ('document 91'), 92 "
        "('document 92'), 93 ('document 93'). They get no topic. 3 of them have no text at all."
    ]
    np.testing.assert_array_equal(read.W_, model.W_)
    assert read.summary() == model.summary()
    assert read.metadata_ == model.metadata_
    assert not read.shares_[90:94].any()


def test_missing_texts_in_a_list_and_in_new_texts(model: TopicModel) -> None:
    with pytest.warns(
        EmptySamplesWarning,
        match=r"1 of 91 documents .* It gets no topic\. It has no text at all\.",
    ):
        TopicModel(3, **SETTINGS).fit([*TEXTS, pd.NA])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptySamplesWarning)
        assert not model.transform(pd.Series([TEXTS[0], None]))[1].any()


def test_the_summary_counts_documents_that_need_a_word(model: TopicModel, tmp_path: Path) -> None:
    said = (
        "Documents: 3 without text, 1 without words of the vocabulary, 1 exact copies of others, 1 "
        "explained badly (more than 2 times the deviance that the model expects)."
    )
    assert said in model.summary()
    assert model.deviance_ratio_ is not None
    assert np.flatnonzero(model.deviance_ratio_ > 2).tolist() == [95]
    assert np.flatnonzero(np.isnan(model.deviance_ratio_)).tolist() == [90, 91, 92, 93]
    model.save(tmp_path / "m.klnmf")
    assert said in TopicModel.load(tmp_path / "m.klnmf").summary()


def test_empty_documents_have_an_empty_excerpt(model: TopicModel, tmp_path: Path) -> None:
    model.save(tmp_path / "m.klnmf")
    for each in (model, TopicModel.load(tmp_path / "m.klnmf")):
        assert each.excerpts_[90:93] == ["", "", ""]


def test_typical_documents_show_no_copies(tmp_path: Path) -> None:
    best = max(range(len(TEXTS)), key=lambda i: TEXTS[i].split().count("ship"))
    texts = [*TEXTS, *[TEXTS[best]] * 8]
    model = TopicModel(3, **SETTINGS).fit(texts)
    assert "8 exact copies of others" in model.summary()
    topic = topic_about(model, "sea")
    shown = model.typical_documents(topic, 6)
    assert len(shown) == 6
    assert shown["excerpt"].is_unique
    page = model.report(tmp_path / "r.html").read_text(encoding="utf-8")
    data = json.loads(re.findall(r'id="report-data">(.*?)</script>', page)[0])
    places = [place for t in data["topics"] if t["id"] == topic for place, _ in t["typical"]]
    excerpts = [data["samples"]["excerpts"][str(place)] for place in places]
    assert len(excerpts) == len(set(excerpts)) == 5


def test_ratios_of_poisson_counts_are_1(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    H = generator.gamma(0.1, size=(4, 3000))
    H /= H.sum(axis=1, keepdims=True)
    W = generator.gamma(0.5, size=(400, 4)) * 60
    X = generator.poisson(W @ H)
    found = deviance_ratios(X, W, H)
    assert np.average(found, weights=X.sum(axis=1)) == pytest.approx(1.0, abs=0.03)
    monkeypatch.setattr(document_checks, "_WORDS", 10**6)
    monkeypatch.setattr(document_checks, "_NUMBERS", 3000 * 7)
    in_blocks = deviance_ratios(X, W, H, 1)  # with all words
    np.testing.assert_allclose(found, in_blocks, rtol=0.1)
    np.testing.assert_array_equal(in_blocks, deviance_ratios(X, W, H, 3))  # in threads
    assert deviance_ratios(np.eye(2), np.zeros((2, 1)), np.zeros((1, 2))).tolist() == [np.inf] * 2
