"""Tables of whole calls, from the records of ``benchmarks.whole_calls``.

    python -m benchmarks.whole_call_tables FILE [FILE ...]            # print the table
    python -m benchmarks.whole_call_tables FILE --page docs/performance.md

--page replaces what stands between the two comments that name this script. All figures are medians
over the starts. Ratios are taken start by start.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peer_report import number, table

Record = dict[str, Any]
KEY = ("kind", "build", "set", "rank", "dtype", "threads", "seed", "machine")
DASH = "–"
LABELS = {
    "reuters21578": "Reuters21578",
    "tdt2_top30": "TDT2",
    "20newsgroups_qwone": "20 Newsgroups",
    "mnist_train": "MNIST",
    "pbmc3k": "PBMC3k",
    "uci_kos": "KOS",
    "uci_nips": "NIPS",
    "bible": "Bible",
}
SCRIPT = "whole_call_tables"


def key_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a record is the result of."""
    return tuple(record[name] for name in KEY)


def machine_of(environment: Mapping[str, str]) -> str:
    """The machine in a few words."""
    return f"{environment['processor']}, {environment['cores']} cores"


def cells(records: Iterable[Record]) -> list[tuple[str, int, str]]:
    """Set, rank and type of all records, each once, in the order in which they come."""
    return list(dict.fromkeys((r["set"], r["rank"], r["dtype"]) for r in records))


def select(records: Iterable[Record], **values: Any) -> dict[int, Record]:
    """The records with these values, by start."""
    return {
        record["seed"]: record
        for record in records
        if all(record[name] == value for name, value in values.items())
    }


def ratio(over: Mapping[int, Record], under: Mapping[int, Record], what: str) -> float | None:
    """Median over the common starts of one figure divided by the other; None without any."""
    ratios = [
        over[seed][what] / under[seed][what]
        for seed in over.keys() & under.keys()
        if over[seed].get(what) and under[seed].get(what)
    ]
    return median(ratios) if ratios else None


def middle(records: Mapping[int, Record], what: str) -> float | None:
    """Median of one figure; None if it is missing in a record or there are none."""
    values = [record.get(what) for record in records.values()]
    return median(values) if values and None not in values else None


def cell(value: float | None, text: str = "") -> str:
    """A figure for a table, or a dash."""
    return DASH if value is None else text.format(value) if text else number(value)


# ---- what whole_calls prints ---------------------------------------------------------------------


def comparison(records: Sequence[Record]) -> str:
    """Whole calls; with a baseline, its time over ours and our ends relative to its."""
    rows = []
    whole = [record for record in records if record["kind"] == "whole"]
    for name, rank, dtype in cells(whole):
        for threads in dict.fromkeys(record["threads"] for record in whole):
            of = {"set": name, "rank": rank, "dtype": dtype, "threads": threads}
            builds = {build: select(whole, build=build, **of) for build in ("klnmf", "baseline")}
            for build, runs in builds.items():
                if runs:
                    row = [f"{name} r {rank} {dtype}", cell(threads, "{}"), build, str(len(runs))]
                    row += [cell(middle(runs, what)) for what in ("seconds", "cpu", "iterations")]
                    row += [cell(middle(runs, "objective"), "{:.8g}")]
                    row += [f"{max(run['objective'] for run in runs.values()):.8g}"]
                    row += [cell(middle(runs, "gap"), "{:.1e}")]
                    rows.append([*row, *_against(builds, build)])
    header = ["set", "threads", "build", "starts", "seconds", "cpu", "iterations", "median end"]
    header += ["worst end", "gap", "time ratio", "cpu ratio", "median end, %", "worst end, %"]
    return table(header, rows)


def _against(builds: Mapping[str, Mapping[int, Record]], build: str) -> list[str]:
    """Ratios of time, and how far our ends are above the baseline's (negative: lower)."""
    ours, theirs = builds["klnmf"], builds["baseline"]
    if build == "baseline" or not theirs:
        return [""] * 4
    common = ours.keys() & theirs.keys()
    mine, other = ([runs[seed]["objective"] for seed in common] for runs in (ours, theirs))
    above = [100 * (end(mine) / end(other) - 1) for end in (median, max)]
    ratios = [cell(ratio(theirs, ours, what)) for what in ("seconds", "cpu")]
    return ratios + [f"{value:+.4f}" for value in above]


