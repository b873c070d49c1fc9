"""Claims of the paper, and whether the measurements support them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from benchmarks.paper.published import PUBLISHED
from benchmarks.paper.results import Results, lowest, seconds_of_hundred, seconds_to, sorted_sets
from benchmarks.paper.sets import base_name, label
from benchmarks.paper.tables import markdown_table

HOLDS, FAILS, PARTLY, UNKNOWN = "holds", "does not hold", "holds in part", "cannot be tested"


class Claim(NamedTuple):
    """One claim, the verdict and what it rests on."""

    text: str
    verdict: str
    evidence: str
    kind: str  # of the measurements that show it


def table(results: Results) -> str:
    """All claims as a table."""
    found = [judge(results) for judge in JUDGES]
    rows = [
        [claim.text, f"**{claim.verdict}**", claim.evidence, f"`--kinds {claim.kind}`"]
        for claim in found
    ]
    header = ["claim", "verdict", "evidence", "command"]
    return markdown_table(header, rows).replace("---:", "---")


def _missing(text: str, kind: str) -> Claim:
    return Claim(text, UNKNOWN, "not measured", kind)


# ---- convergence ---------------------------------------------------------------------------------


def _monotone(results: Results, reading: str) -> Claim:
    how = {"absolute": "\\|Δx\\| < ε_x x", "signed": "Δx < ε_x x, as printed"}[reading]
    text = f"Monotone convergence, break test of Algorithm 2 read as {how}"
    runs = results.find("break_test", reading=reading)
    if not runs:
        return _missing(text, "break_test")
    rising = [run for run in runs if run["rises"]]
    total = sum(run["rises"] for run in runs)
    infinite = any(run["largest_rise"] is None for run in runs)
    largest = max((run["largest_rise"] or 0.0 for run in runs), default=0.0)
    size = "to infinity" if infinite else f"by {100 * largest:.2g} % at most"
    evidence = f"{len(rising)} of {len(runs)} runs of {runs[0]['iterations']} iterations rise"
    evidence += f", {total} times in all, {size}" if rising else ""
    return Claim(text, FAILS if rising else HOLDS, evidence, "break_test")


def _subproblem(results: Results) -> Claim:
    text = "Algorithm 2 converges to the global minimum of f"
    runs = results.find("subproblem")
    if not runs:
        return _missing(text, "subproblem")
    once = [run["excess"][0] for run in runs]
    ends = [run["excess"][-1] for run in runs]
    known = all(value is not None for value in once + ends)
    arrived = known and max(ends) < 1e-5
    evidence = (
        f"one call, which is all that Algorithm 1 makes, ends {_percents(once)} above the lowest "
        f"value; after {len(runs[0]['excess'])} calls {_percents(ends)}"
    )
    return Claim(text, PARTLY if arrived else FAILS, evidence, "subproblem")


def _percents(values: list[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if len(known) < len(values):
        return "at infinity in some runs"
    low, high = max(min(known), 0.0), max(max(known), 0.0)
    return f"{low:.2g} to {high:.2g} %" if len(known) > 1 else f"{high:.2g} %"


def _stationary(results: Results) -> Claim:
    text = "Algorithm 1 converges to a stationary point"
    runs = results.find("curve", method="srcd-paper")
    ours = results.find("curve", method="default")
    if not runs:
        return _missing(text, "curve")
    residuals = [run["residual"] for run in runs if run["residual"] is not None]
    arrived = sum(residual <= 1e-3 for residual in residuals)
    evidence = (
        f"a limit cannot be observed; at the end of the time, {arrived} of {len(runs)} runs met a "
        f"KKT residual of at most 1e-3 (median {np.median(residuals):.2g}); of klnmf's runs "
        f"{sum(run['converged'] for run in ours)} of {len(ours)} had converged"
    )
    return Claim(text, HOLDS if arrived == len(runs) else UNKNOWN, evidence, "curve")


# ---- speed ---------------------------------------------------------------------------------------


def _gap(results: Results, name: str, rank: int, slow: str) -> float | None:
    """Time of a method over the paper's, to the higher one of their two ends."""
    pair = [results.first("curve", set=name, rank=rank, method=m) for m in (slow, "srcd-paper")]
    if None in pair:
        return None
    slower, faster = pair
    target = max(lowest([slower]), lowest([faster])) * (1 + 1e-12)
    times = seconds_to(slower, target), seconds_to(faster, target)
    return None if None in times or not times[1] else times[0] / times[1]


def _gaps(results: Results, slow: str) -> dict[tuple[str, int], float]:
    cells = [
        (name, rank)
        for rank in results.values("curve", "rank")
        for name in sorted_sets(results, "curve", rank=rank)
    ]
    gaps = {cell: _gap(results, *cell, slow) for cell in cells}
    return {cell: gap for cell, gap in gaps.items() if gap is not None}


