"""Tables in Markdown, with our figures next to the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.paper.methods import METHODS
from benchmarks.paper.published import PUBLISHED
from benchmarks.paper.results import (
    OVER,
    PENALTIES,
    Results,
    kind_of_penalty,
    lowest,
    penalty_cells,
    same_iterations,
    seconds_of_hundred,
    seconds_to,
    sorted_sets,
    weight_of_penalty,
)
from benchmarks.paper.sets import base_name, label

GIB, GB = 2**30, 1e9


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table, numbers to the right."""
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def data_sets(results: Results) -> str:
    """Table 1: shapes, nonzeros, sparsity, checked against the paper's."""
    rows = []
    for name in sorted_sets(results, "curve"):
        run = results.find("curve", set=name)[0]
        (n, m), nonzeros = run["shape"], run["nonzeros"]
        sparsity = 100 * (1 - nonzeros / (n * m))
        published = PUBLISHED.get(base_name(name))
        printed, agrees = "–", "not in the paper"
        if published:
            a, b = published.shape
            printed = f"{a:,} × {b:,}, {published.nonzeros:,}, {published.sparsity:.4f}"
            same = {n, m} == {a, b} and nonzeros == published.nonzeros
            agrees = "yes" if same and round(sparsity, 4) == published.sparsity else "no"
        rows.append(
            [label(name), f"{n:,}", f"{m:,}", f"{nonzeros:,}", f"{sparsity:.4f}", printed, agrees]
        )
    header = [
        "set",
        "samples",
        "features",
        "nonzeros",
        "zeros, %",
        "paper: n × m, nonzeros, %",
        "the same",
    ]
    return markdown_table(header, rows)


def times_to_level(results: Results) -> str:
    """Seconds to the divergence that MU has at its end, for every method."""
    rows = []
    for rank in results.values("curve", "rank"):
        for name in sorted_sets(results, "curve", rank=rank):
            runs = {m: results.first("curve", set=name, rank=rank, method=m) for m in METHODS}
            mu = runs["mu"]
            if mu is None or mu["end"] is None:
                continue
            target = lowest([mu])
            best = lowest(run for run in runs.values() if run)
            cells = [_seconds(run, target) for run in runs.values()]
            rows.append([label(name), rank, *cells, f"{100 * (target / best - 1):.2f}"])
    header = [
        "seconds to MU's end",
        "r",
        *(how.label for how in METHODS.values()),
        "MU's end above the lowest, %",
    ]
    return markdown_table(header, rows)


def _seconds(run: dict[str, Any] | None, target: float) -> str:
    if run is None:
        return "–"
    seconds = seconds_to(run, target * (1 + 1e-12))
    return "not reached" if seconds is None else f"{seconds:.3g}"


def zeros(results: Results) -> str:
    """Table 2: zeros of both factors beside the paper's."""
    rows = []
    for rank in results.values("curve", "rank"):
        for name in sorted_sets(results, "curve", rank=rank):
            published = PUBLISHED.get(base_name(name))
            printed = published.zeros.get(rank) if published else None
            cells = []
            for method in METHODS:
                run = results.first("curve", set=name, rank=rank, method=method)
                cells.append(
                    "–"
                    if run is None
                    else "{:.1f}, {:.1f}".format(*(100 * z for z in run["zeros"]))
                )
            rows.append(
                [label(name), rank, "{:.1f}, {:.1f}".format(*printed) if printed else "–", *cells]
            )
    header = [
        "zeros in (components, representation), %",
        "r",
        "paper, SRCD",
        *(how.label for how in METHODS.values()),
    ]
    return markdown_table(header, rows)


