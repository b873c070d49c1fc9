"""Figures: convergence, growth with rank and threads, penalties."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from benchmarks.paper.methods import METHODS
from benchmarks.paper.results import (
    OVER,
    PENALTIES,
    Results,
    kind_of_penalty,
    lowest,
    penalty_cells,
    same_iterations,
    seconds_of_hundred,
    sorted_sets,
    weight_of_penalty,
)
from benchmarks.paper.sets import label

# Nothing lower than this above the lowest is told apart: 0 has no place on a logarithmic axis.
FLOOR = 1e-5
_PANEL = (3.6, 2.9)


def draw_all(results: Results, folder: Path) -> dict[str, str]:
    """Draw the figures that have measurements; returns their names and captions."""
    folder.mkdir(parents=True, exist_ok=True)
    captions = {}
    drawings: dict[str, tuple[Callable[[], Figure | None], str]] = {}
    for figure, rank in enumerate(results.values("curve", "rank"), start=1):
        drawings[f"figure{figure}"] = (
            lambda rank=rank: convergence(results, rank),
            f"Figure {figure}: divergence above the lowest that any method found, against solver "
            f"time, r = {rank}, one thread, both axes logarithmic.",
        )
    drawings["figure3"] = (
        lambda: growth(results, "growth"),
        "Figure 3: seconds of 100 iterations against the number of components, one thread.",
    )
    drawings["figure4"] = (
        lambda: growth(results, "threads"),
        "Figure 4: seconds of 100 iterations against threads; dotted: perfect speed-up.",
    )
    for name, rank in penalty_cells(results):
        drawings[f"penalties-{name}-{rank}"] = (
            lambda name=name, rank=rank: penalties(results, name, rank),
            f"Penalties on {label(name)}, r = {rank}: what a weight does. Dashed: a penalty on "
            "one factor alone.",
        )
    for name, (draw, caption) in drawings.items():
        figure_drawn = draw()
        if figure_drawn is not None:
            figure_drawn.savefig(folder / f"{name}.svg", metadata={"Date": None})
            captions[name] = caption
    return captions


def _panels(n: int, columns: int) -> tuple[Figure, list[Any]]:
    columns = min(columns, n)
    rows = math.ceil(n / columns)
    size = (_PANEL[0] * columns, _PANEL[1] * rows + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for ax in axes[n:]:
        ax.remove()
    for ax in axes[:n]:
        ax.grid(True, color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    return figure, axes[:n]


def _legend(figure: Figure, axes: Sequence[Any]) -> None:
    """One legend for all panels, below them."""
    entries = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside lower center",
        ncols=len(entries) if len(entries) < 6 else 4,
        frameon=False,
        fontsize=9,
    )


def convergence(results: Results, rank: int) -> Figure | None:
    """Divergence above the lowest, against solver time."""
    names = sorted_sets(results, "curve", rank=rank)
    if not names:
        return None
    figure, axes = _panels(len(names), 4)
    for ax, name in zip(axes, names, strict=True):
        runs = results.find("curve", set=name, rank=rank)
        best = lowest(runs)
        for method, how in METHODS.items():
            for run in (r for r in runs if r["settings"]["method"] == method):
                points = [(s, v / best - 1) for s, _, v in run["points"] if v is not None]
                if not points:
                    continue
                seconds, excess = np.array(points).T
                ax.plot(
                    seconds,
                    np.maximum(excess, FLOOR),
                    color=how.colour,
                    linestyle=how.dashes,
                    marker="o" if len(points) < 3 else None,
                    markersize=3.5,
                    linewidth=2.2 if method == "default" else 1.4,
                    label=how.label,
                )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylim(0.7 * FLOOR, 2.0)
        ax.yaxis.set_major_formatter(
            lambda value, _: f"{'≤ ' if value <= 1.01 * FLOOR else ''}{100 * value:g} %"
        )
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_title(label(name), loc="left", fontsize=10)
        ax.set_xlabel("seconds", fontsize=9)
    _legend(figure, axes)
    return figure


def growth(results: Results, kind: str) -> Figure | None:
    """Seconds of 100 iterations against rank ("growth") or threads ("threads")."""
    over = OVER[kind]
    names = sorted_sets(results, kind)
    if not names:
        return None
    figure, axes = _panels(len(names), 4)
    for ax, name in zip(axes, names, strict=True):
        for method, how in METHODS.items():
            runs = results.find(kind, set=name, method=method)
            runs = same_iterations(runs) if kind == "threads" else runs
            if not runs:
                continue
            points = sorted((r["settings"][over], seconds_of_hundred(r)) for r in runs)
            x, seconds = np.array(points).T
            ax.plot(x, seconds, "o-", color=how.colour, markersize=3.5, label=how.label)
            if over == "threads":
                ax.plot(x, seconds[0] * x[0] / x, ":", color=how.colour, linewidth=0.9)
        ax.set_yscale("log")
        if over == "threads":
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        else:
            ax.set_xscale("log")
            ax.set_xticks(x, [f"{value:g}" for value in x])
            ax.minorticks_off()
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_title(label(name), loc="left", fontsize=10)
        ax.set_xlabel("threads" if over == "threads" else "components r", fontsize=9)
    axes[0].set_ylabel("seconds of 100 iterations", fontsize=9)
    _legend(figure, axes)
    return figure


def penalties(results: Results, name: str, rank: int) -> Figure | None:
    """Effect of each penalty on fit, zeros, active components and held-out likelihood."""
    runs = results.find("penalty", set=name, rank=rank)
    base = [run for run in runs if kind_of_penalty(run) == ""]
    if not base or len(runs) < 3:
        return None
    free = base[0]
    measures: list[tuple[str, Callable[[dict[str, Any]], float]]] = [
        (
            "divergence above unpenalised, %",
            lambda r: 100 * (r["divergence"] / free["divergence"] - 1),
        ),
        ("live components", lambda r: r["live"]),
        ("zeros in live columns of H, %", lambda r: 100 * r["zeros"][0]),
        ("zeros in live columns of W, %", lambda r: 100 * r["zeros"][1]),
        ("held-out log-likelihood per sample", lambda r: r["score"]),
    ]
    figure, axes = _panels(len(measures), 3)
    for ax, (title, measure) in zip(axes, measures, strict=True):
        ax.axhline(measure(free), color="0.6", linewidth=1.0, label="no penalty")
        for kind, (text, colour, dashes) in PENALTIES.items():
            points = sorted(
                (weight_of_penalty(run), measure(run))
                for run in runs
                if kind_of_penalty(run) == kind
            )
            if points:
                ax.plot(
                    *np.array(points).T,
                    marker="o",
                    markersize=3,
                    color=colour,
                    linestyle=dashes,
                    linewidth=1.4,
                    label=text,
                )
        ax.set_xscale("log")
        ax.set_title(title, loc="left", fontsize=10)
        ax.set_xlabel("weight of the penalty", fontsize=9)
    _legend(figure, axes)
    return figure


# Text stays text in SVG files, and the same picture gives the same file.
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "klnmf"
