"""The list of measurements."""

from __future__ import annotations

import math
from typing import NamedTuple

from benchmarks.paper.jobs import Job
from benchmarks.paper.methods import METHODS
from benchmarks.paper.sets import EMBEDDED, TF_IDF

# What there is to measure, see benchmarks.paper.measurements.
KINDS = ("break_test", "subproblem", "size", "penalty", "curve", "growth", "threads")


class Plan(NamedTuple):
    """How much is measured."""

    sets: list[str]
    curve_ranks: tuple[int, ...] = (10, 20)
    curve_seconds: float = 60.0
    growth_ranks: tuple[int, ...] = (10, 20, 30, 50, 75, 100)
    threads: tuple[int, ...] = (1, 2)
    rank_of_threads: int = 50
    growth_seconds: float = 10.0  # if 100 iterations take longer, there are fewer
    # Entries of the dense product times components up to which CCD takes part in the growth: one
    # of its iterations takes minutes beyond.
    largest_dense: float = 3e9
    size_nonzeros: int = 400_000
    size_sides: tuple[int, ...] = (2_000, 4_000, 8_000)
    readings_starts: int = 3
    # A usual rank, and one that is too large for a small corpus.
    penalty_cells: tuple[tuple[str, int], ...] = (
        (EMBEDDED, 20),
        (EMBEDDED, 80),
        ("reuters21578", 20),
    )
    penalty_weights: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    penalty_iterations: int = 300


def jobs_of(plan: Plan, shapes: dict[str, tuple[int, int]]) -> list[Job]:
    """All measurements, the cheap ones first; ``shapes`` are those of the sets."""
    return [
        *_claims(plan),
        *_penalties(plan),
        *(
            Job(
                "curve",
                {"set": name, "method": method, "rank": rank, "seed": 0}
                | {"seconds": plan.curve_seconds},
            )
            for name in plan.sets
            for rank in plan.curve_ranks
            for method in METHODS
        ),
        *_growth(plan, shapes),
    ]


def _claims(plan: Plan) -> list[Job]:
    rank = plan.curve_ranks[0]
    counts = [name for name in plan.sets if not name.endswith(TF_IDF)]
    readings = [
        Job(
            "break_test",
            {"set": name, "rank": rank, "reading": reading, "iterations": 60, "seed": seed},
        )
        for name in counts
        for reading in ("absolute", "signed")
        for seed in range(plan.readings_starts)
    ]
    subproblems = [Job("subproblem", {"set": name, "rank": rank, "calls": 30}) for name in counts]
    sizes = [
        Job(
            "size",
            {"rows": rows, "columns": 2 * rows, "nonzeros": nonzeros, "method": method}
            | {"rank": rank, "iterations": 12},
        )
        for method in ("mu", "ccd", "srcd-paper", "default-same-start")
        for rows, nonzeros in [
            *((side, plan.size_nonzeros) for side in plan.size_sides),
            *((plan.size_sides[-1], plan.size_nonzeros * factor) for factor in (2, 4)),
        ]
    ]
    return readings + subproblems + sizes


def _penalties(plan: Plan) -> list[Job]:
    none = {"l1_W": 0.0, "l2_W": 0.0, "l1_H": 0.0, "l2_H": 0.0}
    weights = [none] + [
        none | dict.fromkeys(names, weight)
        for names in (
            ("l1_W",),
            ("l1_H",),
            ("l1_W", "l1_H"),
            ("l2_W",),
            ("l2_H",),
            ("l2_W", "l2_H"),
        )
        for weight in plan.penalty_weights
    ]
    return [
        Job(
            "penalty",
            {"set": name, "rank": rank, "iterations": plan.penalty_iterations} | weight,
        )
        for name, rank in plan.penalty_cells
        if name == EMBEDDED or name in plan.sets
        for weight in weights
    ]


def _growth(plan: Plan, shapes: dict[str, tuple[int, int]]) -> list[Job]:
    counts = [name for name in plan.sets if not name.endswith(TF_IDF)]
    cells = [("growth", rank, 1) for rank in plan.growth_ranks]
    cells += [("threads", plan.rank_of_threads, threads) for threads in plan.threads]
    return [
        Job(
            kind,
            {"set": name, "method": method, "rank": rank, "threads": threads}
            | {"iterations": 100, "seconds": plan.growth_seconds},
            alone=kind == "threads",
        )
        for name in counts
        for method in ("mu", "ccd", "srcd-paper", "default-same-start")
        for kind, rank, threads in cells
        if method != "ccd" or math.prod(shapes[name]) * rank <= plan.largest_dense
    ]
