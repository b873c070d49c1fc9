"""The report at the level of its HTML: what is in it, what is not, and how large it is."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import NMF

from klnmf import KLNMF
from klnmf.datasets import load_bible
from klnmf.support.descriptions import percentage
from klnmf.topics import coherence, mean_shares, name_components, top_features
from report_models import HOSTILE, model_of, random_factors, written_example

pytest.importorskip("jinja2")

from klnmf.report import write_report
from klnmf.report.columns import MOST_COLUMNS
from klnmf.report.gathering import LONGEST_EXCERPT, MOST_SAMPLES

MEGABYTE = 1_000_000


class Page(HTMLParser):
    """Elements, attributes and texts, as a browser splits them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.elements[-1][0] if self.elements else "", data))

    @property
    def text(self) -> str:
        return " ".join(data for tag, data in self.texts if tag not in ("script", "style"))

    @property
    def data(self) -> dict[str, Any]:
        blocks = [
            data
            for (tag, data), attributes in zip(self.texts, self._attributes(), strict=True)
            if tag == "script" and attributes.get("type") == "application/json"
        ]
        assert len(blocks) == 1
        loaded: dict[str, Any] = json.loads(blocks[0])
        return loaded

    def _attributes(self) -> list[dict[str, str | None]]:
        scripts = iter([a for tag, a in self.elements if tag == "script"])
        return [next(scripts) if tag == "script" else {} for tag, _ in self.texts]


