"""The evaluation of the paper: what is measured, how it is judged, and that it runs as a whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.paper import claims, jobs, tables
from benchmarks.paper.__main__ import QUICK, make_plan, parse, write_results
from benchmarks.paper.measurements import (
    break_test,
    curve,
    growth,
    is_enough,
    penalty,
    rises,
    subproblem,
    thinned,
)
from benchmarks.paper.methods import METHODS
from benchmarks.paper.plan import KINDS, Plan, jobs_of
from benchmarks.paper.published import PUBLISHED
from benchmarks.paper.results import Results, seconds_of_hundred, seconds_to
from benchmarks.paper.sets import find_sets, label, load_set, shape_of

ROOT = Path(__file__).resolve().parent.parent
MACHINE = {"processor": "here", "klnmf": "1", "numpy": "2", "scipy": "1", "python": "3"}


def result(kind: str, settings: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {"kind": kind, "settings": settings, "environment": MACHINE, **values}


def verdict(results: list[dict[str, Any]], text: str) -> claims.Claim:
    judged = [judge(Results(results, [])) for judge in claims.JUDGES]
    (found,) = [claim for claim in judged if text in claim.text]
    return found


# ---- measurements --------------------------------------------------------------------------------


def test_rises_are_counted_and_measured() -> None:
    history = [{"objective": value} for value in (100.0, 90.0, 99.0, 99.0, 50.0)]
    assert rises(history) == (1, pytest.approx(0.1))
    assert rises(history[3:]) == (0, 0.0)
    up_and_back = [{"objective": value} for value in (100.0, float("inf"), 90.0)]
    assert rises(up_and_back) == (1, float("inf"))


def test_thinned_history_keeps_both_ends() -> None:
    history = [{"iteration": i} for i in range(1, 5001)]
    kept = [record["iteration"] for record in thinned(history)]
    assert kept[0] == 1
    assert kept[-1] == 5000
    assert len(kept) < 160
    assert kept == sorted(set(kept))
    assert thinned(history[:1]) == history[:1]


@pytest.mark.parametrize("method", METHODS)
def test_a_curve_goes_down_and_tells_what_was_measured(method: str) -> None:
    settings = {"set": "bible", "method": method, "rank": 3, "seed": 0, "seconds": 0.05}
    found = curve(settings, None)
    values = [value for _, _, value in found["points"]]
    assert found["shape"] == [1189, 6061]
    assert values[-1] == found["end"] < values[0] or found["iterations"] == 1
    assert all(0 <= share < 1 for share in found["zeros"])
    assert found["peak_bytes"] > 0
    assert found["process_bytes"] > found["peak_bytes"]
    if method.startswith("default"):
        assert found["rises"] == 0


def test_readings_of_the_break_test_differ() -> None:
    settings = {"set": "bible", "rank": 5, "iterations": 8, "seed": 0}
    assert break_test(settings | {"reading": "absolute"}, None)["rises"] == 0
    assert break_test(settings | {"reading": "signed"}, None)["rises"] > 0


def test_subproblem_comes_near_the_least_value_and_not_below() -> None:
    excess = subproblem({"set": "bible", "rank": 3, "calls": 12}, None)["excess"]
    assert excess[0] > 1e-3
    assert -1e-12 < excess[-1] < 1e-7


def test_heavy_l1_removes_components() -> None:
    none = {"l1_W": 0.0, "l2_W": 0.0, "l1_H": 0.0, "l2_H": 0.0}
    settings = {"set": "bible", "rank": 5, "iterations": 40}
    free = penalty(settings | none, None)
    heavy = penalty(settings | none | {"l1_W": 1000.0, "l1_H": 1000.0}, None)
    assert free["live"] == 5
    assert heavy["live"] < 3
    assert heavy["divergence"] > free["divergence"]
    assert heavy["score"] < free["score"] < 0


# ---- plan ----------------------------------------------------------------------------------------


def test_every_kind_is_planned_and_dense_growth_is_bounded() -> None:
    plan = Plan(["reuters21578", "mnist_train"])
    planned = jobs_of(plan, {"reuters21578": (8293, 18933), "mnist_train": (60000, 784)})
    assert {job.kind for job in planned} == set(KINDS)
    assert len({job.name for job in planned}) == len(planned)
    dense = [job.settings for job in planned if job.kind == "growth" and "ccd" in job.name]
    assert {(s["set"], s["rank"]) for s in dense} == {
        ("reuters21578", 10),
        *(("mnist_train", rank) for rank in (10, 20, 30, 50)),
    }
    assert all(job.alone == (job.kind == "threads") for job in planned)


def test_sets_are_those_in_the_folder(tmp_path: Path) -> None:
    X = sp.csr_array(np.eye(3))
    for name in ("reuters21578", "pbmc3k"):
        sp.save_npz(tmp_path / f"{name}.npz", X)
    there, absent = find_sets(tmp_path)
    assert there == ["reuters21578", "reuters21578-tfidf", "pbmc3k"]
    assert absent == ["mnist_train", "tdt2_top30", "rcv1_4class", "20newsgroups_qwone"]
    assert label("reuters21578-tfidf") == "Reuters21578, tf-idf"
    assert shape_of("pbmc3k", tmp_path) == (3, 3)
    weighted = load_set("reuters21578-tfidf", tmp_path)
    assert weighted.toarray() == pytest.approx(np.eye(3))
    with pytest.raises(SystemExit, match=r"has none of mnist_train\.npz"):
        find_sets(tmp_path / "nowhere")
    with pytest.raises(SystemExit, match="KLNMF_DATA"):
        find_sets(None)
    unknown = ["--data", str(tmp_path), "--out", "x", "--sets", "tdt2"]
    with pytest.raises(SystemExit, match="Unknown data set: tdt2; there are reuters21578"):
        make_plan(parse(unknown))


# ---- jobs ----------------------------------------------------------------------------------------


def test_stored_measurements_are_not_made_again_and_failures_are_kept(tmp_path: Path) -> None:
    broken = jobs.Job("size", {"rows": 10, "columns": 20, "nonzeros": 0, "method": "nonsense"})
    jobs.run_all([broken], None, tmp_path, at_once=1)
    path = tmp_path / f"{broken.name}.json"
    assert "KeyError" in json.loads(path.read_text())["error"]
    path.write_text(json.dumps(result("size", broken.settings, seconds=1.0)))
    jobs.run_all([broken], None, tmp_path, at_once=1)
    assert Results.of(tmp_path).first("size", method="nonsense")["seconds"] == 1.0


# ---- verdicts and tables -------------------------------------------------------------------------


def run(method: str, points: list[list[float]], name: str = "reuters21578", **more: Any) -> Any:
    settings = {"set": name, "method": method, "rank": 10}
    usual = {
        "shape": [8293, 18933],
        "nonzeros": 389_455,
        "zeros": [0.756, 0.716],
        "end": points[-1][2],
        "residual": 1e-4,
        "converged": True,
        "peak_bytes": 20e6,
        "process_bytes": 200e6,
    }
    return result("curve", settings, points=points, **(usual | more))


def test_a_rise_refutes_monotone_convergence() -> None:
    settings = {"set": "bible", "reading": "signed"}
    down = result("break_test", settings, iterations=60, rises=0, largest_rise=0.0)
    up = result("break_test", settings, iterations=60, rises=2, largest_rise=0.25)
    assert verdict([down], "as printed").verdict == claims.HOLDS
    judged = verdict([down, up], "as printed")
    assert judged.verdict == claims.FAILS
    assert "1 of 2 runs of 60 iterations rise, 2 times in all, by 25 % at most" in judged.evidence
    assert verdict([], "as printed").verdict == claims.UNKNOWN


def test_speed_is_judged_at_a_level_that_both_reach() -> None:
    srcd = run("srcd-paper", [[0.1, 1, 200.0], [1.0, 2, 100.0], [9.0, 3, 90.0]])
    slow = [[1.0, 1, 200.0], [5.0, 2, 100.0]]
    judged = verdict([srcd, run("mu", slow), run("ccd", slow)], "much faster")
    assert judged.verdict == claims.HOLDS
    assert "5 to 5" in judged.evidence
    quick = [[0.1, 1, 200.0], [0.5, 2, 100.0]]
    assert (
        verdict([srcd, run("mu", quick), run("ccd", slow)], "much faster").verdict == claims.PARTLY
    )
    assert seconds_to(srcd, 95.0) == 9.0
    assert seconds_to(srcd, 80.0) is None


def test_the_gap_is_compared_over_sets_one_point_each() -> None:
    def trio(name: str, columns: int, gap: float) -> list[Any]:
        shape = {"shape": [100, columns], "nonzeros": 1000}
        slow = [[gap, 1, 100.0]]
        return [
            run("srcd-paper", [[1.0, 1, 100.0]], name, **shape),
            *(run(method, slow, name, **shape) for method in ("mu", "ccd")),
        ]

    sets = [("pbmc3k", 100, 2.0), ("tdt2_top30", 200, 3.0), ("reuters21578", 400, 9.0)]
    rising = [entry for cell in sets for entry in trio(*cell)]
    judged = verdict([*rising, *trio("reuters21578-tfidf", 400, 9.0)], "larger the gap")
    assert judged.verdict == claims.HOLDS
    assert "over 3 sets: 1.00" in judged.evidence
    falling = [entry for name, m, gap in sets for entry in trio(name, m, 10.0 - gap)]
    assert verdict(falling, "larger the gap").verdict == claims.FAILS


def test_zeros_of_multiplicative_updates_are_reported() -> None:
    points = [[1.0, 1, 100.0]]
    none = [run(m, points, zeros=[0.0, 0.0]) for m in ("mu", "ccd")]
    assert verdict(none, "0 % zeros").verdict == claims.HOLDS
    some = [run("mu", points, zeros=[0.5, 0.0]), none[1]]
    assert verdict(some, "0 % zeros").verdict == claims.PARTLY


def test_tables_set_ours_beside_the_papers() -> None:
    results = Results([run(method, [[1.0, 1, 100.0]]) for method in METHODS], [])
    assert "| Reuters21578 | 10 | 75.6, 71.6 | 75.6, 71.6 |" in tables.zeros(results)
    assert "99.7520 | 8,293 × 18,933, 389,455, 99.7520 | yes |" in tables.data_sets(results)
    assert "| 0.020 (5.88) | 0.020 (2.46) | 0.020 (0.17) | 0.020 |" in tables.memory(results)
    assert verdict(results.good, "as in Table 2").verdict == claims.HOLDS
    wrong = run("mu", [[1.0, 1, 100.0]], nonzeros=389_454)
    assert "| no |" in tables.data_sets(Results([wrong], []))


def test_hundred_iterations_are_marked_where_there_were_fewer() -> None:
    settings = {"set": "bible", "method": "mu", "rank": 10, "threads": 1}
    half = result("growth", settings, iterations=50, seconds=2.0)
    other = result("growth", settings | {"rank": 20}, iterations=100, seconds=3.0)
    elsewhere = [other | {"environment": MACHINE | {"processor": "there"}}]
    text = tables.growth(Results([half, half, *elsewhere], []), "growth")
    assert "| Bible | MU | 4 (50 done) | 3† |" in text


def test_iterations_that_were_not_made_are_counted_at_the_last_pace() -> None:
    settings = {"set": "bible", "method": "mu", "rank": 10, "threads": 1}
    times = [10.0, 12.0, 12.5, 13.0]  # the first iteration took as long as twenty of the last
    run = result("growth", settings, iterations=4, seconds=13.0, times=times)
    assert seconds_of_hundred(run) == 13.0 + 96 * 0.5
    assert seconds_of_hundred(run | {"cpu_share": 0.5}) == (13.0 + 96 * 0.5) / 2
    assert seconds_of_hundred(run | {"cpu_share": 0.5, "kind": "threads"}) == 13.0 + 96 * 0.5
    one = result("growth", settings, iterations=1, seconds=3.0, times=[3.0])
    assert seconds_of_hundred(one) == 300.0


def test_a_pace_is_not_measured_on_the_first_iterations_alone() -> None:
    assert is_enough({"iteration": 10, "seconds": 15.0}, 15.0)
    assert not is_enough({"iteration": 10, "seconds": 14.0}, 15.0)
    assert not is_enough({"iteration": 9, "seconds": 599.0}, 15.0)
    assert is_enough({"iteration": 1, "seconds": 600.0}, 15.0)
    settings = {"set": "bible", "method": "mu", "rank": 2, "threads": 1, "iterations": 3}
    measured = growth(settings | {"seconds": 60.0}, None)
    assert measured["iterations"] == 3
    assert measured["seconds"] == measured["times"][-1]
    assert 0 < measured["cpu_share"] <= 1


def test_threads_are_compared_over_the_same_iterations() -> None:
    def timed(threads: int, times: list[float]) -> dict[str, Any]:
        settings = {"set": "bible", "method": "srcd-paper", "rank": 10, "threads": threads}
        return result("threads", settings, iterations=len(times), seconds=times[-1], times=times)

    judged = verdict([timed(1, [8.0, 10.0]), timed(4, [2.0, 2.5, 2.6, 2.7])], "more threads")
    assert judged.evidence == "Bible 4.0 times on 4"
    text = tables.growth(
        Results([timed(1, [8.0, 10.0]), timed(4, [2.0, 2.5, 2.6, 2.7])], []), "threads"
    )
    assert "| Bible | SRCD (paper) | 206 (2 done) | 51.5 (2 done) |" in text
    assert judged.verdict == claims.HOLDS


def test_published_numbers_are_consistent() -> None:
    for published in PUBLISHED.values():
        cells = published.shape[0] * published.shape[1]
        assert round(100 * (1 - published.nonzeros / cells), 4) == published.sparsity


# ---- as a whole ----------------------------------------------------------------------------------


def test_a_page_needs_measurements(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no measurements"):
        write_results(tmp_path, [], quick=True)


@pytest.mark.slow
def test_the_quick_form_makes_the_whole_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.paper", "--quick", "--out", str(tmp_path)]
    environ = os.environ | {"MPLBACKEND": "Agg"}
    done = subprocess.run(
        [*command, "--at-once", "2"], cwd=ROOT, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout
    text = (tmp_path / "paper.md").read_text(encoding="utf-8")
    # One corpus does not tell how the gap depends on sparsity; all else is judged.
    unjudged = [line for line in text.splitlines() if "| not measured |" in line]
    assert [line.split(" | ")[0] for line in unjudged] == [
        "| The sparser the data, the larger the gap"
    ]
    assert "(no figure)" not in text
    assert "$" not in text
    for figure in ("figure1", "figure2", "figure3", "figure4", "penalties-bible-20"):
        assert (tmp_path / "paper" / f"{figure}.svg").read_text().rstrip().endswith("</svg>")
    stored = json.loads((tmp_path / "paper" / "results.json").read_text())
    assert len(stored["results"]) == len(list((tmp_path / "paper" / "runs").iterdir()))
    assert {
        entry["settings"]["set"] for entry in stored["results"] if entry["kind"] == "curve"
    } == set(QUICK.sets)
