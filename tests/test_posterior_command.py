"""``klnmf posterior``, and what else offers the posterior in one line: `TopicModel`, the report."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import outcome
from klnmf import KLNMF, TopicModel, load_model
from klnmf.readers import CountTable, write_counts
from klnmf.report import write_report
from klnmf.simulate import simulate_counts
from klnmf.topics.checks import dense
from klnmf.uncertainty import Posterior, bootstrap, posterior
from topic_texts import texts_of_themes

pytestmark = pytest.mark.filterwarnings("ignore:The sweeps are too few")

X = simulate_counts(60, 25, 3, counts_per_sample=150, random_state=0).X
GENES = [f"gene {j}" for j in range(25)]
CELLS = [f"cell {i}" for i in range(60)]
WORDS = ("model.klnmf", "counts.npz", "--sweeps", "60", "--seed", "4", "--threads", "1")


@pytest.fixture(name="folder")
def folder_of_a_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Path:
    """counts.npz and model.klnmf in the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    table = CountTable(X, column_names=GENES, row_names=CELLS)
    write_counts(table, tmp_path / "counts.npz")
    assert outcome(capsys, "fit", "counts.npz", "-r", 3, "-o", "model.klnmf", "-q")[0] == 0
    return tmp_path


def expected() -> Posterior:
    saved = load_model("model.klnmf")
    return posterior(saved.model, X, n_sweeps=60, random_state=4, feature_names=saved.feature_names)


def test_command_prints_the_table_and_saves_the_means(folder: Path, capsys: Any) -> None:
    code, out, err = outcome(capsys, "posterior", *WORDS, "--intervals", "genes.csv")
    assert code == 0, err
    found = expected()
    assert out == f"{found}\n"
    assert "model: model.posterior.klnmf" in err
    saved = load_model("model.posterior.klnmf")
    np.testing.assert_array_equal(*(dense(of.components_) for of in (saved.model, found.model_)))
    assert [*map(str, saved.feature_names)] == GENES
    assert [*map(str, saved.sample_names)] == CELLS
    shares = saved.model.proportions(saved.W)
    np.testing.assert_allclose(shares, found.proportions.estimate, rtol=1e-6)
    explained = dense(saved.W @ saved.model.components_).sum(axis=1)
    np.testing.assert_allclose(explained, np.ravel(X.sum(axis=1)), rtol=1e-5)  # as the fit does
    assert saved.metadata["posterior"]["n_kept"] == 40
    with open("genes.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 75
    top = found.table(0, 1)
    assert rows[0]["feature"] == top["feature"][0]
    np.testing.assert_allclose(float(rows[0]["upper"]), top["upper"][0], rtol=1e-5)
    assert not (folder / "model.posterior.klnmf.checkpoint").exists()
    # The model goes on, with the other commands.
    assert outcome(capsys, "topics", "model.posterior.klnmf")[0] == 0
    assert outcome(capsys, "report", "model.posterior.klnmf", "counts.npz")[0] == 0
    page = (folder / "model.posterior.html").read_text(encoding="utf-8")
    assert "The components were given" in page
    assert "The fit converged" not in page


def test_command_writes_json_a_report_and_a_picture(folder: Path, capsys: Any) -> None:
    words = ("--json", "--report", "r.html", "--title", "Cells", "--plot", "p.png", "-o", "x.klnmf")
    code, out, err = outcome(capsys, "posterior", *WORDS, *words)
    assert code == 0, err
    facts = json.loads(out)
    np.testing.assert_allclose(facts["share"], expected().sizes.estimate[0])
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert "How sure are the shares?" in page
    assert "Components and their leading features with 95 % intervals" in page
    assert (folder / "p.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--sweeps", "5"), 1, "n_sweeps must be"),
        (("--intervals", "x.html"), 2, "a table of intervals is written as .csv or .tsv"),
        (("--intervals", "counts.npz"), 1, "read or written by this command"),
        (("-o", "model.klnmf"), 1, "read or written by this command"),
        (("--exposure", "nowhere.txt"), 1, "nowhere.txt cannot be read"),
    ],
)
def test_wrong_words_are_refused_before_any_work(
    folder: Path, capsys: Any, words: tuple[str, ...], code: int, message: str
) -> None:
    found, _, err = outcome(capsys, "posterior", *WORDS, *words)
    assert found == code
    assert message in err
    assert not (folder / "model.posterior.klnmf").exists()


def test_other_data_are_refused(folder: Path, capsys: Any) -> None:
    write_counts(CountTable(X[:50], column_names=GENES), folder / "part.npz")
    code, _, err = outcome(capsys, "posterior", "model.klnmf", "part.npz")
    assert code == 1
    assert "Pass the complete X of the fit" in err


def test_topics_with_their_words() -> None:
    model = TopicModel(2, min_df=1, max_df=1.0, random_state=0).fit(texts_of_themes()[0])
    found = model.posterior(60)
    same = posterior(model.nmf_, model.counts_, n_sweeps=60, random_state=0)
    np.testing.assert_array_equal(found.components.lower, same.components.lower)
    assert found.feature_names == list(model.words_)
    assert found.proportions.estimate.shape == model.shares_.shape


def test_a_loaded_topic_model_says_what_it_lacks(tmp_path: Path) -> None:
    model = TopicModel(2, min_df=1, max_df=1.0, random_state=0).fit(texts_of_themes()[0])
    model.save(tmp_path / "m.klnmf")
    with pytest.raises(ValueError, match="which a file does not hold"):
        TopicModel.load(tmp_path / "m.klnmf").posterior(60)


def test_reports_show_intervals_of_either_kind(tmp_path: Path) -> None:
    model = KLNMF(3, random_state=0)
    W = model.fit_transform(X)
    page = tmp_path / "r.html"
    for found in (posterior(model, X, n_sweeps=60, random_state=0), bootstrap(model, X, 3)):
        write_report(page, model, W, X, intervals=found)
        text = page.read_text(encoding="utf-8")
        for note in found._shown().notes:
            assert note.split(".")[0] in text.replace("&#39;", "'")
    write_report(page, model, W, X)
    assert "How sure" not in page.read_text(encoding="utf-8")
    with pytest.raises(TypeError, match="what posterior or bootstrap returns; got 3"):
        write_report(page, model, W, X, intervals=3)
    other = KLNMF(2, random_state=0)
    other_W = other.fit_transform(X)
    with pytest.raises(ValueError, match="about 3 components, and the model has 2"):
        write_report(page, other, other_W, X, intervals=found)