def _faster(results: Results) -> Claim:
    text = "SRCD converges much faster than MU and CCD"
    gaps = {slow: _gaps(results, slow) for slow in ("mu", "ccd")}
    if not all(gaps.values()):
        return _missing(text, "curve")
    least = min(min(of.values()) for of in gaps.values())
    parts = [
        f"{slow.upper()}'s time over SRCD's, to a level both reach: {min(of.values()):.2g} to "
        f"{max(of.values()):.2g}, median {np.median(list(of.values())):.2g}, below 1 in "
        f"{sum(gap < 1 for gap in of.values())} of {len(of)} cases"
        for slow, of in gaps.items()
    ]
    medians = [float(np.median(list(of.values()))) for of in gaps.values()]
    verdict = HOLDS if least > 2 else PARTLY if max(medians) > 2 else FAILS
    evidence = "; ".join(parts) + " (MU here touches the nonzeros alone, the paper's did not)"
    return Claim(text, verdict, evidence, "curve")


def _sparser(results: Results) -> Claim:
    text = "The sparser the data, the larger the gap"
    evidence, correlations = [], []
    for slow in ("mu", "ccd"):
        gaps = _gaps(results, slow)
        if len({base_name(name) for name, _ in gaps}) < 3:
            return _missing(text, "curve")
        # One point a set: its ranks and weights share one sparsity.
        by_set: dict[str, list[float]] = {}
        for (name, _), gap in gaps.items():
            by_set.setdefault(base_name(name), []).append(gap)
        density = [_density(results, name) for name in by_set]
        medians = [float(np.median(of)) for of in by_set.values()]
        correlation = -float(spearmanr(density, medians).statistic)
        correlations.append(correlation)
        evidence.append(
            f"rank correlation of sparsity and median gap to {slow.upper()} over {len(by_set)} "
            f"sets: {correlation:.2f}"
        )
    verdict = HOLDS if min(correlations) > 0.7 else PARTLY if max(correlations) > 0.7 else FAILS
    return Claim(text, verdict, "; ".join(evidence), "curve")


def _density(results: Results, name: str) -> float:
    run = results.find("curve", set=name)[0]
    n, m = run["shape"]
    return float(run["nonzeros"] / (n * m))


# ---- cost ----------------------------------------------------------------------------------------


def _size_ratio(results: Results, method: str, **change: Any) -> float | None:
    runs = results.find("size", method=method)
    sides = sorted({run["settings"]["rows"] for run in runs})
    counts = sorted({run["settings"]["nonzeros"] for run in runs})
    if len(sides) < 2 or len(counts) < 2:
        return None
    first, last = (
        ({"rows": sides[0], "nonzeros": counts[0]}, {"rows": sides[-1], "nonzeros": counts[0]})
        if change["over"] == "cells"
        else (
            {"rows": sides[-1], "nonzeros": counts[0]},
            {"rows": sides[-1], "nonzeros": counts[-1]},
        )
    )
    pair = [results.first("size", method=method, **cell) for cell in (first, last)]
    return None if None in pair else pair[1]["seconds"] / pair[0]["seconds"]


def _theorem(results: Results) -> Claim:
    text = "Theorem 1: an iteration costs O(t̄ (m n r + (m + n) r²))"
    cells, nonzeros = (_size_ratio(results, "srcd-paper", over=o) for o in ("cells", "nonzeros"))
    if cells is None or nonzeros is None:
        return _missing(text, "size")
    runs = results.find("size", method="srcd-paper")
    sides = sorted({run["settings"]["rows"] for run in runs})
    factor = (sides[-1] / sides[0]) ** 2
    evidence = (
        f"as an upper bound; with the nonzeros fixed and m n times {factor:.0f}, an iteration is "
        f"{cells:.2g} times as long (the bound allows {factor:.0f}); CCD, which keeps the dense "
        f"product, {_size_ratio(results, 'ccd', over='cells') or float('nan'):.2g} times"
    )
    return Claim(text, HOLDS if cells <= factor else FAILS, evidence, "size")


def _only_sparsity(results: Results) -> Claim:
    text = "The cost of the derivatives depends on the sparsity of the data alone"
    cells, nonzeros = (_size_ratio(results, "srcd-paper", over=o) for o in ("cells", "nonzeros"))
    if cells is None or nonzeros is None:
        return _missing(text, "size")
    counts = sorted({run["settings"]["nonzeros"] for run in results.find("size")})
    evidence = (
        "contradicts the m n r of Theorem 1, which comes from updating Ax at the zeros; updated "
        f"at the nonzeros alone, as here, {counts[-1] / counts[0]:.0f} times the nonzeros take "
        f"{nonzeros:.2g} times as long, and m n hardly matters"
    )
    return Claim(text, HOLDS if cells < 3 else PARTLY, evidence, "size")