def to_level(records: Sequence[Record]) -> str:
    """Time to scikit-learn's objective, and what share of the call surrounds the solver."""
    rows = []
    level = [record for record in records if record["kind"] == "level"]
    for name, rank, dtype in cells(level):
        scikit = select(records, kind="scikit-learn", set=name, rank=rank, dtype=dtype).get(0)
        for threads in dict.fromkeys(record["threads"] for record in level):
            for build in ("klnmf", "baseline"):
                of = {"set": name, "rank": rank, "dtype": dtype, "threads": threads}
                runs = select(level, build=build, **of)
                if not runs:
                    continue
                seconds = middle(runs, "seconds")
                row = [f"{name} r {rank} {dtype}", cell(threads, "{}"), build]
                row += [f"{sum(r['seconds'] is not None for r in runs.values())}/{len(runs)}"]
                row += [cell(scikit and scikit["seconds"]), cell(seconds)]
                row += [_times_faster(scikit, runs, what) for what in ("seconds", "cpu")]
                row += [cell(middle(runs, what)) for what in ("iterations", "returned", "around")]
                share = [run["around"] / run["returned"] for run in runs.values() if run["seconds"]]
                rows.append([*row, f"{median(share):.2f}" if share else DASH])
    header = ["to scikit-learn's 200 iterations", "threads", "build", "arrived", "scikit-learn, s"]
    header += [
        "seconds",
        "ratio",
        "cpu ratio",
        "iterations",
        "returned after",
        "around the solver",
        "share",
    ]
    return table(header, rows)


def _times_faster(scikit: Record | None, runs: Mapping[int, Record], what: str) -> str:
    ours = middle(runs, what)
    return cell(scikit[what] / ours if scikit and ours else None)


# ---- the table of the page -----------------------------------------------------------------------


def page_table(records: Sequence[Record], clock: str = "seconds") -> str:
    """Whole calls of this build against scikit-learn's 200 iterations, for each machine.

    The clock "cpu" counts processor time, for a busy machine. It says nothing of several threads.
    """
    ours = [record for record in records if record["build"] == "klnmf"]
    parts = []
    for machine in dict.fromkeys(record["machine"] for record in ours):
        here = [record for record in ours if record["machine"] == machine]
        whole = [record for record in here if record["kind"] == "whole"]
        threads = sorted({r["threads"] for r in whole if r["threads"] is not None})
        threads = threads[:1] if clock == "cpu" else threads
        rows = [_page_row(here, whole, cell_of, threads, clock) for cell_of in cells(whole)]
        header = ["", "nonzeros", "r", "type", "scikit-learn, 200 iterations"]
        header += [f"fit(), {n} thread{'s' if n > 1 else ''}" for n in threads]
        header += ["iterations", "optimality gap", "to scikit-learn's objective"]
        starts = {
            len(select(whole, **_of(cell_of), threads=threads[0])) for cell_of in cells(whole)
        }
        span = " or ".join(map(str, sorted(starts)))
        what = "processor seconds, " if clock == "cpu" else ""
        parts += [f"{machine}; {what}medians of {span} starts:\n\n{table(header, rows)}"]
    return "\n".join(parts)


def _of(cell_of: tuple[str, int, str]) -> dict[str, Any]:
    return dict(zip(("set", "rank", "dtype"), cell_of, strict=True))


def _page_row(
    here: Sequence[Record],
    whole: Sequence[Record],
    cell_of: tuple[str, int, str],
    threads: Sequence[int],
    clock: str,
) -> list[str]:
    name, rank, dtype = cell_of
    scikit = select(here, kind="scikit-learn", **_of(cell_of)).get(0)
    slow = scikit[clock] if scikit else None

    def timed(runs: Mapping[int, Record]) -> str:
        seconds = middle(runs, clock)
        if seconds is None:
            return DASH
        return number(seconds) + " s" + (f" ({number(slow / seconds)} ×)" if slow else "")

    first = select(whole, **_of(cell_of), threads=threads[0])
    any_run = next(record for record in whole if record["set"] == name)
    row = [LABELS.get(name, name), f"{any_run['nonzeros']:,}", str(rank), dtype]
    row += [DASH if slow is None else f"{number(slow)} s"]
    row += [timed(select(whole, **_of(cell_of), threads=n)) for n in threads]
    row += [cell(middle(first, "iterations"), "{:.0f}"), cell(middle(first, "gap"), "{:.0e}")]
    return [*row, timed(select(here, kind="level", **_of(cell_of), threads=threads[0]))]


def replace_between(text: str, new: str, script: str = SCRIPT) -> str:
    """Put the new part between the two comments of the script."""
    comments = f"<!-- {script}: begin -->", f"<!-- {script}: end -->"
    before, begin, rest = text.partition(comments[0])
    _, end, after = rest.partition(comments[1])
    if not (begin and end):
        raise SystemExit(f"The page has no part between {comments[0]} and {comments[1]}.")
    return f"{before}{begin}\n\n{new}\n{end}{after}"


def main() -> int:
    """Print the table of the page, or put it in its place."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--clock", choices=("seconds", "cpu"), default="seconds")
    args = parser.parse_args()
    records = [r for file in args.files for r in json.loads(file.read_text())["records"]]
    text = page_table(records, args.clock)
    if args.page is None:
        print(text)
    else:
        args.page.write_text(replace_between(args.page.read_text(encoding="utf-8"), text))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
