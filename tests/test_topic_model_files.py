"""`TopicModel` in files: what is loaded is what was saved, and the command line reads it too."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from commands import outcome
from klnmf import KLNMF, TopicModel, load_model
from klnmf.saved import SavedFileError
from klnmf.saved.container import Container, read_container, write_container
from topic_texts import MAIN, TEXTS, model_of_themes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "texts.klnmf"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = tmp_path / "texts"
    texts.mkdir()
    for i, text in enumerate(TEXTS[:30]):
        (texts / f"{i:02}.txt").write_text(text, encoding="utf-8")
    return texts


def test_everything_but_the_counts_comes_back(path: Path) -> None:
    model = model_of_themes().rename({0: "The first"}).merge([[1, 2]]).rename({1: "Both"})
    model.save(path)
    loaded = TopicModel.load(path)
    assert loaded.topics.equals(model.topics)
    assert loaded.documents.equals(model.documents)
    assert loaded.typical_documents(0).equals(model.typical_documents(0))
    assert loaded.over("date", "year").equals(model.over("date", "year"))
    assert loaded.topic_names_ == ["The first", "Both"]
    assert np.array_equal(loaded.transform(TEXTS[:9]), model.transform(TEXTS[:9]))
    assert loaded.counts_ is None
    assert loaded.summary() == model.summary().replace(", 2,520 occurrences", "")


def test_parameters_come_back_for_the_next_fit(path: Path) -> None:
    seeds = {"sea": ["ship"]}
    model = model_of_themes(n_topics=4, seed_words=seeds, stop_words=["day"], nmf=KLNMF(tol=1e-5))
    model.save(path)
    loaded = TopicModel.load(path)
    assert (loaded.n_topics, loaded.seed_words, loaded.min_df) == (4, seeds, 2)
    assert (loaded.stop_words, loaded.max_df) == (["day"], 1.0)
    assert np.array_equal(loaded.fit(TEXTS).W_, model.W_)


def test_the_choice_of_the_number_comes_back(path: Path) -> None:
    model = model_of_themes(n_topics=range(2, 5))
    model.save(path)
    loaded = TopicModel.load(path)
    assert loaded.n_topics == [2, 3, 4]
    assert str(loaded.rank_selection_) == str(model.rank_selection_)
    assert loaded.summary().splitlines()[-2] == model.summary().splitlines()[-2]


def test_settings_of_a_vectorizer_come_back(path: Path) -> None:
    vectorizer = CountVectorizer(strip_accents="unicode", ngram_range=(1, 2), binary=True)
    model = TopicModel(2, vectorizer=vectorizer, random_state=0, n_threads=1).fit(TEXTS)
    model.save(path)
    loaded = TopicModel.load(path)
    for name in ("strip_accents", "ngram_range", "binary"):
        assert getattr(loaded.vectorizer, name) == getattr(vectorizer, name)
    new = ["ship ship séa", "the ship sea"]
    assert np.array_equal(loaded.transform(new), model.transform(new))


def test_stop_words_of_a_language_and_of_a_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "stop.txt").write_text("ship\nCORN\n")
    for given, left_out, kept in (
        ("english", "the", "ship"),
        (tmp_path / "stop.txt", "corn", "the"),
        (["english", "german"], "the", "ship"),
    ):
        model = TopicModel(3, stop_words=given, max_df=1.0, random_state=0, n_threads=1)
        model.fit([f"the {text}" for text in TEXTS]).save(path)
        assert left_out not in model.words_
        assert kept in model.words_
        name = ",".join(given) if isinstance(given, list) else str(given)
        assert f"stop_words={name!r}" in model.summary()
        loaded = TopicModel.load(path)
        assert loaded.stop_words == name
        assert loaded.vectorizer_.stop_words == model.vectorizer_.stop_words
    (tmp_path / "stop.txt").unlink()
    assert TopicModel.load(path).transform(["ship sea"]).any()


def test_code_is_not_saved(path: Path) -> None:
    class Mine(CountVectorizer):
        pass

    for vectorizer in (CountVectorizer(tokenizer=str.split, token_pattern=None), Mine()):
        model = TopicModel(2, vectorizer=vectorizer, random_state=0, n_threads=1).fit(TEXTS)
        assert model.summary()
        with pytest.raises(TypeError, match="files hold no code"):
            model.save(path)
    assert not path.exists()


def test_dates_become_text_that_still_is_a_date(path: Path) -> None:
    days = [datetime.date(1900 + i % 2, 1, 31) for i in range(len(TEXTS))]
    model = TopicModel(3, max_df=1.0, random_state=0, n_threads=1)
    model.fit(TEXTS, metadata={"day": days}).save(path)
    loaded = TopicModel.load(path)
    assert loaded.metadata_["day"][0] == "1900-01-31"
    assert loaded.over("day", "month").equals(model.over("day", "month"))


def test_columns_of_arrays_become_text(path: Path, tmp_path: Path) -> None:
    """Columns of lists in Parquet files are arrays."""
    tags = [np.array(["a", "b"]), np.array(["c"])] * (len(TEXTS) // 2)
    model = TopicModel(3, max_df=1.0, random_state=0, n_threads=1).fit(
        TEXTS, metadata={"tags": tags}
    )
    model.report(tmp_path / "report.html")
    assert model.over("tags").shape[0] == 2 * 3
    model.save(path)
    assert TopicModel.load(path).metadata_["tags"][:2] == ["['a' 'b']", "['c']"]


def test_it_is_a_model_file(path: Path) -> None:
    model = model_of_themes()
    model.save(path)
    saved = load_model(path)
    assert list(saved.feature_names) == list(model.words_)
    assert saved.metadata["component_names"] == model.topic_names_
    assert saved.sample_metadata["theme"] == MAIN
    assert np.array_equal(KLNMF.load(path).components_, model.nmf_.components_)


def test_words_that_the_command_line_cannot_find(
    path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vectorizer = CountVectorizer(analyzer="char_wb", min_df=2)
    TopicModel(2, vectorizer=vectorizer, random_state=0, n_threads=1).fit(TEXTS).save(path)
    code, _, err = outcome(capsys, "transform", str(path), str(folder), "-o", "-")
    assert code != 0
    assert "counted with analyzer" in err
    assert "TopicModel.load" in err


# ---- strange files -------------------------------------------------------------------------------


def test_a_model_of_other_counts_is_refused(path: Path) -> None:
    model = KLNMF(2, random_state=0, n_threads=1)
    W = model.fit_transform(np.eye(4) + 1)
    model.save(path, W=W, feature_names=list("abcd"))
    with pytest.raises(SavedFileError, match="was not fitted to texts"):
        TopicModel.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"topic_model": 3},
        {"topic_model": {"rank_selection": 3}},
        {"topic_model": {"rank_selection": {"format": "x"}}},
        {"topic_model": {"fit": []}},
        {"topic_model": {"ranking": "lift", "coherence": ["a", "b", "c"]}},
        {"topic_model": {"ranking": "lift", "coherence": [10**400] * 3}},
        {"topic_model": {"fit": {"optimality_gap": "x", "n_iter": []}}},
        {"reading": []},
        {"reading": {"ngram_range": "ab", "analyzer": 5}},
        {"component_names": ["a"]},
        {"component_names": [1, 2, 3]},
        {"component_names": ["a", "a", "b"]},
        {"component_names": 5},
    ],
)
def test_strange_metadata_are_an_error_or_ignored(change: dict[str, Any], path: Path) -> None:
    model_of_themes().save(path)
    found = read_container(path, "model")
    found.content["metadata"] |= change
    write_container(path, Container("model", found.content, found.arrays))
    try:
        loaded = TopicModel.load(path)
        loaded.transform(["ship"])
        loaded.summary()
    except ValueError:
        pass


@pytest.mark.parametrize(
    "change",
    [
        {"reading": {"analyzer": 5}},
        {"reading": {"ngram_range": 1}},
        {"reading": {"strip_accents": "x"}},
        {"reading": {"token_pattern": "("}},
        {"reading": {"token_pattern": ["a"]}},
        {"reading": {"token_pattern": "a{99999999999}"}},
        {"reading": {"tokenizer": "os.system"}},
        {"topic_model": {"n_topics": {}}},
        {"topic_model": {"seed_words": 5}},
    ],
)
def test_options_that_cannot_be_used_are_found_on_loading(
    change: dict[str, Any], path: Path
) -> None:
    model_of_themes().save(path)
    found = read_container(path, "model")
    found.content["metadata"] |= change
    write_container(path, Container("model", found.content, found.arrays))
    with pytest.raises(SavedFileError, match="cannot be read as a TopicModel"):
        TopicModel.load(path)


# ---- the command line ----------------------------------------------------------------------------


def test_commands_read_it(
    path: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = model_of_themes()
    model.save(path)
    code, out, _ = outcome(capsys, "topics", str(path), "--csv")
    assert code == 0
    assert {row["feature"] for row in csv.DictReader(out.splitlines())} <= set(model.words_)
    table = tmp_path / "shares.csv"
    code, _, err = outcome(
        capsys, "transform", str(path), str(folder), "-o", str(table), "--proportions"
    )
    assert code == 0, err
    rows = list(csv.reader(table.read_text().splitlines()))[1:]
    found = np.array([[float(x) for x in row[1:]] for row in rows])
    assert found == pytest.approx(model.transform(TEXTS[:30]), abs=1e-6)
    code, _, err = outcome(capsys, "report", str(path), "-o", str(tmp_path / "r.html"))
    assert code == 0, err


def test_it_reads_what_the_command_fit_wrote(
    path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = outcome(
        capsys,
        "fit",
        str(folder),
        "-r",
        "3",
        "--ngram-range",
        "1,2",
        "-o",
        str(path),
        "--seed",
        "0",
    )
    assert code == 0, err
    loaded = TopicModel.load(path)
    assert loaded.n_topics == 3
    assert loaded.ngram_range == (1, 2)
    assert (loaded.min_df, loaded.max_df) == (2, 0.5)
    assert loaded.document_names_[0] == "00.txt"
    W = loaded.nmf_.transform(loaded.vectorizer_.transform(TEXTS[:2]))
    assert loaded.transform(TEXTS[:2]) == pytest.approx(loaded.nmf_.proportions(W))
    assert loaded.shares_[:2] == pytest.approx(loaded.transform(TEXTS[:2]), abs=1e-3)
    assert len(loaded.topics) == 3


def test_metadata_and_excerpts_go_through_the_command_line(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, page = tmp_path / "letters.csv", tmp_path / "letters.html"
    rows = [f"{1900 + i % 3},{text}" for i, text in enumerate(TEXTS)]
    table.write_text("\n".join(["year,body", *rows]))
    options = ("--text-field", "body", "-r", "3", "--report", str(page))
    code, _, err = outcome(capsys, "fit", str(table), *options, "-o", str(path))
    assert code == 0, err
    loaded = TopicModel.load(path)
    assert loaded.metadata_ == {"year": [1900, 1901, 1902] * 30}
    assert loaded.excerpts_ == TEXTS
    again = tmp_path / "again.html"
    code, _, err = outcome(capsys, "report", str(path), "-o", str(again))
    assert code == 0, err
    typical = loaded.typical_documents(0, 1)["excerpt"][0]
    for written in (page, again):
        text = written.read_text(encoding="utf-8")
        assert typical[:100] in text
        assert '"year"' in text


def test_a_report_of_its_own(tmp_path: Path) -> None:
    model = model_of_themes().rename({0: "The first of three"})
    text = model.report(tmp_path / "r.html", title="Letters").read_text(encoding="utf-8")
    excerpt = model.typical_documents(0)["excerpt"][0]
    for part in (
        "The first of three",
        "Letters",
        '"theme"',
        "max_df=1.0",
        excerpt[:100],
    ):
        assert part in text, part
    merged = model.merge([[1, 2]]).report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "# The fit of 3 topics converged after" in merged
    assert "Then topics were merged or changed" in merged
    assert "stopped by a callback" not in merged
