"""The comparison with peers as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.peer_solvers import SOLVERS
from benchmarks.peer_tables import END, OURS, PERCENTS, REFERENCE

DASH = "–"
PREAMBLE = """\
# klnmf and its peers

Seconds to reach a divergence, from the same random starts ("klnmf" alone takes the start it takes
by itself), in the same type, on the same number of threads, each run in a process of its own. The
divergence is computed in float64 from the factors, off the clock.

- **Expected running time**: time of all runs, each up to its arrival at the target or to its end,
  divided by the number that arrived; k/n: only k of n runs arrived; –: none did.
- A run arrives at its first snapshot at or below the target. klnmf has one in every iteration, a
  peer whenever it has done a third more iterations (minibatch: twice as many), so that its time
  may be too long by as much.
- **Targets**: "200 it": scikit-learn's divergence after 200 iterations from the same start; "3 %"
  and so on: above the lowest divergence that any solver found on that set at that rank; "own end":
  the lowest that the peer itself found from that start in the seconds of the run.
- **Ratio**: their expected running time over klnmf's; above 1, klnmf is faster; never: the solver
  did not arrive in any run and klnmf did; –: klnmf did not arrive, or there is no such target.
- **Memory**: the highest peak above the process with X loaded, in MiB, factors included.
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
        return "No run has a result.\n"
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
                DASH if low is None else f"{100 * (low / group['best'] - 1):.2f}",
                number(group["peak_bytes"][solver] / 2**20),
                group["versions"][solver],
            ]
        )
    header = ["seconds to", *_titles(), "own end", "ends above best, %", "memory", "version"]
    return table(header, rows)


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
    """Three digits that count, without an exponent.

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
    """Lay out a Markdown table whose columns line up in plain text too."""
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
