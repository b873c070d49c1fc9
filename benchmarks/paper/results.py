"""Access to the stored measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paper.jobs import load_results
from benchmarks.paper.sets import ALL_SETS, EMBEDDED, TF_IDF, base_name

Result = dict[str, Any]

# What the two kinds that measure 100 iterations vary.
OVER = {"growth": "rank", "threads": "threads"}

# Label, colour and dashes of the penalties that were studied.
PENALTIES = {
    "l1_W": ("L1 on W alone", "#0072b2", "--"),
    "l1_H": ("L1 on H alone", "#56b4e9", "--"),
    "l1_W l1_H": ("L1 on both", "#0072b2", "-"),
    "l2_W": ("L2 on W alone", "#d55e00", "--"),
    "l2_H": ("L2 on H alone", "#e69f00", "--"),
    "l2_W l2_H": ("L2 on both", "#d55e00", "-"),
}


@dataclass(frozen=True)
class Results:
    """All measurements that did not fail, and those that did."""

    good: list[Result]
    failed: list[Result]

    @classmethod
    def of(cls, runs: Path) -> Results:
        """Read a folder of results."""
        everything = load_results(runs)
        return cls(
            [result for result in everything if "error" not in result],
            [result for result in everything if "error" in result],
        )

    def find(self, kind: str, **settings: Any) -> list[Result]:
        """Results of one kind with these settings, in the order of the sets and of the rest."""
        found = [
            result
            for result in self.good
            if result["kind"] == kind
            and all(result["settings"].get(name) == value for name, value in settings.items())
        ]
        return sorted(found, key=lambda result: set_order(result["settings"].get("set", "")))

    def first(self, kind: str, **settings: Any) -> Result | None:
        """One of them, or None."""
        return next(iter(self.find(kind, **settings)), None)

    def values(self, kind: str, setting: str) -> list[Any]:
        """All values of one setting, sets in their usual order."""
        seen = {result["settings"][setting] for result in self.find(kind)}
        return sorted(seen, key=set_order if setting == "set" else None)

    @property
    def usual_processor(self) -> str:
        """The processor that most measurements were made on."""
        seen = Counter(result["environment"]["processor"] for result in self.good)
        return seen.most_common(1)[0][0] if seen else ""

    def environments(self) -> dict[str, str]:
        """Versions and processors of the measurements; several values if they differ."""
        seen: dict[str, dict[str, None]] = {}
        for result in self.good:
            for name, value in result["environment"].items():
                seen.setdefault(name, {})[value] = None
        return {name: " / ".join(values) for name, values in seen.items()}


def set_order(name: str) -> tuple[int, bool]:
    """Position of a set in tables: the order of the paper, tf-idf after the counts."""
    order = (*ALL_SETS, EMBEDDED)
    base = base_name(name)
    return (order.index(base) if base in order else len(order), name.endswith(TF_IDF))


def seconds_to(result: Result, target: float) -> float | None:
    """Solver seconds until the divergence was at most the target; None if it never was."""
    reached = [s for s, _, value in result["points"] if value is not None and value <= target]
    return min(reached, default=None)


def same_iterations(runs: list[Result]) -> list[Result]:
    """The runs, each cut to the number of iterations that all of them have, if known.

    The first iterations take the longest: runs of different lengths cannot be compared.
    """
    if not all("times" in run for run in runs):
        return runs
    common = min((run["iterations"] for run in runs), default=0)
    return [
        run | {"iterations": common, "seconds": times[common - 1], "times": times[:common]}
        for run in runs
        for times in [run["times"]]
    ]


def seconds_of_hundred(run: Result) -> float:
    """Seconds of 100 iterations on a quiet machine, counting those not made at the last pace.

    The last pace is that of the second half of the iterations that were made. Where only the sum of
    their times is known, it is that of all.
    """
    done, seconds = run["iterations"], run["seconds"]
    half = done // 2 if "times" in run else 0
    pace = (seconds - (run["times"][half - 1] if half else 0.0)) / (done - half)
    # Runs with several threads are compared with each other, by the clock.
    share = run.get("cpu_share", 1.0) if run["kind"] == "growth" else 1.0
    return float(share * (seconds + max(0, 100 - done) * pace))


def lowest(results: Iterable[Result]) -> float:
    """The lowest divergence of all."""
    return min(v for result in results for _, _, v in result["points"] if v is not None)


def kind_of_penalty(run: dict[str, Any]) -> str:
    """Which weights are not 0, such as "l1_W l1_H"."""
    settings = run["settings"]
    return " ".join(name for name in ("l1_W", "l1_H", "l2_W", "l2_H") if settings[name] > 0)


def weight_of_penalty(run: dict[str, Any]) -> float:
    """The weight, the same on all that are penalised."""
    return float(max(run["settings"][name] for name in ("l1_W", "l1_H", "l2_W", "l2_H")))


def sorted_sets(results: Results, kind: str, **settings: Any) -> list[str]:
    """Sets with such measurements, in their usual order."""
    return list(dict.fromkeys(r["settings"]["set"] for r in results.find(kind, **settings)))


def penalty_cells(results: Results) -> list[tuple[str, int]]:
    """Sets and ranks on which penalties were studied."""
    cells = [(r["settings"]["set"], r["settings"]["rank"]) for r in results.find("penalty")]
    return sorted(set(cells), key=lambda cell: (set_order(cell[0]), cell[1]))
