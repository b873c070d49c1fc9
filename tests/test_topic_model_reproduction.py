"""What a report prints under "Reproduce" gives the same bits."""

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from klnmf import KLNMF, TopicModel
from klnmf.cli import main
from klnmf.readers import read_documents
from klnmf.topics.checks import dense

WORDS = ["Ship", "sea", "harbour", "wind", "corn", "rain", "field", "ox", "king", "crown", "law"]
WORDS += ["court", "the"]


@pytest.fixture
def letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """A table of texts, in a file too, in the current folder."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    texts = [
        " ".join(
            ["the", *generator.choice(WORDS[4 * k : 4 * k + 4], 12), *generator.choice(WORDS, 2)]
        )
        for k in generator.integers(3, size=50)
    ]
    table = pd.DataFrame({"no": [f"L{i}" for i in range(50)], "body": texts, "year": range(50)})
    table.to_csv("all letters.csv", index=False, encoding="utf-16")
    table.to_csv("letters.csv", index=False)
    Path("left out.txt").write_text("the\ncorn\n")
    return table


def printed(model: TopicModel) -> str:
    page = model.report("page.html").read_text(encoding="utf-8")
    found = re.search('<code id="python-snippet">(.*?)</code>', page, re.DOTALL)
    assert found
    return html.unescape(found[1])


def assert_code_fits_the_same(code: str, model: TopicModel, capsys: Any, **put_in: Any) -> None:
    for name in put_in:
        code, n_replaced = re.subn(rf"^{name} = \.\.\.  # put in .*\n", "", code, flags=re.M)
        assert n_replaced == 1
    assert "..." not in code
    namespace = dict(put_in)
    exec(code, namespace)
    again = namespace["model"]
    assert capsys.readouterr().out.endswith("True\n")  # the comparison of the counts
    np.testing.assert_array_equal(dense(again.nmf_.components_), model.nmf_.components_)
    np.testing.assert_array_equal(dense(again.W_), model.W_)
    assert again.words_.tolist() == model.words_.tolist()
    assert again.topic_names_ == model.topic_names_


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stop_words": "english", "min_df": 0.02, "max_df": 40, "ngram_range": (1, 2)},
        {
            "stop_words": Path("left out.txt"),
            "nmf": KLNMF(n_init=2, dtype=np.float32, l1_W=0.1, l1_H=0.1),
        },
        {"vectorizer": CountVectorizer(lowercase=False, token_pattern=r"[a-z]{4,}|'\w")},
        {"n_topics": [2, 3], "stop_words": ["english", "german"], "max_features": 6},
    ],
    ids=["plain", "words", "file and nmf", "vectorizer", "chosen rank"],
)
def test_code_gives_the_same_bits(
    letters: pd.DataFrame, capsys: Any, options: dict[str, Any]
) -> None:
    options = {"n_topics": 3, "random_state": 7} | options
    model = TopicModel(**options).fit("letters.csv", text="body")
    model.rename({1: 'The sea\'s "king"\t; rm *'})
    model.save("letters.klnmf")
    for fitted in (model, TopicModel.load("letters.klnmf")):
        assert_code_fits_the_same(printed(fitted), model, capsys)


def test_seeds_and_merges_are_in_the_code(
    letters: pd.DataFrame, tmp_path: Path, capsys: Any
) -> None:
    seeds = {"Sea": ["ship", "wind"], "Law": ["court"]}
    model = TopicModel(6, seed_words=seeds, stop_words=["the", "ox"], random_state=1)
    model.fit("letters.csv", text="body")
    code = printed(model)
    assert "rename" not in code  # the seeds give their names
    assert_code_fits_the_same(code, model, capsys)
    model.rename({3: "Land"}).merge([["Sea", 4], [3, 5]]).merge([[0, 1]])
    model.save("letters.klnmf")
    for fitted in (model, TopicModel.load("letters.klnmf")):
        code = printed(fitted)
        assert_code_fits_the_same(code, model, capsys)
    main(["report", "letters.klnmf", "-o", "other.html", "--quiet"])
    assert code in html.unescape(Path("other.html").read_text(encoding="utf-8"))


def test_documents_that_were_read_with_options(letters: pd.DataFrame, capsys: Any) -> None:
    how: dict[str, Any] = {"encoding": "utf-16", "skip_unreadable": True}
    read = read_documents("all letters.csv", text_field="body", id_field="no", **how)
    for model in (
        TopicModel(3, random_state=0).fit(read),
        TopicModel(3, random_state=0).fit("all letters.csv", text="body", **how),
    ):
        assert_code_fits_the_same(printed(model), model, capsys)


def test_what_is_not_in_a_file_must_be_put_in(letters: pd.DataFrame, capsys: Any) -> None:
    model = TopicModel(3, random_state=0).fit(letters, text="body")
    assert_code_fits_the_same(printed(model), model, capsys, table=letters)
    own = CountVectorizer(tokenizer=str.split, token_pattern=None)
    model = TopicModel(3, vectorizer=own, nmf=KLNMF(feature_weight=np.ones(13)), random_state=0)
    model.fit(letters["body"])
    put_in = {"tokenizer": str.split, "feature_weight": np.ones(13), "texts": letters["body"]}
    assert_code_fits_the_same(printed(model), model, capsys, **put_in)


def test_a_file_cannot_put_code_on_the_page(letters: pd.DataFrame) -> None:
    model = TopicModel(3, random_state=0).fit("letters.csv", text="body")
    evil = "x'); print(1)\nprint(2)"
    for source in (evil, {"path": evil, evil: 1, "text_field": evil}, {"path": [evil]}):
        for merges in (evil, [[[evil]]], [[[0, 1]]]):
            model.fit_facts_ = json.loads(
                json.dumps(model.fit_facts_ | {"source": source, "merges": merges})
            )
            code = printed(model)
            assert not re.search(r"^print\([12]", code, re.M)
            compile(code, "code", "exec")
