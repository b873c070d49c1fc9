"""Expected running times of the comparison with peers, from the stored runs.

A run reaches a target at its first snapshot at or below it. klnmf has a snapshot in every
iteration. A peer has one whenever its number of iterations has grown by a third
(``peer_clock.next_mark``; for MiniBatchNMF, whenever it has doubled). So its time may be too long
by that much, but never too short.

The expected running time of a solver is the total time of its runs, each until it reaches the
target or ends, divided by the number of runs that reach it. Starts that end in a poor optimum thus
count as time lost.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peer_clock import LANDMARK
from benchmarks.peer_jobs import Group
from benchmarks.peer_solvers import SOLVERS

Run = dict[str, Any]
Points = Sequence[Sequence[Any]]  # (seconds, iterations, divergence or None)

OURS, REFERENCE = "klnmf", "sklearn-mu"
PERCENTS = (3.0, 1.0, 0.3, 0.1)
END = "end of "


def load_runs(folder: Path) -> dict[Group, list[Run]]:
    """All stored runs, by group."""
    groups: dict[Group, list[Run]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text())
        key = (run["set"], run["rank"], run["dtype"], run["threads"], run["seconds"])
        groups[Group(*key)].append(run)
    return dict(sorted(groups.items()))


# ---- numbers -------------------------------------------------------------------------------------


def arrival(points: Points, target: float) -> float | None:
    """Seconds of the first snapshot at or below the target."""
    times = [seconds for seconds, _, value in points if value is not None and value <= target]
    return min(times, default=None)


def expected_running_time(
    runs: Iterable[tuple[Points, float]],
) -> tuple[float | None, int, int]:
    """Total time per run that reached its target; the number of these; the number of runs.

    Parameters
    ----------
    runs : iterable of (points, target)
        Trajectories, each with the target of its start.

    Examples
    --------
    >>> arrives, fails = [(1.0, 5, 30.0), (2.0, 10, 20.0), (9.0, 20, 10.0)], [(4.0, 5, 30.0)]
    >>> expected_running_time([(arrives, 20.0), (fails, 20.0)])
    (6.0, 1, 2)
    """
    total, arrived, count = 0.0, 0, 0
    for points, target in runs:
        count += 1
        seconds = arrival(points, target)
        arrived += seconds is not None
        total += max(point[0] for point in points) if seconds is None else seconds
    return (total / arrived if arrived else None), arrived, count


def lowest(points: Points, within: float = math.inf) -> float | None:
    """Lowest divergence of the snapshots up to that time."""
    values = [value for seconds, _, value in points if value is not None and seconds <= within]
    return min(values, default=None)


def value_after(points: Points, iterations: int) -> tuple[float, float] | None:
    """Seconds and divergence of the snapshot after exactly this many iterations."""
    for seconds, count, value in points:
        if count == iterations and value is not None:
            return float(seconds), float(value)
    return None


def whole_call(run: Run) -> tuple[float, float] | None:
    """Seconds and divergence of the package's default call, from the call to its return.

    For a peer: the first snapshot with all iterations of that call. None if there is none, or if
    the default call has another objective.
    """
    if "whole_call" in run:
        return run["whole_call"]["seconds"], run["whole_call"]["objective"]
    iterations = SOLVERS[run["solver"]].default_iterations
    if iterations is None or not SOLVERS[run["solver"]].is_peer:
        return None
    return next(
        (
            (float(seconds), float(value))
            for seconds, count, value in run["points"]
            if count >= iterations and value is not None
        ),
        None,
    )


def best_found(groups: Mapping[Group, list[Run]]) -> dict[tuple[str, int], float]:
    """Lowest divergence of any run on a set at a rank: all solvers, starts, types and times."""
    best: dict[tuple[str, int], float] = {}
    for group, runs in groups.items():
        for run in runs:
            value = lowest(run.get("points", []))
            if value is not None:
                key = (group.set, group.rank)
                best[key] = min(value, best.get(key, math.inf))
    return best


def find_targets(
    runs: Sequence[Run], best: float, seeds: Iterable[int], seconds: float
) -> dict[str, dict[int, float]]:
    """Targets by name, with one value for each start.

    These are scikit-learn's divergence after 200 iterations from that start, distances from the
    lowest divergence found, and the lowest divergence of each peer from that start.
    """
    starts = list(seeds)
    targets: dict[str, dict[int, float]] = {REFERENCE: {}}
    for percent in PERCENTS:
        targets[f"{percent:g} %"] = dict.fromkeys(starts, best * (1 + percent / 100))
    for run in runs:
        if run["solver"] == REFERENCE and (reached := value_after(run["points"], LANDMARK)):
            targets[REFERENCE][run["seed"]] = reached[1]
        if SOLVERS[run["solver"]].is_peer:
            end = lowest(run["points"], within=seconds)
            if end is not None:
                targets.setdefault(END + run["solver"], {})[run["seed"]] = end
    return targets


def floors(runs: Sequence[Run], ours: str = OURS) -> dict[int, float]:
    """By start: scikit-learn's time for 200 iterations over ours to its objective there.

    0 where ours did not reach it.
    """
    ratios: dict[int, float] = {}
    by_seed = {run["seed"]: run["points"] for run in runs if run["solver"] == ours}
    for run in runs:
        reached = value_after(run["points"], LANDMARK) if run["solver"] == REFERENCE else None
        if reached and run["seed"] in by_seed:
            seconds = arrival(by_seed[run["seed"]], reached[1])
            ratios[run["seed"]] = 0.0 if seconds is None else reached[0] / seconds
    return ratios


def summarise_group(group: Group, runs: Sequence[Run], best: float) -> dict[str, Any]:
    """All numbers of one group."""
    failed = [run for run in runs if "error" in run or not run["points"]]
    good = [run for run in runs if run not in failed]
    targets = find_targets(good, best, {run["seed"] for run in good}, group.seconds)
    present = [name for name in SOLVERS if any(run["solver"] == name for run in good)]
    times: dict[str, dict[str, Any]] = {}
    for solver in present:
        times[solver] = {}
        for target, values in targets.items():
            ert, arrived, count = expected_running_time(
                (run["points"], values[run["seed"]])
                for run in good
                if run["solver"] == solver and run["seed"] in values
            )
            times[solver][target] = {"seconds": ert, "arrived": arrived, "runs": count}
    ours = times.get(OURS, {})
    ratios = {
        solver: {target: _ratio(cell, ours.get(target)) for target, cell in cells.items()}
        for solver, cells in times.items()
    }
    mine = [name for name in present if name in (OURS, "klnmf-same-start")]
    return {
        "set": group.set,
        "rank": group.rank,
        "dtype": group.dtype,
        "threads": group.threads,
        "seconds": group.seconds,
        "title": group.title,
        "shape": good[0]["shape"] if good else None,
        "nonzeros": good[0]["nonzeros"] if good else None,
        "best": best if math.isfinite(best) else None,
        "targets": targets,
        "expected_running_time": times,
        "ratio_to_klnmf": ratios,
        "floors": {name: _floor_summary(floors(good, name)) for name in mine},
        "lowest": {solver: _median_lowest(good, solver) for solver in present},
        "whole_call": {solver: _median_whole_call(good, solver) for solver in present},
        "peak_bytes": {
            solver: max(run["peak_bytes"] for run in good if run["solver"] == solver)
            for solver in present
        },
        "versions": {run["solver"]: run["version"] for run in good},
        "failed": [[run["solver"], run["seed"], run.get("error", "no snapshot")] for run in failed],
    }


def _median_lowest(runs: Sequence[Run], solver: str) -> float | None:
    """Median over starts of the lowest divergence; None if there is none for most of them."""
    ends = [lowest(run["points"]) for run in runs if run["solver"] == solver]
    value = median(math.inf if end is None else end for end in ends)
    return value if math.isfinite(value) else None


def _median_whole_call(runs: Sequence[Run], solver: str) -> dict[str, float] | None:
    """Medians over starts; None unless all calls returned."""
    calls = [whole_call(run) for run in runs if run["solver"] == solver]
    done = [call for call in calls if call is not None]
    if not done or len(done) < len(calls):
        return None
    seconds, ends = zip(*done, strict=True)
    return {"seconds": median(seconds), "divergence": median(ends)}


def _ratio(cell: Mapping[str, Any], ours: Mapping[str, Any] | None) -> float | str | None:
    """Their time over ours; "never" if only we reached the target; None if we did not."""
    if not ours or not ours["seconds"] or not cell["runs"]:
        return None
    return cell["seconds"] / ours["seconds"] if cell["seconds"] else "never"


def _floor_summary(ratios: Mapping[int, float]) -> dict[str, Any] | None:
    if not ratios:
        return None
    values = ratios.values()
    return {
        "median": median(values),
        "least": min(values),
        "greatest": max(values),
        "by_start": dict(ratios),
    }


def summarise(groups: Mapping[Group, list[Run]]) -> list[dict[str, Any]]:
    """All numbers of all groups."""
    best = best_found(groups)
    return [
        summarise_group(group, runs, best.get((group.set, group.rank), math.inf))
        for group, runs in groups.items()
    ]
