"""Whole calls: what is called, what is stored, and what the tables say of it."""

from __future__ import annotations

import cProfile
import json
import math
import pstats
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import whole_call_profile, whole_call_worker, whole_calls
from benchmarks.whole_call_tables import (
    comparison,
    page_table,
    ratio,
    replace_between,
    select,
    to_level,
)

from klnmf import KLNMF
from klnmf.simulate import simulate_counts

CALL = {"rank": 3, "seed": 1, "threads": 1}


def record_of(kind: str = "whole", **changes: Any) -> dict[str, Any]:
    settings = {"build": "klnmf", "set": "bible", "rank": 20, "dtype": "float32", "threads": 1}
    figures = {"seconds": 2.0, "cpu": 1.0, "iterations": 30, "objective": 10.0, "gap": 1e-4}
    around = {"returned": 4.0, "around": 1.0, "nonzeros": 12345}
    return {"kind": kind, "seed": 0, "machine": "M", **settings, **figures, **around} | changes


def cells_of_row(text: str, containing: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if containing in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture(name="X")
def counts() -> sp.csr_array:
    return simulate_counts(60, 40, 3, random_state=0).X.astype(np.float32)


# ---- calls ---------------------------------------------------------------------------------------


def test_the_call_is_the_default_one(X: sp.csr_array) -> None:
    model = KLNMF(3, random_state=1).fit(X)
    answer = whole_call_worker.whole_call(X, CALL)
    assert answer["objective"] == model.divergence_
    assert answer["iterations"] == model.n_iter_
    assert answer["gap"] == model.optimality_gap_
    assert 0 < answer["solver_seconds"] < answer["seconds"]


def test_a_call_to_a_level_ends_at_the_first_record_below_it(X: sp.csr_array) -> None:
    history = KLNMF(3, random_state=1).fit(X).history_
    level = history[4]["divergence"]
    first = next(record for record in history if record["divergence"] <= level)
    answer = whole_call_worker.call_to_level(X, CALL | {"level": level})
    assert answer["iterations"] == first["iteration"]
    assert answer["objective"] == first["divergence"]
    assert answer["solver_seconds"] < answer["seconds"] < answer["returned"]
    assert math.isclose(answer["around"], answer["returned"] - answer["solver_seconds"])
    never = whole_call_worker.call_to_level(X, CALL | {"level": 0.0})
    assert never["seconds"] is None


def test_both_builds_are_called_alternately_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(whole_call_worker.klnmf.__file__).parent.parent
    kept = tmp_path / "calls.json"
    sp.save_npz(tmp_path / "tiny.npz", simulate_counts(60, 40, 3, random_state=0).X)
    arguments = ["--data", str(tmp_path), "--sets", "tiny", "--ranks", "3", "--starts", "2"]
    arguments += ["--baseline", str(source), "--json", str(kept), "--to-level"]
    args = whole_calls.parse(arguments)
    whole_calls.run_all(args, whole_calls.Results(kept, [], again=False))
    records = json.loads(kept.read_text())["records"]
    wholes = [(r["seed"], r["build"]) for r in records if r["kind"] == "whole"]
    assert wholes == [(0, "klnmf"), (0, "baseline"), (1, "baseline"), (1, "klnmf")]
    ours, theirs = (select(records, kind="whole", build=b) for b in ("klnmf", "baseline"))
    assert ratio(ours, theirs, "objective") == 1.0
    monkeypatch.setattr(whole_calls, "Worker", None)  # nothing is called again
    stored = whole_calls.Results(kept, [], again=False)
    whole_calls.run_all(args, stored)
    assert list(stored.records.values()) == records


def test_another_library_than_the_one_named_is_refused(tmp_path: Path) -> None:
    # The second, where the library is not installed: there is none at all.
    with pytest.raises(SystemExit, match=r"Python imports klnmf from|A worker ended"):
        whole_calls.Worker(tmp_path, 1, tmp_path)


def test_a_set_that_is_nowhere_is_named(tmp_path: Path) -> None:
    folders = whole_calls.Folders(tmp_path, tmp_path)
    with pytest.raises(SystemExit, match=r"needs a file nowhere\.npz"):
        whole_calls.obtain("nowhere", folders)


# ---- tables --------------------------------------------------------------------------------------


def test_ratios_are_taken_start_by_start() -> None:
    ours = {0: {"seconds": 1.0}, 1: {"seconds": 2.0}, 2: {"seconds": 8.0}, 9: {"seconds": 1.0}}
    theirs = {0: {"seconds": 5.0}, 1: {"seconds": 4.0}, 2: {"seconds": 24.0}}
    assert ratio(theirs, ours, "seconds") == 3.0
    assert ratio(theirs, {}, "seconds") is None


def test_the_comparison_shows_how_far_ends_are_above_the_baseline() -> None:
    records = [record_of(seed=s, objective=o) for s, o in enumerate([10.0, 10.1, 10.4])]
    records += [
        record_of(seed=s, objective=o, build="baseline", seconds=6.0, gap=None)
        for s, o in enumerate([10.0, 10.0, 10.0])
    ]
    row = cells_of_row(comparison(records), "| klnmf")
    assert row[-4:] == ["3.00", "1.00", "+1.0000", "+4.0000"]
    assert cells_of_row(comparison(records), "| baseline")[-5:] == ["–", "", "", "", ""]


def test_the_level_table_says_what_surrounds_the_solver() -> None:
    records = [record_of("level"), record_of("scikit-learn", seconds=100.0, cpu=90.0)]
    row = cells_of_row(to_level(records), "| klnmf")
    assert row[3:8] == ["1/1", "100", "2.00", "50.0", "90.0"]
    assert row[-1] == "0.25"
    missed = record_of("level", seed=1, seconds=None)
    assert cells_of_row(to_level([*records, missed]), "| klnmf")[3] == "1/2"


def test_the_page_has_a_table_for_each_machine_without_the_baseline() -> None:
    records = [
        record_of(),
        record_of(threads=2, seconds=1.0),
        record_of(build="baseline", seconds=50.0),
        record_of("scikit-learn", seconds=100.0),
        record_of("level", seconds=0.5),
        record_of(machine="N"),
    ]
    text = page_table(records)
    assert text.index("M; medians of 1 starts") < text.index("N; medians of 1 starts")
    row = cells_of_row(text, "100 s")
    assert row[0:5] == ["Bible", "12,345", "20", "float32", "100 s"]
    assert row[5:7] == ["2.00 s (50.0 ×)", "1.00 s (100 ×)"]
    assert row[-1] == "0.500 s (200 ×)"
    by_processor = page_table(records, "cpu")
    assert "2 threads" not in by_processor
    assert "M; processor seconds, medians of 1 starts" in by_processor
    assert "1.00 s (1.00 ×)" in by_processor


def test_the_table_of_the_page_is_replaced_and_nothing_else() -> None:
    begin, end = "<!-- some: begin -->", "<!-- some: end -->"
    new = replace_between(f"before {begin} old {end} after", "new", "some")
    assert new == f"before {begin}\n\nnew\n{end} after"
    assert replace_between(new, "new", "some") == new
    with pytest.raises(SystemExit, match="has no part between"):
        replace_between("nothing", "new")


# ---- profile -------------------------------------------------------------------------------------


def test_the_profile_of_a_call_names_functions_of_klnmf_by_their_own_time() -> None:
    X = sp.csr_array(np.random.default_rng(0).poisson(1.0, (60, 40)).astype(np.float32))
    profile = cProfile.Profile()
    profile.runcall(whole_call_profile.call, X, 3, 1, 0.0)
    parts = whole_call_profile.parts_of(profile)
    assert parts["cpu.update_piece"] > 0
    total = pstats.Stats(profile).total_tt  # type: ignore[attr-defined]
    assert sum(parts.values()) == pytest.approx(total)