def _linear_in_rank(results: Results) -> Claim:
    text = "Running time grows linearly with r"
    runs = results.find("growth", method="srcd-paper")
    slopes = []
    for name in sorted_sets(results, "growth", method="srcd-paper"):
        of = [run for run in runs if run["settings"]["set"] == name]
        if len(of) >= 3:
            x = np.log([run["settings"]["rank"] for run in of])
            y = np.log([seconds_of_hundred(run) for run in of])
            slopes.append(float(np.polyfit(x, y, 1)[0]))
    if not slopes:
        return _missing(text, "growth")
    evidence = f"time ∝ r^p with p = {min(slopes):.2f} to {max(slopes):.2f} (SRCD of the paper)"
    return Claim(text, HOLDS if max(slopes) < 1.2 else PARTLY, evidence, "growth")


def _speedup(one: dict[str, Any], many: dict[str, Any]) -> float:
    """Time of one run over that of another, for the same number of iterations."""
    common = min(one["iterations"], many["iterations"])
    return float(one["times"][common - 1] / many["times"][common - 1])


def _threads(results: Results) -> Claim:
    text = "Running time falls significantly with more threads"
    efficiencies, parts = [], []
    for name in sorted_sets(results, "threads", method="srcd-paper"):
        runs = {
            run["settings"]["threads"]: run
            for run in results.find("threads", set=name, method="srcd-paper")
        }
        most = max(runs)
        if most > 1 and 1 in runs:
            speedup = _speedup(runs[1], runs[most])
            efficiencies.append(speedup / most)
            parts.append(f"{label(name)} {speedup:.1f} times on {most}")
    if not parts:
        return _missing(text, "threads")
    verdict = HOLDS if min(efficiencies) > 0.4 else PARTLY
    return Claim(text, verdict, "; ".join(parts), "threads")


# ---- factors and memory --------------------------------------------------------------------------


def _zeros_of_others(results: Results) -> Claim:
    text = "MU and CCD give 0 % zeros"
    runs = [run for m in ("mu", "ccd") for run in results.find("curve", method=m)]
    if not runs:
        return _missing(text, "curve")
    by_method = {
        m: max(max(run["zeros"]) for run in results.find("curve", method=m)) for m in ("mu", "ccd")
    }
    evidence = (
        f"CCD at most {100 * by_method['ccd']:.1f} % (a floor is kept under every entry); MU up to "
        f"{100 * by_method['mu']:.1f} %, entries that shrink until they are rounded to 0"
    )
    worst = max(by_method.values())
    return Claim(text, HOLDS if worst == 0 else PARTLY, evidence, "curve")


def _sparse_factors(results: Results) -> Claim:
    text = "SRCD's factors are sparse, as in Table 2"
    differences = []
    for run in results.find("curve", method="srcd-paper"):
        published = PUBLISHED.get(base_name(run["settings"]["set"]))
        printed = published.zeros.get(run["settings"]["rank"]) if published else None
        if printed:
            differences += [abs(100 * z - p) for z, p in zip(run["zeros"], printed, strict=True)]
    if not differences:
        shares = [100 * min(run["zeros"]) for run in results.find("curve", method="srcd-paper")]
        if not shares:
            return _missing(text, "curve")
        return Claim(
            text, UNKNOWN, f"no set of the paper's here; {min(shares):.0f} % at least", "curve"
        )
    evidence = (
        f"median difference from the printed shares {np.median(differences):.1f} points, largest "
        f"{max(differences):.1f}"
    )
    return Claim(text, HOLDS if np.median(differences) < 5 else PARTLY, evidence, "curve")


def _memory(results: Results) -> Claim:
    text = "SRCD needs remarkably less memory on sparse data, O(nnz + (m + n) r)"
    ratios = []
    for name in sorted_sets(results, "curve", rank=10):
        pair = [results.first("curve", set=name, rank=10, method=m) for m in ("srcd-paper", "ccd")]
        if None not in pair:
            ratios.append((pair[1]["peak_bytes"] / pair[0]["peak_bytes"], label(name)))
    if not ratios:
        return _missing(text, "curve")
    least, most = min(ratios), max(ratios)
    evidence = (
        f"CCD takes {least[0]:.3g} times as much on {least[1]}, {most[0]:.3g} times on {most[1]}"
    )
    return Claim(text, HOLDS if least[0] > 1 else PARTLY, evidence, "curve")


JUDGES: tuple[Callable[[Results], Claim], ...] = (
    lambda results: _monotone(results, "absolute"),
    lambda results: _monotone(results, "signed"),
    _subproblem,
    _stationary,
    _theorem,
    _only_sparsity,
    _faster,
    _sparser,
    _zeros_of_others,
    _sparse_factors,
    _memory,
    _linear_in_rank,
    _threads,
)
