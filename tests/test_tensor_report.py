"""The report on a model of a tensor: a card for each component with all its modes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from event_files import MODES, model_of_sales, tensor_of_sales
from klnmf import KLNMF, PoissonCP, SparseTensor
from report_models import HOSTILE
from test_report_browser import driver  # noqa: F401, a fixture

pytest.importorskip("jinja2")

from klnmf.report import write_report
from klnmf.report.tensors import MOST_POINTS, checked_tensor


def payload(page: Path) -> Any:
    html = page.read_text(encoding="utf-8")
    found = re.search(r'<script [^>]*id="report-data">(.*?)</script>', html, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_every_component_has_its_labels_and_lines(tmp_path: Path) -> None:
    model, X = model_of_sales(), tensor_of_sales()
    page = write_report(tmp_path / "r.html", model, X=X)
    data = payload(page)
    assert [mode["name"] for mode in data["modes"]] == MODES
    assert [mode["is_line"] for mode in data["modes"]] == [False, False, True]
    assert data["modes"][2]["labels"] == X.labels[2].tolist()
    np.testing.assert_allclose(data["modes"][2]["all"], X.margin(2) / X.total, atol=1e-3)
    assert data["n_words"] == 8
    for topic in data["topics"]:
        k = topic["id"]
        assert topic["size"] == pytest.approx(model.weights_[k] / model.weights_.sum(), rel=1e-5)
        np.testing.assert_allclose(topic["modes"][2]["course"], model.factors_[2][:, k], rtol=1e-4)
        for mode in (0, 1):
            part = topic["modes"][mode]
            labels = [data["words"][word] for word in part["words"]]
            assert {data["word_modes"][word] for word in part["words"]} == {mode}
            places = [model.labels_[mode].tolist().index(label) for label in labels]
            np.testing.assert_allclose(part["p"], model.factors_[mode][places, k], rtol=1e-4)
    leading = [data["words"][word] for word in data["topics"][0]["modes"][1]["words"]]
    assert set(leading[:2]) == {"tea", "rice"}
    html = page.read_text(encoding="utf-8")
    assert "customer 4 × product 4 × date 8, 2 components" in html
    assert "Changing the factor of any one mode cannot lower the objective by more than" in html
    assert "less than with one component" in html
    assert "model = PoissonCP(n_components=2, random_state=0)" in html


def test_divergence_of_one_component_is_that_of_its_fit() -> None:
    X = tensor_of_sales()
    one = PoissonCP(1, random_state=0, tol=1e-8).fit(X)
    expected = checked_tensor(one, X, None, {}).divergence_of_one_component()
    assert one.divergence_ == pytest.approx(expected, rel=1e-4)


def test_without_counts_and_labels(tmp_path: Path) -> None:
    X = tensor_of_sales()
    plain = SparseTensor(X.coords, X.values, X.shape)
    model = PoissonCP(2, random_state=0).fit(plain)
    page = write_report(tmp_path / "r.html", model)
    data = payload(page)
    assert "mode_1 0" in data["words"]
    assert not any(mode["is_line"] for mode in data["modes"])
    assert "not included in this report" in page.read_text(encoding="utf-8")


def test_other_counts_of_the_same_shape_are_refused(tmp_path: Path) -> None:
    model, X = model_of_sales(), tensor_of_sales()
    other = SparseTensor(X.coords, X.values[::-1], X.shape, mode_names=X.mode_names)
    with pytest.raises(ValueError, match=r"16 nonzeros.* is not the data that the model was fit"):
        write_report(tmp_path / "r.html", model, X=other)
    assert not (tmp_path / "r.html").exists()
    # Weights are not kept: the sums of the fit are not those of X.
    weighted = PoissonCP(2, random_state=0).fit(X, weights=[[1, 2, 1, 1], None, None])
    assert write_report(tmp_path / "r.html", weighted, X=X).exists()


def test_all_modes_may_be_lines(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = {
        "day": [str(np.datetime64("2024-01-01") + int(d)) for d in rng.integers(0, 50, 300)],
        "hour": rng.integers(0, 24, 300),
    }
    X = SparseTensor.from_events(frame, ["day", "hour"], bins={"day": "day"})
    data = payload(write_report(tmp_path / "r.html", PoissonCP(2, random_state=0).fit(X), X=X))
    assert [mode["is_line"] for mode in data["modes"]] == [True, True]
    assert data["words"] == []


def test_numbers_that_are_ids_are_no_lines() -> None:
    rng = np.random.default_rng(0)
    frame = {"id": rng.integers(0, 60, 900), "item": rng.integers(0, 400, 900)}
    X = SparseTensor.from_events(frame, ["id", "item"])
    assert X.ordered == (True, True)
    described = checked_tensor(PoissonCP(2, random_state=0).fit(X), X, None, {})
    assert [mode.is_line for mode in described.modes] == [False, False]


def test_long_lines_are_summed(tmp_path: Path) -> None:
    days = np.arange("2020-01-01", "2022-06-01", dtype="M8[D]")
    X = SparseTensor.from_events({"who": ["a"] * len(days), "day": days}, ["who", "day"])
    data = payload(write_report(tmp_path / "r.html", PoissonCP(1, random_state=0).fit(X), X=X))
    mode, course = data["modes"][1], data["topics"][0]["modes"][1]["course"]
    assert mode["step"] == 3
    assert len(course) == len(mode["labels"]) == len(mode["at"]) <= MOST_POINTS
    assert sum(course) == pytest.approx(1, rel=1e-4)


def test_names_and_errors(tmp_path: Path) -> None:
    model, X = model_of_sales(), tensor_of_sales()
    page = tmp_path / "r.html"
    data = payload(write_report(page, model, component_names=["Spring", ""]))
    by_id = {topic["id"]: topic["name"] for topic in data["topics"]}
    assert by_id[0] == "Spring"
    assert set(by_id[1].split(", ")) == {"ink", "pen"}
    with pytest.raises(TypeError, match="labels is for reports on matrices: leave it out"):
        write_report(page, model, labels=["a"])
    with pytest.raises(TypeError, match="X must be the SparseTensor of the fit"):
        write_report(page, model, X=np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"X must have shape \(4, 4, 8\)"):
        write_report(page, model, X=X.take(0, [0, 1]))
    with pytest.raises((TypeError, ValueError), match="W"):
        write_report(page, KLNMF(1, random_state=0).fit(np.ones((3, 3))))


def hostile_model() -> PoissonCP:
    frame = {
        HOSTILE: [HOSTILE, "b", "c"],
        "what": ["x", HOSTILE, "z"],
        "when": ["2024-01-01", "2024-01-02", "2024-01-03"],
    }
    return PoissonCP(2, random_state=0).fit(SparseTensor.from_events(frame, list(frame)))


def test_names_are_never_html(tmp_path: Path) -> None:
    html = write_report(tmp_path / "r.html", hostile_model(), title=HOSTILE).read_text("utf-8")
    assert "<img src=x" not in html


# ---- in a browser --------------------------------------------------------------------------------


def opened(driver: Any, page: Path, width: int = 1200) -> None:  # noqa: F811
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(page.as_uri())
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_cards_in_a_browser(driver: Any, tmp_path: Path) -> None:  # noqa: F811
    page = write_report(tmp_path / "r.html", model_of_sales(), X=tensor_of_sales())
    opened(driver, page)
    cards = driver.find_elements("css selector", ".card")
    assert len(cards) == 2
    assert "tea" in cards[0].text
    assert "Ann" in cards[0].text
    assert "Date: most in 2024-0" in cards[0].text
    assert len(cards[0].find_elements("css selector", ".course svg path.main")) == 1
    driver.find_element("id", "search").send_keys("pen")
    results = driver.find_element("id", "search-results")
    assert "pen product" in results.text
    status = driver.find_element("id", "search-status").text
    assert status == "1 label and 1 component match. Searched: all 8 labels."
    results.find_element("tag name", "a").click()
    found = driver.find_element("css selector", ".card.selected .found mark")
    assert found.text == "pen"


@pytest.mark.parametrize("width", [390, 1200])
def test_hostile_names_in_a_browser(driver: Any, tmp_path: Path, width: int) -> None:  # noqa: F811
    opened(driver, write_report(tmp_path / "r.html", hostile_model(), title=HOSTILE), width)
    assert driver.execute_script("return window.attacked") is None
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
