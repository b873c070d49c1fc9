"""The report in a browser: it runs, can be searched, sorted and used without a mouse.

The tests need Chromium or Chrome, its driver, and selenium (extra ``test``). Where one is missing
they are skipped, or fail if KLNMF_REQUIRE_BROWSER=1 is set.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report_models import HOSTILE, model_of, random_factors, written_example

pytest.importorskip("jinja2")

from klnmf import KLNMF
from klnmf.model_selection import RankSelection
from klnmf.report import write_report
from klnmf.simulate import simulate_counts
from klnmf.topics import mean_shares, top_features
from klnmf.uncertainty import bootstrap

HOW_TO_GET_ONE = (
    "No browser for the tests of the report: install Chromium and its driver (Debian and Ubuntu: "
    "apt-get install chromium chromium-driver) and selenium (pip install selenium)."
)


def missing(reason: str) -> Any:
    """Skip, or fail where a browser is required."""
    message = f"{HOW_TO_GET_ONE} ({reason})"
    if os.environ.get("KLNMF_REQUIRE_BROWSER") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    try:
        from selenium import webdriver
    except ImportError:
        missing("selenium is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    browser = next(filter(None, map(shutil.which, names)), None)
    driver_path = shutil.which("chromedriver")
    if browser is None or driver_path is None:
        missing(f"browser: {browser or 'not found'}, chromedriver: {driver_path or 'not found'}")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium refuses to run as root with one
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver_path)
    session = webdriver.Chrome(options=options, service=service)
    yield session
    session.quit()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_example(tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def page(driver: Any, example: Path) -> Iterator[Any]:
    """The example, freshly opened on a wide screen; no test may leave a message on the console."""
    yield opened(driver, example)
    assert driver.get_log("browser") == []


def opened(driver: Any, path: Path, width: int = 1280) -> Any:
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 800}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    driver.get(path.as_uri())
    driver.execute_script("localStorage.clear()")
    return driver


def texts(page: Any, selector: str) -> list[str]:
    """Texts of the elements that are not hidden."""
    found: list[str] = page.execute_script(
        "return [...document.querySelectorAll(arguments[0])]"
        ".filter(e => e.getClientRects().length).map(e => e.textContent)",
        selector,
    )
    return found


def all_of(page: Any, selector: str) -> list[Any]:
    found: list[Any] = page.find_elements("css selector", selector)
    return found


def words_of(page: Any, topic: str) -> list[str]:
    return texts(page, f"#{topic} .words .name")


def top_of(page: Any, selector: str) -> float:
    """Where an element is in the window, in pixels from above."""
    script = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    top: float = page.execute_script(script, selector)
    return top


def type_in(page: Any, selector: str, text: str) -> None:
    page.find_element("css selector", selector).send_keys(text)


def press(page: Any, *keys: str) -> Any:
    """Press keys where the focus is; returns what has it then."""
    for key in keys:
        page.switch_to.active_element.send_keys(key)
    return page.switch_to.active_element


def test_loads_without_messages_and_shows_every_part(page: Any) -> None:
    assert len(texts(page, ".card")) == 6
    assert len(texts(page, "#map .bubble")) == 6
    assert len(texts(page, "#topic-table tbody tr")) == 6
    assert len(texts(page, ".strip svg")) == 3
    rows = "tbody tr:not(.excerpt)"
    assert all(len(texts(page, f"#topic-{k} .typical {rows}")) == 5 for k in range(6))
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize("stability", [0.9, math.nan])
def test_chart_of_the_ranks_is_drawn(driver: Any, tmp_path: Path, stability: float) -> None:
    numbers = np.array([1, 2, 4])
    selection = RankSelection(
        best_rank=2,
        lowest_rank=4,
        stable_rank=2,
        ranks=numbers,
        deviance=10.0 - numbers,
        difference=4.0 - numbers,
        standard_error=numbers / 2,
        stability=np.full(3, stability),
        background=np.full(3, 0.01),
        seconds=np.ones(3),
        is_complete=True,
        n_splits=5,
        random_state=0,
        n_samples=90,
        n_features=80,
        median_total=100.0,
    )
    path = written_example(tmp_path / "r.html", rank_selection=selection)
    cut_off = "const e = document.querySelector('#rank .scroller');"
    cut_off += "return [e.scrollWidth > e.clientWidth, e.scrollHeight > e.clientHeight]"
    assert opened(driver, path, width=390).execute_script(cut_off) == [False, False]
    page = opened(driver, path)
    heights = page.execute_script(
        "return [...document.querySelectorAll('#rank-chart circle')]"
        ".map(e => e.getBoundingClientRect().top)"
    )
    assert len(heights) == 3
    assert heights == sorted(heights)  # lower deviance is lower on the page
    curve = page.find_element("css selector", "#rank-chart path.excess").get_attribute("d")
    assert bool(curve) == (stability == 0.9)
    assert len(texts(page, "#rank-table tr")) == 4
    assert page.find_element("css selector", "nav a[href='#rank']").is_displayed()
    assert driver.get_log("browser") == []


def test_hostile_names_are_shown_and_do_not_run(page: Any) -> None:
    type_in(page, "#search", "onerror")  # draws the marked names too
    assert page.execute_script("return window.attacked") is None
    assert page.execute_script("return document.images.length") == 0
    assert page.find_element("css selector", "h1").text == " ".join(HOSTILE.split())
    assert HOSTILE[:59] + "…" in words_of(page, "topic-0")
    assert page.title.startswith("</script><img")
    inserted = page.execute_script(
        "const e = document.createElement('img'); e.setAttribute('onerror', 'window.attacked = 1');"
        "document.body.append(e); e.dispatchEvent(new Event('error')); return window.attacked"
    )
    assert inserted is None  # the policy of the page forbids it even if a name got through
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


def test_words_are_ranked_as_in_the_names_or_by_frequency(page: Any) -> None:
    _, components = random_factors(90, 80, 6)
    names = [f"word{j}" for j in range(80)]

    def expected(by: Any) -> list[str]:
        return [name for name, _ in top_features(components, names, by=by)[0]][1:]

    first = words_of(page, "topic-0")  # the first has the hostile name
    assert first[1:] == expected("lift")
    choice = page.find_element("css selector", "#rank-by")
    choice.send_keys("\ue015")  # arrow down
    assert words_of(page, "topic-0")[1:] == expected("weight") != first[1:]
    lengths = page.execute_script(
        "return [...document.querySelectorAll('#topic-0 .fill')].map(e => e.clientWidth)"
    )
    assert lengths == sorted(lengths, reverse=True)
    choice.send_keys("\ue013")  # and up
    assert words_of(page, "topic-0") == first


def test_search_finds_every_word_and_leads_to_its_topics(page: Any) -> None:
    W, components = random_factors(90, 80, 6)
    mass = W.sum(axis=0)[:, np.newaxis] * components
    type_in(page, "#search", "WORD77")
    topics = [
        int(k) for k in np.argsort(-mass[:, 77])[:3] if mass[k, 77] > 0.02 * mass[:, 77].sum()
    ]
    assert len(topics) > 0
    links = texts(page, "#search-results a")
    assert [int(link.split(" · ")[0]) for link in links] == topics
    assert texts(page, "#search-results mark") == ["word77"]
    [status] = texts(page, "#search-status")
    assert status.startswith("1 word, 0 topics and 0 documents match. Searched: all 78 words")

    card = press(page, "\ue007")  # Enter follows the first link
    assert card.get_attribute("id") == f"topic-{topics[0]}"
    assert "word77" in words_of(page, f"topic-{topics[0]}")  # wherever it ranks
    assert texts(page, ".card mark") == ["word77"]
    share = mass[topics[0], 77] / mass[:, 77].sum()
    [cells] = page.execute_script(
        "return [...document.querySelectorAll('tr.found')]"
        ".map(e => [...e.querySelectorAll('.number')].map(c => parseFloat(c.textContent)))"
    )
    within = components[topics[0], 77] / components[topics[0]].sum()
    assert cells == pytest.approx([100 * within, 100 * share], rel=0.03, abs=0.51)
    assert texts(page, "#search-results") == []
    dimmed = {int(e.get_attribute("data-topic")) for e in all_of(page, ".bubble.dimmed")}
    assert dimmed == set(range(6)) - set(topics)
    heading = page.find_element("css selector", f"#topic-{topics[0]} h3 button")
    page.execute_script("arguments[0].click()", heading)  # not chosen any more
    assert texts(page, ".card mark") == []
    assert all_of(page, ".bubble.dimmed") == []


def test_search_finds_topics_and_documents(page: Any) -> None:
    type_in(page, "#search", "sample 33")
    assert texts(page, "#search-results a") == ["sample 33"]
    card = press(page, "\ue007")
    assert texts(page, ".card mark") == ["sample 33"]
    assert "selected" in card.get_attribute("class")
    press(page, "/")
    type_in(page, "#search", "name 4")
    assert texts(page, "#search-results a") == ["4 · name 4"]
    press(page, "\ue00c")  # Escape
    assert texts(page, "#search-results a") == []
    type_in(page, "#search", "nothing like this")
    assert texts(page, "#search-status")[0].startswith("0 words, 0 topics and 0 documents match")


def test_search_finds_what_the_page_shows_of_documents(page: Any) -> None:
    """An excerpt and a label are found too, and the link leads to where the page shows it."""
    name = texts(page, "#topic-2 .typical .name")[3]
    query = f"text of {name}"
    having = {text for text in texts(page, ".excerpt") if text.endswith(query)}
    assert len(having) == 1
    type_in(page, "#search", query.upper())
    assert texts(page, "#search-results .hint mark")[0] == query
    [status] = texts(page, "#search-status")
    assert status.endswith("90 documents of this page (names and labels; 30 excerpts).")
    page.execute_script(
        "[...document.querySelectorAll('#search-results a')]"
        ".find(e => e.textContent === arguments[0]).click()",
        name,
    )
    assert texts(page, ".card.selected .typical mark") == [name, query]
    type_in(page, "#search", "south")
    assert "and 30 documents match" in texts(page, "#search-status")[0]
    assert texts(page, "#search-results h3")[-1] == "Documents: 5 of 30"


def test_words_that_lead_no_topic_are_found(driver: Any, tmp_path: Path) -> None:
    W, components = random_factors(60, 3000, 4)
    page = opened(driver, write_report(tmp_path / "report.html", model_of(components), W))
    mass = W.sum(axis=0)[:, np.newaxis] * components
    j = int(np.argsort(np.where(mass.sum(axis=0) > 0, mass.sum(axis=0), np.inf))[0])  # the rarest
    type_in(page, "#search", f"feature {j}")
    press(page, "\ue007")
    best = int(mass[:, j].argmax())
    assert texts(page, f"#topic-{best} mark") == [f"feature {j}"]
    numbers = texts(page, "tr.found .number")
    assert len(numbers) == 2
    assert all("NaN" not in number for number in numbers)
    assert driver.get_log("browser") == []


def test_shares_by_column_are_drawn_with_their_numbers(page: Any) -> None:
    assert next(o.text for o in all_of(page, "#column option")) == "year"
    W, components = random_factors(90, 80, 6)
    means = mean_shares(W, components, np.arange(90) // 10)
    assert len(texts(page, "#column-chart .mean")) == 9
    assert len(texts(page, "#column-chart .band")) == 8
    topic = int(page.execute_script("return document.getElementById('column-topic').value"))
    rows = page.execute_script(
        "return [...document.querySelectorAll('#column-table tbody tr')]"
        ".map(e => [...e.cells].map(c => c.textContent))"
    )
    assert [row[0] for row in rows] == [str(year) for year in range(1990, 1999)]
    for row, share in zip(rows, means.shares[:, topic], strict=True):
        assert float(row[2].split()[0]) == pytest.approx(100 * share, abs=0.51)
    page.execute_script(
        "const c = document.getElementById('column'); c.value = '2';"
        "c.dispatchEvent(new Event('change'))"
    )
    assert len(texts(page, "#column-chart .interval")) == 2
    assert len(texts(page, "#column-chart polygon")) == 0
    page.execute_script(
        "const c = document.getElementById('column-topic'); c.value = '3';"
        "c.dispatchEvent(new Event('change'))"
    )
    assert texts(page, "#column-table-heading") == ["3 · name 3"]
    assert "selected" in page.find_element("css selector", "#topic-3").get_attribute("class")


def test_times_have_a_choice_of_periods(driver: Any, tmp_path: Path) -> None:
    W, components = random_factors(90, 20, 3)
    days = np.datetime64("2001-01-01") + 10 * np.arange(90)
    metadata = {"date": days, "place": ["here", "there"] * 45}
    path = write_report(tmp_path / "r.html", model_of(components), W, metadata=metadata)
    page = opened(driver, path)
    assert [o.text for o in all_of(page, "#column option")] == ["date", "place"]
    assert [o.text for o in all_of(page, "#column-period option")] == ["month", "quarter", "year"]
    assert texts(page, "#column-chart-heading") == ["Mean share by date, by month"]
    chosen = "const c = document.getElementById(arguments[0]); c.value = arguments[1];"
    chosen += "c.dispatchEvent(new Event('change'))"
    page.execute_script(chosen, "column-period", "1")
    assert texts(page, "#column-chart-heading") == ["Mean share by date, by quarter"]
    assert texts(page, "#column-table th")[0] == "Date (quarter)"
    assert texts(page, "#column-table td:first-child")[:2] == ["2001-Q1", "2001-Q2"]
    assert "2001-Q1" in texts(page, "#column-chart text")
    page.execute_script(chosen, "column", "1")
    assert texts(page, "#column-table th")[0] == "Place"
    assert not page.find_element("css selector", "#column-period").is_displayed()
    assert driver.get_log("browser") == []


def test_counts_and_texts_have_words_of_their_own(driver: Any, tmp_path: Path) -> None:
    W, components = random_factors(40, 30, 3)
    labels = ["a", "b"] * 20
    for vocabulary, foreign in (("counts", "topic|word|document"), ("texts", "component|feature")):
        path = tmp_path / "report.html"
        page = opened(
            driver,
            write_report(path, model_of(components), W, labels=labels, vocabulary=vocabulary),
        )
        # Names of features, titles and labels for screen readers too, but neither code nor ids.
        found = page.execute_script(
            "document.querySelectorAll('pre, code').forEach(e => e.remove());"
            "return [document.body.innerText, ...[...document.querySelectorAll('*')].flatMap(e => "
            "['title', 'aria-label', 'placeholder'].map(a => e.getAttribute(a) ?? ''))].join(' ')"
        )
        assert re.findall(rf"\b({foreign})s?\b", found, flags=re.IGNORECASE) == []


def test_every_column_of_every_table_has_a_title(page: Any) -> None:
    untitled = page.execute_script(
        "return [...document.querySelectorAll('table:not(.facts)')].filter(t => {"
        "const heads = [...t.rows[0].cells];"
        "return heads.length !== Math.max(...[...t.rows].map(r => "
        "[...r.cells].reduce((n, c) => n + c.colSpan, 0))) || heads.some(h => !h.textContent);"
        "}).map(t => t.outerHTML.slice(0, 100))"
    )
    assert untitled == []


def test_tables_sort_both_ways(page: Any) -> None:
    def column(table: str, at: int) -> list[str]:
        return texts(page, f"#{table} tbody td:nth-child({at})")

    def head(table: str, at: int) -> Any:
        return page.find_element("css selector", f"#{table} thead th:nth-child({at})")

    assert head("topic-table", 3).get_attribute("aria-sort") == "descending"
    head("topic-table", 1).find_element("css selector", "button").click()
    assert column("topic-table", 1) == ["5", "4", "3", "2", "1", "0"]
    assert head("topic-table", 3).get_attribute("aria-sort") is None
    press(page, "\ue007")  # Enter on the same button
    assert column("topic-table", 1) == ["0", "1", "2", "3", "4", "5"]
    assert head("topic-table", 1).get_attribute("aria-sort") == "ascending"

    names = [name for name in column("sample-table", 1) if name.startswith("sample")]
    assert names == sorted(names, key=lambda name: int(name.split()[1]))
    head("sample-table", 5).find_element("css selector", "button").click()
    totals = [float(text) for text in column("sample-table", 5)]
    assert totals == sorted(totals, reverse=True)


def test_keyboard_goes_from_the_map_to_the_cards(page: Any) -> None:
    press(page, "\t")
    assert page.switch_to.active_element.text == "Skip to the topics"
    for _ in range(20):
        focused = press(page, "\t")
        outline = page.execute_script(
            "const s = getComputedStyle(arguments[0]); return s.outlineStyle + s.strokeWidth",
            focused,
        )
        if focused.get_attribute("class") == "bubble":
            break
        assert outline.startswith("solid")
    else:
        pytest.fail("the map was not reached with the Tab key")
    first = focused.get_attribute("data-topic")
    focused = press(page, "\ue014")  # arrow to the right
    second = focused.get_attribute("data-topic")
    assert second != first
    assert texts(page, "#map-readout")[0].startswith(f"{second} · ")
    card = press(page, "\ue007")
    assert card.get_attribute("id") == f"topic-{second}"
    assert "selected" in card.get_attribute("class")
    assert texts(page, ".bubble.selected text") == [second]
    assert len(texts(page, "path.chosen")) >= 1
    # From the card on: its heading, which undoes the choice.
    heading = press(page, "\t")
    assert heading.get_attribute("aria-pressed") == "true"
    assert press(page, " ").get_attribute("aria-pressed") == "false"
    more = press(page, "\t")
    assert more.text == "More words"
    press(page, "\ue007")
    assert 10 < len(words_of(page, f"topic-{second}")) <= 30
    assert press(page, "/").get_attribute("id") == "search"


def test_map_keeps_circles_apart(driver: Any, tmp_path: Path) -> None:
    W, components = random_factors(120, 60, 30)
    path = write_report(tmp_path / "report.html", model_of(components), W)
    for width in (1280, 390):
        page = opened(driver, path, width)
        circles = page.execute_script(
            "return [...document.querySelectorAll('.bubble circle')]"
            ".map(c => ['cx', 'cy', 'r'].map(a => Number(c.getAttribute(a))))"
        )
        assert len(circles) == 30
        for (x, y, r), (x2, y2, r2) in itertools.combinations(circles, 2):
            assert math.hypot(x - x2, y - y2) > r + r2
    assert driver.get_log("browser") == []


def test_nothing_scrolls_sideways_on_a_phone(driver: Any, example: Path, tmp_path: Path) -> None:
    W, components = random_factors(40, 60, 3)
    unbroken = "x" * 300
    long_names = write_report(
        tmp_path / "report.html",
        model_of(components),
        W,
        feature_names=[unbroken] * 60,
        sample_names=[unbroken] * 40,
        labels=[unbroken] * 40,
        documents=[unbroken] * 40,
        title=unbroken,
        parameters={"input": unbroken},
    )
    for path in (example, long_names):
        page = opened(driver, path, width=390)
        assert page.execute_script("return innerWidth") == 390
        assert page.execute_script("return document.documentElement.scrollWidth") == 390
        page.execute_script("document.querySelectorAll('.more').forEach(e => e.click())")
        assert (
            page.execute_script(
                "return [...document.querySelectorAll('.scroller')]"
                ".filter(e => e.scrollWidth > e.clientWidth).map(e => e.outerHTML.slice(0, 120))"
            )
            == []
        )
        # One column, and nothing reaches beyond the edge, not even inside something that scrolls.
        beyond = page.execute_script(
            "return [...document.querySelectorAll('body *')].filter(e => "
            "!e.matches('.skip, .hidden-label') && e.getBoundingClientRect().right > 390.5)"
            ".map(e => e.outerHTML.slice(0, 120))"
        )
        assert beyond == []
        lefts = page.execute_script(
            "return [...document.querySelectorAll('.card')]"
            ".map(e => e.getBoundingClientRect().left)"
        )
        assert len(set(lefts)) == 1


@pytest.mark.parametrize("width", [390, 1200])
def test_intervals_leave_room_for_words(driver: Any, tmp_path: Path, width: int) -> None:
    X = simulate_counts(60, 30, 3, random_state=0).X
    model = KLNMF(3, random_state=0)
    W = model.fit_transform(X)
    names = [f"gene-{j}" for j in range(30)]
    intervals = bootstrap(model, X, 3, feature_names=names, random_state=0)
    path = write_report(tmp_path / "r.html", model, W, X, feature_names=names, intervals=intervals)
    too_wide = (
        "return [...document.querySelectorAll('#interval-table :is(th, td)')]"
        ".filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)"
    )
    page = opened(driver, path, width=width)
    assert page.execute_script(too_wide) == []
    words = "return document.querySelector('#interval-table td:last-child').clientWidth"
    assert page.execute_script(words) > 100


def test_a_phone_shows_all_topics_folded_with_whole_words(driver: Any, tmp_path: Path) -> None:
    W, components = random_factors(120, 300, 24)
    path = write_report(
        tmp_path / "report.html",
        model_of(components),
        W,
        feature_names=[f"word{j}" for j in range(300)],
        sample_names=[f"sample {i}" for i in range(120)],
        documents=["administration of the kingdom " * 9] * 120,
        component_names=[f"Administrators, responsibilities {k}" for k in range(24)],
        coherence=np.linspace(-0.1, 0.3, 24),
        metadata={"office": ["Administration", "responsibilities of all"] * 60},
    )
    page = opened(driver, path, width=390)
    height = page.execute_script("return document.querySelector('#topics').offsetHeight")
    assert height < 5500  # 24 cards that are not folded have more than 20,000
    # The overview says how much is below, and less after scrolling.
    assert texts(page, "#topic-table th") == ["No.", "Topic", "Share", "Coherence"]
    assert texts(page, "#topic-table tr:first-child td:nth-child(4)")[0].startswith(("0.", "-0."))
    shown = page.execute_script(
        "const box = document.querySelector('.overview .scroller').getBoundingClientRect();"
        "return [...document.querySelectorAll('#topic-table tbody tr')]"
        ".filter(e => e.getBoundingClientRect().bottom <= box.bottom + 4).length"
    )
    assert texts(page, ".overview .below") == [f"↓ {24 - shown} more"]
    page.execute_script("document.querySelector('.overview .scroller').scrollTop = 1e6")
    page.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 50))")
    assert texts(page, ".overview .below") == [""]
    # No word of a name is broken: each one is one rectangle.
    broken = page.execute_script(
        "const broken = [];"
        "for (const name of document.querySelectorAll('table .name, h3 .name')) {"
        "  for (const { 0: word, index } of name.textContent.matchAll(/\\S+/g)) {"
        "    const range = document.createRange(); range.setStart(name.firstChild, index);"
        "    range.setEnd(name.firstChild, index + word.length);"
        "    if (range.getClientRects().length > 1) broken.push(word); } } return broken"
    )
    assert broken == []
    # A card is unfolded by its line of words, and by all that leads to it.
    assert texts(page, ".card table") == []
    fold = page.find_element("css selector", "#topic-3 .fold")
    assert fold.get_attribute("aria-expanded") == "false"
    page.execute_script("arguments[0].click()", fold)
    assert len(texts(page, "#topic-3 table")) == 2
    assert fold.get_attribute("aria-expanded") == "true"
    page.execute_script("arguments[0].click()", fold)
    assert texts(page, ".card table") == []
    page.execute_script("document.querySelector('#topic-table a').click()")
    assert len(texts(page, ".card.selected table")) == 2
    wide = opened(driver, path)
    assert len(texts(wide, ".card table")) == 48
    assert texts(wide, ".fold") == []
    assert driver.get_log("browser") == []


def test_colours_follow_the_system_and_the_toggle(page: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    def ground() -> str:
        colour: str = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        return colour

    def system(scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    system("light")
    light = ground()
    system("dark")
    dark = ground()
    assert dark != light
    toggle = page.find_element("css selector", "#theme")
    WebDriverWait(page, 10).until(lambda _: toggle.text == "Light")  # the page is told in a while
    toggle.click()
    assert ground() == light
    assert toggle.text == "Dark"
    page.refresh()
    assert ground() == light  # the choice is kept
    system("light")
    page.execute_script("localStorage.clear()")


def test_one_topic_without_labels_or_history(driver: Any, tmp_path: Path) -> None:
    model = model_of(np.array([[1.0, 0.0, 2.0]]), history_=[])
    page = opened(driver, write_report(tmp_path / "report.html", model, np.ones((2, 1))))
    assert len(texts(page, ".card")) == 1
    assert len(texts(page, ".strip.alone svg")) == 1
    empty = model_of(np.zeros((2, 3)), history_=[])
    page = opened(driver, write_report(tmp_path / "report.html", empty, np.zeros((2, 2))))
    assert texts(page, ".card caption") == ["No sample uses this component"] * 2
    assert driver.get_log("browser") == []
