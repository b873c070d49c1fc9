"""How models and results show themselves in a notebook and at a prompt."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from klnmf import KLNMF
from klnmf.model_selection import consensus, select_rank
from klnmf.simulate import simulate_counts
from klnmf.support.result_tables import Column, ResultTable
from klnmf.topics import mean_shares
from klnmf.uncertainty import bootstrap, differential_features

X, W, _ = simulate_counts(60, 20, 3, counts_per_sample=150, random_state=0)
NAMES = ["<b>sea</b>", *(f"word{j}" for j in range(1, 20))]


class Cells(HTMLParser):
    """Texts of the cells of an HTML page, and its tags."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.feed(html)
        self.close()
        assert self.tags.count("table") == html.count("</table>")

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in ("td", "th"):
            self.cells[-1] += data


def results() -> dict[str, Any]:
    model = KLNMF(3, random_state=0).fit(X)
    few: dict[str, Any] = {"n_runs": 3, "random_state": 0, "feature_names": NAMES}
    return {
        "consensus": consensus(X, 3, n_null_runs=2, **few),
        "select_rank": select_rank(X, [2, 3], n_splits=2, random_state=0),
        "bootstrap": bootstrap(model, X, **few),
        "differential": differential_features(model, X, feature_names=NAMES),
        "mean_shares": mean_shares(model.transform(X), model.components_, ["<i>", "b"] * 30),
    }


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    return results()


@pytest.mark.parametrize(
    "which", ["consensus", "select_rank", "bootstrap", "differential", "mean_shares"]
)
def test_prompt_page_and_print_show_the_same_table(shown: dict[str, Any], which: str) -> None:
    result = shown[which]
    assert repr(result) == str(result)
    html = result._repr_html_()
    page = Cells(html)
    assert not {"b", "i", "script"} & set(page.tags)  # names are text
    lines = " ".join(str(result).split())
    for cell in page.cells:
        assert " ".join(cell.split()) in lines
    for note in result._shown().notes:
        assert note in str(result)
    assert "color:" not in html.replace("border-color:", "")  # text has the notebook's colour


def test_consensus_shows_leading_words_of_frames_and_names(shown: dict[str, Any]) -> None:
    pd = pytest.importorskip("pandas")
    found = shown["consensus"]
    leading = found.leading_features()
    frame = pd.DataFrame(X.toarray(), columns=NAMES)
    of_frame = consensus(frame, 3, n_runs=3, n_null_runs=2, random_state=0)
    for result in (found, of_frame):
        for words in leading:
            assert ", ".join(words) in repr(result)
            assert ", ".join(words) in Cells(result._repr_html_()).cells


def test_chosen_rank_stands_out(shown: dict[str, Any]) -> None:
    selection = shown["select_rank"]
    rows = selection._repr_html_().split("<tr")[2:]
    best = list(selection.ranks).index(selection.best_rank)
    assert [bool("background" in row) for row in rows] == [k == best for k in range(len(rows))]


def test_fitted_model_adds_its_figures_to_the_diagram() -> None:
    model = KLNMF(3, random_state=0)
    plain = model._repr_mimebundle_()["text/html"]
    assert "sk-top-container" in plain
    assert "KL divergence" not in plain
    model.fit(X)
    html = model._repr_mimebundle_()["text/html"]
    assert model._repr_html_().count("klnmf-result") == html.count("klnmf-result") == 1
    assert "sk-top-container" in html
    assert "✓ converged" in html
    cells = Cells(html).cells
    assert [f"{model.divergence_:,.6g}", str(model.n_iter_)] == [cells[-3], cells[-1]]
    early = KLNMF.from_components(np.eye(2), optimality_gap=0.1, converged=False)
    assert "! not converged" in early._repr_html_()
    with sklearn.config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
        assert not hasattr(model, "_repr_html_")
    pipeline = make_pipeline(FunctionTransformer(), model)
    assert "KLNMF" in pipeline._repr_mimebundle_()["text/html"]


def test_converged_by_rounding_is_said_so() -> None:
    model = KLNMF.from_components(np.eye(2), optimality_gap=1.0, converged=True)
    assert "rounding" in Cells(model._repr_html_()).cells
    unknown = KLNMF.from_components(np.eye(2), converged=True)
    assert "unknown" in Cells(unknown._repr_html_()).cells


def test_columns_of_text_are_on_the_left() -> None:
    table = ResultTable([Column("n", ["1", "20"]), Column("word", ["a", "b"], is_text=True)], ["!"])
    assert table.text().splitlines() == [" n  word", " 1  a", "20  b", "", "!"]
