"""`TopicModel`: topics, documents, tables over a column, names and merges."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import klnmf
from klnmf import KLNMF, TopicModel
from klnmf.objective import kl_divergence
from klnmf.topics import coherence, mean_shares, name_components, top_features
from topic_texts import MAIN, TEXTS, THEMES, model_of_themes, topic_about


@pytest.fixture(scope="module")
def fitted() -> TopicModel:
    return model_of_themes()


@pytest.fixture
def model(fitted: TopicModel) -> TopicModel:
    """A copy that a test may change."""
    copied: TopicModel = pickle.loads(pickle.dumps(fitted))
    return copied


# ---- fit and transform ---------------------------------------------------------------------------


def test_it_is_a_klnmf_of_the_counts(model: TopicModel) -> None:
    vectorizer = CountVectorizer(min_df=2, max_df=1.0)
    X = vectorizer.fit_transform(TEXTS)
    nmf = KLNMF(3, random_state=0)
    W = nmf.fit_transform(X)
    assert (model.counts_ != X).nnz == 0
    assert list(model.words_) == list(vectorizer.get_feature_names_out())
    assert np.array_equal(model.nmf_.components_, nmf.components_)
    assert np.array_equal(model.W_, W)
    assert np.array_equal(model.shares_, nmf.proportions(W))
    assert np.array_equal(model.transform(TEXTS[:4]), nmf.proportions(nmf.transform(X[:4])))


def test_topics_are_found(model: TopicModel) -> None:
    topics = [topic_about(model, theme) for theme in THEMES]
    assert sorted(topics) == [0, 1, 2]
    main = model.documents["main_topic"].map(dict(zip(topics, THEMES, strict=True)))
    assert (main == MAIN).all()


def test_new_texts(model: TopicModel) -> None:
    shares = model.transform(["ship and sea and storm", "nothing known here", ""])
    assert shares[0].argmax() == topic_about(model, "sea")
    assert shares[0].sum() == pytest.approx(1)
    assert not shares[1:].any()


def test_an_unfitted_model_says_so() -> None:
    model = TopicModel()
    calls: list[Any] = [
        lambda: model.transform(["a"]),
        lambda: model.topics,
        lambda: model.documents,
        lambda: model.save("never.klnmf"),
        lambda: model.rename({0: "a"}),
        lambda: model.get_feature_names_out(),
    ]
    for call in calls:
        with pytest.raises(NotFittedError):
            call()


def test_parameters_are_those_of_scikit_learn() -> None:
    model = TopicModel(5, vectorizer=CountVectorizer(), nmf=KLNMF())
    model.set_params(vectorizer__ngram_range=(1, 2), nmf__max_iter=7, random_state=3)
    copied = clone(model)
    assert copied.get_params()["vectorizer__ngram_range"] == (1, 2)
    assert copied.nmf.max_iter == 7
    assert copied.nmf is not model.nmf


def test_fit_leaves_its_parameters_alone() -> None:
    vectorizer, nmf = CountVectorizer(min_df=3), KLNMF(max_iter=300)
    model = TopicModel(3, vectorizer=vectorizer, nmf=nmf, random_state=0, n_threads=1).fit(TEXTS)
    assert not hasattr(vectorizer, "vocabulary_")
    assert not hasattr(nmf, "components_")
    assert nmf.n_components == 10
    assert model.nmf_.max_iter == 300
    assert model.nmf_.random_state == 0
    assert model.vectorizer_.min_df == 3


@pytest.mark.filterwarnings("ignore:Can't test estimator")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_checks_of_scikit_learn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(TopicModel())


def test_in_a_pipeline_with_names_of_topics(model: TopicModel) -> None:
    topics = TopicModel(3, max_df=1.0, random_state=0, n_threads=1)
    pipeline = make_pipeline(topics, LogisticRegression()).fit(TEXTS, MAIN)
    assert pipeline.score(TEXTS, MAIN) > 0.95
    topics = clone(topics).set_output(transform="pandas")
    frame = topics.fit_transform(pd.Series(TEXTS))
    assert list(frame.columns) == topics.topic_names_ == list(topics.get_feature_names_out())
    assert topics.topic_names_ == model.topic_names_
    similar = topics.similar_documents(text="ship and sea")
    assert similar["distance"].tolist() == (
        model.similar_documents(text="ship and sea")["distance"].tolist()
    )


def test_w_is_an_array_whatever_the_output_of_nmf(model: TopicModel) -> None:
    framed = model_of_themes(nmf=KLNMF().set_output(transform="pandas"))
    assert isinstance(framed.W_, np.ndarray)
    np.testing.assert_array_equal(framed.W_, model.W_)
    np.testing.assert_array_equal(framed.transform(TEXTS[:3]), model.transform(TEXTS[:3]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_topics": 0}, "n_topics must be a whole number of at least 1; got 0"),
        ({"n_topics": 2.5}, "n_topics must be a whole number"),
        ({"n_topics": "many"}, 'n_topics must be a number, "auto"'),
        ({"nmf": CountVectorizer()}, "nmf must be a KLNMF"),
        ({"vectorizer": TfidfVectorizer()}, "vectorizer must be a CountVectorizer"),
        ({"vectorizer": CountVectorizer(), "min_df": 3}, "min_df would have no effect"),
        ({"vectorizer": CountVectorizer(input="filename")}, "input='content'"),
        ({"min_df": 80, "max_df": 90}, "To keep all words, use min_df=1 and max_df=1.0"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        TopicModel(**parameters).fit(TEXTS)


def test_the_number_of_topics_is_chosen() -> None:
    model = model_of_themes(n_topics=np.arange(1, 6))
    assert model.rank_selection_ is not None
    assert model.rank_selection_.best_rank == len(model.topic_names_) == 3
    assert "between 1 and 5. Held-out deviance (5 folds) chooses 3." in model.summary()


def test_auto_is_1_to_40_or_as_many_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from klnmf.topic_model import fitting

    tried: list[Any] = []

    def noted(X: Any, ranks: Any, **options: Any) -> Any:
        tried.append((ranks, options["random_state"]))
        return klnmf.model_selection.select_rank(X, [2, 3], n_splits=2, **options)

    monkeypatch.setattr(fitting, "select_rank", noted)
    assert len(model_of_themes(n_topics="auto").topic_names_) == 3
    assert tried == [(range(1, 29), 0)]  # there are 28 words


@pytest.mark.parametrize("n_topics", ["auto", [2, 3]])
def test_the_number_for_reading_is_taken(
    n_topics: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from klnmf.topic_model import fitting

    def select(X: Any, ranks: Any, **options: Any) -> Any:
        found = klnmf.model_selection.select_rank(X, [2, 3], n_splits=2, **options)
        assert found.best_rank == 3
        return replace(found, stable_rank=2, stability=np.array([0.95, 0.5]))

    monkeypatch.setattr(fitting, "select_rank", select)
    model = model_of_themes(n_topics=n_topics)
    assert len(model.topic_names_) == 2
    for shown in ("2 ", "for reading", "3 ", "<- best"):
        assert shown in str(model.rank_selection_)
    said = (
        "Number of topics: 2, chosen by stability (0.95) from 2 numbers between 2 and 3. Held-out "
        "deviance (2 folds) chooses 3."
    )
    assert said in model.summary()
    page = model.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Held-out counts suggest 3 topics, and 2 for reading</p>" in page
    assert '<div class="verdict bad"' not in page


# ---- tables --------------------------------------------------------------------------------------


def test_topics_table(model: TopicModel) -> None:
    table = model.topics
    columns = ["topic", "name", "share", "n_documents", "coherence", "words"]
    assert list(table.columns) == columns
    assert table["topic"].tolist() == [0, 1, 2]
    assert table["share"].to_numpy() == pytest.approx(model.W_.sum(0) / model.W_.sum(), rel=1e-5)
    assert table["n_documents"].tolist() == [30, 30, 30]
    expected = coherence(model.nmf_.components_, model.counts_)
    assert table["coherence"].to_numpy() == pytest.approx(expected)
    sea = topic_about(model, "sea")
    assert set(table["words"][sea].split(", ")[:8]) == set(THEMES["sea"])
    assert table["name"][sea] == ", ".join(table["words"][sea].split(", ")[:3])


def test_one_ranking_for_names_words_coherence_and_report(tmp_path: Path) -> None:
    """Words of all themes among those of one: weight, FREX and the default lists differ."""
    generator = np.random.default_rng(0)
    common = [f"common{j}" for j in range(40)]
    texts = []
    for i in range(150):
        own = THEMES[list(THEMES)[i % 3]]
        often = 1.0 / (1.0 + np.arange(40))
        shared = generator.choice(common, size=30, p=often / often.sum())
        texts.append(" ".join([*shared, *generator.choice(own, size=9)]))
    model = TopicModel(3, max_df=1.0, random_state=0).fit(texts)
    model.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    data = json.loads(re.findall(r'id="report-data">(.*?)</script>', page)[0])
    cards = {topic["id"]: [data["words"][j] for j in topic["words"]] for topic in data["topics"]}
    by_weight = model.topic_words(by="weight")
    for k, row in model.topics.iterrows():
        shown = row["words"].split(", ")
        assert shown != [word for word, _ in by_weight[k]]
        only_these = np.isin(model.words_, shown).astype(float)
        assert row["coherence"] == pytest.approx(coherence([only_these], model.counts_)[0])
        assert row["name"] == ", ".join(shown[:3])
        assert cards[k][:10] == shown
    model.save(tmp_path / "m.klnmf")
    loaded = TopicModel.load(tmp_path / "m.klnmf")
    np.testing.assert_array_equal(loaded.coherence_, model.coherence_)


def test_topic_words(model: TopicModel) -> None:
    sea = topic_about(model, "sea")
    assert {word for word, _ in model.topic_words(sea, 8)} == set(THEMES["sea"])
    assert model.topic_words(model.topic_names_[sea]) == model.topic_words()[sea]
    assert model.topic_words() == top_features(model.nmf_.components_, model.words_)
    assert model.topic_names_ == name_components(model.nmf_.components_, model.words_)
    by_weight = [score for _, score in model.topic_words(sea, 5, by="weight")]
    assert by_weight == sorted(by_weight, reverse=True)
    with pytest.raises(ValueError, match="no topic 3: topics are numbers from 0 to 2"):
        model.topic_words(3)


def test_documents_table(model: TopicModel) -> None:
    table = model.documents
    assert list(table.columns[:6]) == [
        *("document", "theme", "date", "main_topic", "main_name", "main_share")
    ]
    assert list(table.columns[6:]) == model.topic_names_
    assert np.array_equal(table[model.topic_names_].to_numpy(), model.shares_)
    assert np.array_equal(table["main_share"], model.shares_.max(axis=1))
    names = [model.topic_names_[k] for k in table["main_topic"]]
    assert table["main_name"].tolist() == names


@pytest.mark.filterwarnings("default")
def test_empty_documents_are_named_and_have_no_topic() -> None:
    texts = pd.Series([*TEXTS, "", "unknown"], index=[f"letter {i}" for i in range(92)])
    with pytest.warns(klnmf.EmptySamplesWarning, match="letter 90") as caught:
        model = TopicModel(3, max_df=1.0, random_state=0, n_threads=1).fit(texts)
    assert len(caught) == 1
    last = model.documents.iloc[-1]
    assert (last["main_topic"], last["main_name"]) == (-1, None)
    assert np.isnan(last["main_share"])
    assert not model.shares_[90:].any()
    assert 91 not in model.similar_documents(0, n=99).index
    assert len(model.similar_documents(0, n=99)) == 89
    with pytest.raises(ValueError, match="letter 91 has no words"):
        model.similar_documents("letter 91")


def test_a_column_with_the_name_of_ours_is_kept_apart(model: TopicModel) -> None:
    model.rename({0: "theme"})
    table = model.documents
    assert table["theme"].tolist() == MAIN
    assert np.array_equal(table["theme (topic)"], model.shares_[:, 0])


def test_metadata_with_the_name_of_a_column_of_ours_are_marked(model: TopicModel) -> None:
    years = list(range(len(TEXTS)))
    model.metadata_ = {"document": years, "main_topic": years, "share": years, "topic": years}
    table = model.documents
    assert table["document"].tolist() == model.document_names_
    assert table["document (metadata)"].tolist() == years
    assert table["main_topic (metadata)"].tolist() == years
    assert set(table["main_topic"]) == {0, 1, 2}
    typical = model.typical_documents(0, n=2)
    assert typical["share"].between(0, 1).all()
    assert {"document (metadata)", "share (metadata)"} <= set(typical.columns)
    assert list(model.over("topic").columns)[:2] == ["topic (metadata)", "topic"]


def test_documents_of_one_name_are_told_apart_by_number(model: TopicModel) -> None:
    model.document_names_[1] = model.document_names_[0]
    with pytest.raises(ValueError, match="pass the number of one"):
        model.similar_documents(model.document_names_[0])
    assert len(model.similar_documents(0)) == 5


def test_typical_documents(model: TopicModel) -> None:
    sea = topic_about(model, "sea")
    table = model.typical_documents(sea, n=4)
    assert table["theme"].tolist() == ["sea"] * 4
    assert list(table.columns) == ["document", "share", "excerpt", "theme", "date"]
    first = int(table["document"][0].split()[1])
    assert table["share"][0] == pytest.approx(model.shares_[first, sea])
    assert TEXTS[first].startswith(table["excerpt"][0][:150])
    with pytest.raises(ValueError, match="n must be a whole number of at least 1; got -1"):
        model.typical_documents(sea, n=-1)


def test_similar_documents(model: TopicModel) -> None:
    table = model.similar_documents(0, n=5)
    assert table["theme"].tolist() == ["sea"] * 5
    p = model.shares_[0]
    distances = np.sqrt(0.5 * ((np.sqrt(model.shares_) - np.sqrt(p)) ** 2).sum(axis=1))
    expected = np.sort(np.delete(distances, 0))[:5]
    assert table["distance"].to_numpy() == pytest.approx(expected)
    assert "document 0" not in table["document"].tolist()
    assert model.similar_documents("document 0").equals(table)
    assert model.similar_documents(-90).equals(table)
    by_text = model.similar_documents(text="judge and jury", n=3)
    assert by_text["theme"].tolist() == ["law"] * 3
    with pytest.raises(ValueError, match="n must be a whole number of at least 1; got -1"):
        model.similar_documents(0, n=-1)


@pytest.mark.parametrize("given", [{}, {"document": 1, "text": "sea"}])
def test_similar_to_one_thing_only(given: dict[str, Any], model: TopicModel) -> None:
    with pytest.raises(ValueError, match="either a document"):
        model.similar_documents(**given)


@pytest.mark.parametrize("document", [90, "letter 1"])
def test_similar_to_no_document(document: Any, model: TopicModel) -> None:
    with pytest.raises(ValueError, match="There is no document"):
        model.similar_documents(document)


def test_over_a_column(model: TopicModel) -> None:
    table = model.over("theme")
    assert list(table.columns) == ["theme", "topic", "share", "lower", "upper", "n_documents"]
    assert len(table) == 9
    means = mean_shares(model.W_, model.nmf_.components_, MAIN)
    assert table["share"].to_numpy() == pytest.approx(means.shares.ravel())
    assert (table["lower"] <= table["share"]).all()
    assert (table["share"] <= table["upper"]).all()
    wider = model.over("theme", level=0.999)
    assert (wider["upper"] >= table["upper"]).all()


def test_over_time(model: TopicModel) -> None:
    by_year = model.over("date", every="year")
    assert sorted({date.year for date in by_year["date"]}) == [1900, 1901, 1902]
    assert by_year["n_documents"].unique().tolist() == [30]
    own = model.over([1] * 45 + [2] * 45)
    assert sorted(own["group"].unique().tolist()) == [1, 2]
    with pytest.raises(
        ValueError, match="no column 'year' of metadata; there are: 'theme', 'date'"
    ):
        model.over("year")


def test_chart_over_a_column(model: TopicModel) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot as plt

    model.rename({0: "The first"})
    ax = model.plot_over("date", every="year", topics=["The first", 2])
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    plt.close("all")
    assert labels[:2] == ["0  The first", f"2  {model.topic_names_[2]}"]
    assert labels[2].startswith("1 other: up to")


def test_summary_says_what_a_paper_says(model: TopicModel) -> None:
    text = model.summary()
    for part in ("90 documents, 28 words", "min_df=2", "3 topics", "random_state=0", "converged"):
        assert part in text
    assert f"klnmf {klnmf.__version__}" in text
    assert f"{model.nmf_.divergence_:,.0f}" in text


def test_in_a_notebook(model: TopicModel) -> None:
    assert "klnmf-result" not in TopicModel()._repr_mimebundle_()["text/html"]
    html = model.rename({0: "<b>"})._repr_mimebundle_()["text/html"]
    for part in ("&lt;b&gt;", "90 documents, 28 words", "converged", model.topic_words(1)[4][0]):
        assert part in html


# ---- names and merges ----------------------------------------------------------------------------


def test_names_are_shown_everywhere(model: TopicModel) -> None:
    sea = topic_about(model, "sea")
    assert model.rename({sea: "The sea"}) is model
    assert model.topics["name"][sea] == "The sea"
    assert "The sea" in model.documents.columns
    assert "The sea" in model.over("theme")["topic"].tolist()
    assert model.get_feature_names_out()[sea] == "The sea"
    assert model.topic_words("The sea") == model.topic_words(sea)
    model.rename({"The sea": "Ships"})
    assert model.topic_names_[sea] == "Ships"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({7: "a"}, "no topic 7"),
        ({0: 3}, "one line of text; got 3"),
        ({0: " "}, "one line of text; got ' '"),
        ({0: "a\nb"}, "one line of text"),
        (["a", "b", "c"], "rename takes a dict"),
        ({0: "a", 1: "a"}, "Two topics would have the name 'a'"),
    ],
)
def test_wrong_names_are_refused(names: Any, message: str, model: TopicModel) -> None:
    before = list(model.topic_names_)
    with pytest.raises((TypeError, ValueError), match=message):
        model.rename(names)
    assert model.topic_names_ == before


def test_a_merge_adds_shares_and_averages_words(model: TopicModel) -> None:
    W, H, names = model.W_.copy(), model.nmf_.components_.copy(), list(model.topic_names_)
    before = model.nmf_.divergence_
    assert model.rename({1: "Kept"}).merge([[2, 0]]) is model
    assert model.topic_names_[1] == "Kept"
    assert model.topic_names_[0] not in names
    summed = np.column_stack([W[:, 0] + W[:, 2], W[:, 1]])
    assert summed == pytest.approx(model.W_)
    mean = (W[:, 0].sum() * H[0] + W[:, 2].sum() * H[2]) / (W[:, 0].sum() + W[:, 2].sum())
    assert model.nmf_.components_ == pytest.approx(np.vstack([mean, H[1]]), rel=1e-5)
    divergence = kl_divergence(model.counts_.astype(float), model.W_, model.nmf_.components_)
    assert model.nmf_.divergence_ == pytest.approx(divergence)
    assert model.nmf_.divergence_ > before
    assert not model.nmf_.converged_
    assert model.nmf_.optimality_gap_ > 0
    assert model.transform(TEXTS[:2]).shape == (2, 2)
    assert len(model.topics) == len(model.coherence_) == 2
    assert "The fit of 3 topics converged" in model.summary()


def test_a_merged_topic_keeps_a_given_name(model: TopicModel) -> None:
    model.rename({2: "Given", 1: "Later"}).merge([[0, 2]])
    assert model.topic_names_ == ["Given", "Later"]
    assert model.merge([[0, 1]]).topic_names_ == ["Given"]


@pytest.mark.parametrize("topics", [[[0]], [[0, 0]], [[0, 1], [1, 2]], [0, 1], "ab", [[0, 5]]])
def test_wrong_merges_are_refused(topics: Any, model: TopicModel) -> None:
    with pytest.raises((TypeError, ValueError)):
        model.merge(topics)
    assert len(model.topic_names_) == 3