def page_of(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def report_of(tmp_path: Path, components: Any, W: Any, X: Any = None, **arguments: Any) -> Page:
    model = arguments.pop("model", None) or model_of(np.asarray(components, dtype=float))
    return page_of(write_report(tmp_path / "report.html", model, W, X, **arguments))


def test_page_of_a_real_fit_tells_what_was_fitted(tmp_path: Path) -> None:
    bible = load_bible()
    model = KLNMF(n_components=4, random_state=0, tol=1e-2)
    W = model.fit_transform(bible.data)
    path = write_report(
        tmp_path / "report.html",
        model,
        W,
        bible.data,
        feature_names=bible.feature_names,
        sample_names=bible.sample_names,
        labels=bible.target_names[bible.target],
        title="Chapters",
    )
    page = page_of(path)
    text = page.text
    assert text.index("Components") < text.index("The fit converged")  # what was found comes first
    assert "The fit converged" in text
    assert f"{model.divergence_:,.0f}" in text
    X = bible.data.tocoo()
    row_sums, column_sums = (np.asarray(X.sum(axis=axis)).ravel() for axis in (1, 0))
    with_one = row_sums[X.row] * column_sums[X.col] / X.sum()
    explained = 1.0 - model.divergence_ / np.sum(X.data * np.log(X.data / with_one))
    assert f"{100 * explained:.1f}\xa0% less than with one component" in text
    assert f"by more than {percentage(model.optimality_gap_)} (tol = 1 %)" in text
    assert "1,189 × 6,061" in text
    assert "143,537" in text
    data = page.data
    assert sum(topic["size"] for topic in data["topics"]) == pytest.approx(1.0, abs=1e-5)
    assert [group["name"] for group in data["groups"]] == bible.target_names.tolist()
    # Every chapter that is listed has the label and the sum of its row.
    sums = dict(zip(bible.sample_names, np.asarray(bible.data.sum(axis=1)).ravel(), strict=True))
    sections = dict(zip(bible.sample_names, bible.target_names[bible.target], strict=True))
    samples = data["samples"]
    for name, label, total in zip(
        samples["names"], samples["labels"], samples["totals"], strict=True
    ):
        assert (label, total) == (sections[name], sums[name])


def test_nothing_is_loaded_and_only_our_own_scripts_may_run(tmp_path: Path) -> None:
    path = written_example(tmp_path / "report.html")
    page = page_of(path)
    for _, attributes in page.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("src", "href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    [policy] = [
        attributes["content"] or ""
        for tag, attributes in page.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    html = path.read_text(encoding="utf-8")
    for tag in ("script", "style"):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", html, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    # The script puts names into the page as text only.
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert forbidden not in html


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    path = written_example(tmp_path / "report.html")
    page = page_of(path)
    assert "img" not in {tag for tag, _ in page.elements}
    assert [tag for tag, _ in page.elements].count("script") == 2
    html = path.read_text(encoding="utf-8")
    assert "onerror" in html  # it is there, as text
    assert "49" not in re.findall(r"<title>(.*?)</title>", html)[0]  # {{7*7}} was not evaluated
    data = page.data
    cut = HOSTILE[:59] + "…"
    assert cut in data["words"]
    columns = {column["name"]: column for column in data["columns"]}
    assert HOSTILE in columns
    assert HOSTILE[:39] + "…" in columns["place"]["groups"]
    assert HOSTILE in [topic["name"] for topic in data["topics"]]
    assert HOSTILE[:79] + "…" in data["samples"]["names"] or HOSTILE in data["samples"]["names"]
    [block] = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL)
    assert not set("<>&\u2028\u2029") & set(block)


def test_names_that_no_file_can_hold_are_replaced(tmp_path: Path) -> None:
    page = report_of(
        tmp_path, np.eye(2), np.eye(2), feature_names=["a\udc80b", "c\0d"], title="\ud800"
    )
    assert page.data["words"] == ["a?b", "c�d"]


def test_not_converged_is_said_with_what_to_do(tmp_path: Path) -> None:
    components = np.eye(2)
    model = model_of(components, converged_=False, optimality_gap_=0.0213, n_iter_=500)
    page = report_of(tmp_path, components, np.eye(2), model=model)
    assert any(attributes.get("role") == "alert" for _, attributes in page.elements)
    assert "The fit did not converge" in page.text
    assert "cannot lower the objective by more than 2.1 % (tol = 0.03 %)" in page.text
    assert "Increase max_iter" in page.text
    stopped = report_of(
        tmp_path, components, np.eye(2), model=model_of(components, converged_=False)
    )
    assert "by a callback or by the user" in stopped.text
    unknown = model_of(components, optimality_gap_=np.nan)  # of an older version
    page = report_of(tmp_path, components, np.eye(2), model=unknown)
    assert "How much lower the objective could be is unknown." in page.text
    assert "nan" not in page.text
    exact = model_of(components, optimality_gap_=np.inf)  # converged, with an objective of 0
    page = report_of(tmp_path, components, np.eye(2), model=exact)
    assert "cannot lower the objective by more than rounding." in page.text
    good = report_of(tmp_path, components, np.eye(2))
    assert not any(attributes.get("role") == "alert" for _, attributes in good.elements)


def test_cards_show_the_words_of_all_tables_and_those_that_lead_by_weight(tmp_path: Path) -> None:
    W, components = random_factors(60, 400, 5)
    data = report_of(tmp_path, components, W).data
    words = components / components.sum(axis=1, keepdims=True)
    mass = W.sum(axis=0) * components.sum(axis=1)
    sizes = mass / mass.sum()
    overall = sizes @ words
    n_shown = data["most_words"]
    assert n_shown == 30
    for topic in data["topics"]:
        k = topic["id"]
        assert topic["size"] == pytest.approx(sizes[k], rel=1e-5)
        embedded = np.array(
            [int(data["words"][j].removeprefix("feature ")) for j in topic["words"]]
        )
        np.testing.assert_allclose(topic["p"], words[k, embedded], rtol=1e-5)
        of_word = sizes[k] * words[k, embedded] / overall[embedded]
        np.testing.assert_allclose(topic["of_word"], of_word, rtol=1e-5)
        assert len(embedded) < np.count_nonzero(words[k])  # or the bound would not be tested
        shown = [data["words"][j] for j in topic["words"]]
        assert shown[:n_shown] == [name for name, _ in top_features(components, n_top=n_shown)[k]]
        assert topic["name"] == ", ".join(shown[:3])
        assert set(np.argsort(-words[k])[:n_shown]) <= set(embedded)


def test_names_of_topics_are_those_of_plots_and_models(tmp_path: Path) -> None:
    components = np.array([[5.0, 3.0, 2.0, 0.0], [4.0, 0.0, 0.0, 4.0]])
    words = ["common", "sea", "ship", "corn"]
    data = report_of(tmp_path, components, np.eye(2), feature_names=words).data
    names = [topic["name"] for topic in data["topics"]]
    assert names == name_components(components, words)
    assert [name.split(", ")[0] for name in names] == ["sea", "corn"]
    data = report_of(
        tmp_path, components, np.eye(2), feature_names=words, component_names=["Ships", " "]
    ).data
    assert [topic["name"] for topic in data["topics"]] == ["Ships", names[1]]


def test_samples_are_bounded_and_every_label_is_drawn(tmp_path: Path) -> None:
    n_samples = 3000
    W, components = random_factors(n_samples, 20, 4)
    W[7] = 0.0  # an empty sample has no make-up
    labels = np.where(np.arange(n_samples) < 5, "few", "many").astype(object)
    labels[5] = None
    labels[6] = float("nan")
    data = report_of(tmp_path, components, W, labels=labels).data
    drawn = {group["name"]: group for group in data["groups"]}
    assert {name: group["count"] for name, group in drawn.items()} == {
        "few": 5, "(no label)": 2, "many": n_samples - 8
    }  # fmt: skip
    assert len(drawn["few"]["samples"]) == 5
    assert sum(len(group["samples"]) for group in drawn.values()) <= MOST_SAMPLES
    assert len(drawn["many"]["samples"]) > 0.9 * MOST_SAMPLES - 40
    names = data["samples"]["names"]
    assert "sample 7" not in names
    mass = W * components.sum(axis=1)
    shares = mass / np.maximum(mass.sum(axis=1, keepdims=True), 1e-300)
    for name, packed in zip(names, data["samples"]["shares"], strict=True):
        expected = shares[int(name.removeprefix("sample "))]
        assert packed[1::2] == sorted(packed[1::2], reverse=True)
        for k, thousandths in zip(packed[::2], packed[1::2], strict=True):
            assert thousandths == pytest.approx(1000 * expected[k], abs=0.51)


def test_too_many_labels_are_merged(tmp_path: Path) -> None:
    W, components = random_factors(200, 10, 3)
    labels = [f"label {i // 2}" for i in range(200)]
    data = report_of(tmp_path, components, W, labels=labels).data
    assert len(data["groups"]) == 24
    assert data["groups"][-1]["name"] == "other labels (77)"
    assert sum(group["count"] for group in data["groups"]) == 200


@pytest.mark.parametrize("long_names", [False, True])
def test_page_stays_small_for_large_data(tmp_path: Path, long_names: bool) -> None:
    n_samples, n_features, n_components = 10_000, 30_000, 50
    generator = np.random.default_rng(0)
    components = np.exp(generator.normal(scale=3.0, size=(n_components, n_features)))
    components[generator.random(components.shape) < 0.7] = 0.0
    W = generator.dirichlet(np.full(n_components, 0.1), size=n_samples)
    counts = sparse.random(n_samples, n_features, 1e-4, random_state=generator)
    stem = "漢字" * 100 if long_names else "vocabulary"
    path = write_report(
        tmp_path / "report.html",
        model_of(components.astype(np.float32)),
        W.astype(np.float32),
        counts,
        feature_names=[f"{j} {stem}" for j in range(n_features)],
        sample_names=[f"{i} {stem}" for i in range(n_samples)],
        labels=generator.integers(40, size=n_samples),
        documents=[f"{i} {stem * 20}" for i in range(n_samples)] if long_names else None,
    )
    size = path.stat().st_size
    assert 0.1 * MEGABYTE < size < 3 * MEGABYTE
    assert len(page_of(path).data["samples"]["names"]) <= MOST_SAMPLES + 5 * n_components


def test_empty_topics_and_sparse_factors(tmp_path: Path) -> None:
    components = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    W = np.array([[1.0, 0.0], [0.0, 0.0]])
    dense = report_of(tmp_path, components, W).data
    assert [topic["name"] for topic in dense["topics"]] == ["feature 1, feature 0", "(empty)"]
    assert dense["topics"][1]["typical"] == []
    model = model_of(sparse.csr_array(components))
    assert report_of(tmp_path, components, sparse.csr_array(W), model=model).data == dense
    nothing = report_of(tmp_path, np.zeros((1, 3)), np.zeros((2, 1)), sparse.csr_array((2, 3)))
    assert nothing.data["topics"][0]["name"] == "(empty)"


def test_topic_that_no_sample_uses_is_listed(tmp_path: Path) -> None:
    data = report_of(tmp_path, np.array([[1.0, 1.0], [1.0, 3.0]]), np.array([[1.0, 0.0]])).data
    assert [topic["size"] for topic in data["topics"]] == [1.0, 0.0]


def test_excerpts_are_short_and_of_typical_samples_only(tmp_path: Path) -> None:
    W, components = random_factors(100, 10, 2)
    texts = [f"text  of\n{i} " + "long " * 500 for i in range(100)]
    data = report_of(tmp_path, components, W, documents=texts).data
    typical = {sample for topic in data["topics"] for sample, _ in topic["typical"]}
    assert {int(place) for place in data["samples"]["excerpts"]} == typical
    for place, excerpt in data["samples"]["excerpts"].items():
        number = data["samples"]["names"][int(place)].removeprefix("document ")
        assert excerpt.startswith(f"text of {number} long")
        assert len(excerpt) == LONGEST_EXCERPT


def test_names_come_from_the_model_and_series_by_position(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    components = np.eye(2)
    model = model_of(components, feature_names_in_=np.array(["sea", "ship"], dtype=object))
    texts = pandas.Series(["first", "second"], index=[1, 0])
    labels = pandas.Series(["x", pandas.NA], index=[1, 0])
    data = report_of(
        tmp_path, components, np.eye(2), model=model, documents=texts, labels=labels
    ).data
    assert sorted(data["words"]) == ["sea", "ship"]
    assert data["samples"]["excerpts"] == {"0": "first", "1": "second"}
    assert data["samples"]["labels"] == ["x", "(no label)"]


def test_names_of_components_are_shown_and_others_named_by_their_words(tmp_path: Path) -> None:
    data = report_of(
        tmp_path, np.eye(2), np.diag([2.0, 1.0]), component_names=["Weather", " "]
    ).data
    assert [topic["name"] for topic in data["topics"]] == ["Weather", "feature 1"]


def test_one_vocabulary_for_texts_and_one_for_counts(tmp_path: Path) -> None:
    W, components = random_factors(40, 30, 3)
    arguments: dict[str, Any] = {"labels": ["a", "b"] * 20}
    texts = report_of(tmp_path, components, W, W @ components, documents=["text"] * 40, **arguments)
    counts = report_of(tmp_path, components, W, W @ components, **arguments)
    of_texts, of_counts = r"\b(topic|word|document)", r"\b(component|feature|sample)"
    # Code is code in both.
    plain = counts.text.split("In Python")[0]
    assert re.findall(of_texts, plain, flags=re.IGNORECASE) == []
    assert "40 samples × 30 features, 3 components" in plain
    plain = texts.text.split("In Python")[0].replace("components_", "")
    assert re.findall(of_counts, plain, flags=re.IGNORECASE) == []
    assert "40 documents × 30 words, 3 topics" in plain
    assert (texts.data["words"][0][:5], counts.data["words"][0][:8]) == ("word ", "feature ")
    asked = report_of(tmp_path, components, W, vocabulary="texts").data
    assert asked["terms"] == {"sample": "document", "feature": "word", "component": "topic"}


def test_every_word_of_the_model_is_in_the_index_with_its_topics(tmp_path: Path) -> None:
    W, components = random_factors(60, 900, 5)
    components[:, 7] = 0.0  # in no topic
    data = report_of(tmp_path, components, W).data
    mass = W.sum(axis=0)[:, np.newaxis] * components
    used = np.flatnonzero(mass.sum(axis=0))
    assert sorted(data["words"]) == sorted(f"feature {j}" for j in used)
    assert data["n_words"] == len(used) == len(data["words"])
    shares, overall = mass / np.maximum(mass.sum(axis=0), 1e-300), mass.sum(axis=0) / mass.sum()
    rarity = data["rarity"]
    assert rarity == sorted(rarity)  # the most frequent first
    for name, packed, rare in zip(data["words"], data["word_topics"], rarity, strict=True):
        j = int(name.removeprefix("feature "))
        assert rare == pytest.approx(-100 * np.log(overall[j]), abs=0.51)
        assert packed[0] == shares[:, j].argmax()
        for k, thousandths in zip(packed[::2], packed[1::2], strict=True):
            assert thousandths == pytest.approx(1000 * shares[k, j], abs=0.51)


def test_columns_are_shown_as_far_as_a_chart_can_hold_them(tmp_path: Path) -> None:
    W, components = random_factors(60, 20, 3)
    days = np.datetime64("2001-01-01") + 30 * np.arange(60)
    metadata = {
        "place": ["north", None, "south"] * 20,
        "name": [f"document {i}" for i in range(60)],
        "constant": ["same"] * 60,
        "date": days,
        "tags": [["a"], ["b"]] * 30,
    }
    data = report_of(tmp_path, components, W, metadata=metadata, labels=[1, 2] * 30).data
    # Times first, for each period that fits, the shortest first.
    listed = [(column["name"], column["every"]) for column in data["columns"]]
    periods = [("date", "quarter"), ("date", "year")]
    assert listed == [*periods, ("place", None), ("tags", None), ("label", None)]
    assert data["columns"][1]["groups"] == ["2001", "2002", "2003", "2004", "2005"]
    columns = {column["name"]: column for column in reversed(data["columns"])}
    assert data["left_out"] == ["name", "constant"]
    assert columns["date"]["groups"][:2] == ["2001-Q1", "2001-Q2"]
    assert columns["date"]["at"][1] - columns["date"]["at"][0] == 90
    assert columns["place"]["missing"] == 20
    assert columns["tags"]["groups"] == ["['a']", "['b']"]
    means = mean_shares(W, components, metadata["place"])
    for end in ("share", "lower", "upper"):
        expected = getattr(means, "shares" if end == "share" else end).T
        np.testing.assert_allclose(columns["place"][end], 10_000 * expected, atol=0.51)


def test_coherence_is_given_or_that_of_texts_in_these_counts(tmp_path: Path) -> None:
    W, components = random_factors(30, 20, 3)
    X = sparse.csr_array(np.random.default_rng(0).poisson(1.0, size=(30, 20)))
    for arguments, expected in (
        ({"X": X, "vocabulary": "texts"}, coherence(components, X, "npmi").tolist()),
        ({"coherence": [0.5, np.nan, -0.25]}, [0.5, None, -0.25]),
        ({"X": X, "vocabulary": "counts"}, [None] * 3),
    ):
        page = report_of(tmp_path, components, W, **arguments)
        found = {topic["id"]: topic["coherence"] for topic in page.data["topics"]}
        assert [found[k] for k in range(3)] == pytest.approx(expected, abs=1e-5)
        assert ("NPMI" in page.text) == any(value is not None for value in expected)


def test_a_time_is_shown_before_many_other_columns(tmp_path: Path) -> None:
    W, components = random_factors(20, 6, 2)
    metadata: dict[str, Any] = {f"place {k}": ["a", "b"] * 10 for k in range(MOST_COLUMNS)}
    metadata["date"] = [f"20{10 + i // 2}-05-01" for i in range(20)]
    data = report_of(tmp_path, components, W, metadata=metadata).data
    assert list(dict.fromkeys(c["name"] for c in data["columns"])) == ["date", *list(metadata)[:-2]]
    assert data["left_out"] == [f"place {MOST_COLUMNS - 1}"]


def test_missing_seed_is_pointed_out(tmp_path: Path) -> None:
    components = np.eye(2)
    unseeded = report_of(
        tmp_path, components, np.eye(2), model=model_of(components).set_params(random_state=None)
    )
    assert "No random_state was set" in unseeded.text
    assert "No random_state was set" not in report_of(tmp_path, components, np.eye(2)).text


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": KLNMF()}, ValueError, "fitted KLNMF; got KLNMF without components_"),
        ({"model": NMF().fit(np.eye(2))}, ValueError, "got NMF without history_"),
        ({"W": np.ones((3, 5))}, ValueError, r"one column per component \(2\); got shape \(3, 5\)"),
        ({"W": np.ones(3)}, ValueError, r"got shape \(3,\)"),
        ({"W": np.ones((0, 2))}, ValueError, "a report needs at least one sample"),
        ({"W": np.full((3, 2), np.nan)}, ValueError, "W must be nonnegative and finite"),
        ({"X": np.ones((2, 4))}, ValueError, r"X must have shape \(3, 4\).*got shape \(2, 4\)"),
        ({"X": -np.ones((3, 4))}, ValueError, "Negative values"),
        ({"feature_names": ["a"]}, ValueError, "feature_names has 1 names for 4 features"),
        ({"sample_names": ["a"]}, ValueError, "sample_names has 1 names for 3 samples"),
        ({"labels": [1, 2]}, ValueError, "labels has 2 entries for 3 samples"),
        ({"labels": "abc"}, TypeError, "labels must be a sequence with one entry per sample"),
        ({"documents": ["a"]}, ValueError, "documents has 1 entries for 3 samples"),
        ({"documents": iter("abc")}, TypeError, "documents must be a sequence"),
        (
            {"metadata": {"year": [1]}},
            ValueError,
            r"metadata\['year'\] has 1 entries for 3 samples",
        ),
        ({"component_names": ["a"]}, ValueError, "component_names has 1 names for 2 components"),
        (
            {"vocabulary": "genes"},
            ValueError,
            "vocabulary must be 'texts' or 'counts'; got 'genes'",
        ),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_written(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"model": model_of(np.ones((2, 4))), "W": np.ones((3, 2))} | arguments
    with pytest.raises(error, match=message):
        write_report(tmp_path / "report.html", **given)
    assert list(tmp_path.iterdir()) == []


def test_file_is_replaced_when_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    model, W = model_of(np.eye(2)), np.eye(2)

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        with pytest.raises(OSError, match="no space left"):
            write_report(path, model, W)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    assert write_report(str(path), model, W) == path
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written_to_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere to write report.html to"):
        write_report(tmp_path / "nowhere" / "report.html", model_of(np.eye(2)), np.eye(2))
    with pytest.raises(IsADirectoryError, match=r"is a folder; name a file in it"):
        write_report(tmp_path, model_of(np.eye(2)), np.eye(2))


def test_without_jinja2_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r'pip install "klnmf\[report\]"'):
        write_report(tmp_path / "report.html", model_of(np.eye(2)), np.eye(2))