def memory(results: Results, rank: int = 10) -> str:
    """Table 3: peak memory beside the paper's."""
    shown = ("mu", "ccd", "srcd-paper", "default")
    rows = []
    for name in sorted_sets(results, "curve", rank=rank):
        published = PUBLISHED.get(base_name(name))
        cells = []
        for method in shown:
            run = results.first("curve", set=name, rank=rank, method=method)
            ours = "–" if run is None else f"{run['peak_bytes'] / GB:.3f}"
            theirs = published.memory.get(method) if published else None
            cells.append(f"{ours} ({theirs:.2f})" if theirs is not None else ours)
        runs = results.find("curve", set=name, rank=rank)
        n, m = runs[0]["shape"]
        whole = max(run["process_bytes"] for run in runs if run["settings"]["method"] == "default")
        rows.append([label(name), *cells, f"{n * m * 8 / GB:.2f}", f"{whole / GB:.2f}"])
    header = [
        "GB above the process with X loaded (paper's GB)",
        *(METHODS[m].label for m in shown),
        "dense n × m in float64",
        "klnmf's whole process",
    ]
    return markdown_table(header, rows)


def growth(results: Results, kind: str) -> str:
    """Figures 3 ("growth") and 4 ("threads") in numbers: seconds of 100 iterations."""
    over = OVER[kind]
    found = results.find(kind)
    values = sorted({run["settings"][over] for run in found})
    usual = results.usual_processor
    rows = []
    for name in sorted_sets(results, kind):
        for method, how in METHODS.items():
            found = results.find(kind, set=name, method=method)
            found = same_iterations(found) if kind == "threads" else found
            runs = {run["settings"][over]: run for run in found}
            if runs:
                rows.append(
                    [label(name), how.label, *(_hundred(runs.get(v), usual) for v in values)]
                )
    title = "r" if over == "rank" else "threads"
    return markdown_table(
        ["seconds of 100 iterations", "method", *(f"{title} = {v}" for v in values)], rows
    )


def _hundred(run: dict[str, Any] | None, usual: str) -> str:
    if run is None:
        return "–"
    seconds = f"{seconds_of_hundred(run):.3g}"
    seconds += "" if run["environment"]["processor"] == usual else "†"
    return seconds + ("" if run["iterations"] >= 100 else f" ({run['iterations']} done)")


def penalties(results: Results) -> str:
    """Every fit of the study of penalties."""
    rows = []
    for name, rank in penalty_cells(results):
        for kind in ("", *PENALTIES):
            runs = [
                r
                for r in results.find("penalty", set=name, rank=rank)
                if kind_of_penalty(r) == kind
            ]
            for run in sorted(runs, key=weight_of_penalty):
                weight = f"{weight_of_penalty(run):g}" if kind else "–"
                rows.append(
                    [
                        f"{label(name)}, r = {rank}, {PENALTIES[kind][0] if kind else 'none'}",
                        weight,
                        f"{run['divergence']:,.0f}",
                        "{:.1f}, {:.1f}".format(*(100 * z for z in run["zeros"])),
                        run["live"],
                        f"{run['score']:.2f}",
                        "yes" if run["converged"] else "no",
                    ]
                )
    header = [
        "penalty",
        "weight",
        "divergence",
        "zeros in live columns of (H, W), %",
        "live components",
        "held-out log-likelihood",
        "converged",
    ]
    return markdown_table(header, rows)


def gain_of_penalties(results: Results) -> str:
    """The largest gain in held-out likelihood that a penalty on both factors brought, in words."""
    gains = []
    for name, rank in penalty_cells(results):
        runs = results.find("penalty", set=name, rank=rank)
        free = [run["score"] for run in runs if not kind_of_penalty(run)]
        both = [run for run in runs if " " in kind_of_penalty(run)]
        if free and both:
            best = max(both, key=lambda run: run["score"])
            gain = 100 * (1 - best["score"] / free[0])
            kind, weight = PENALTIES[kind_of_penalty(best)][0], weight_of_penalty(best)
            gains.append(f"{gain:+.2f} % on {label(name)}, r = {rank} ({kind}, weight {weight:g})")
    if not gains:
        return "not measured."
    return "the best weight of a penalty on both factors changes it by " + "; ".join(gains) + "."
