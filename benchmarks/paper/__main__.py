"""Replication of the evaluation in the SRCD paper: tables, figures and claims.

    python -m benchmarks.paper --quick --out DIR        # embedded corpus, a few minutes
    python -m benchmarks.paper --data DIR --out DIR     # every data set in the folder: hours

Writes OUT/paper.md, OUT/paper/results.json, OUT/paper/*.svg and one file per measurement in
OUT/paper/runs. A measurement with a result file is not repeated, so the evaluation can be
interrupted and resumed. --tables-only builds the page from the existing measurements.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.common import add_data_argument
from benchmarks.paper.jobs import run_all
from benchmarks.paper.page import page
from benchmarks.paper.plan import KINDS, Plan, jobs_of
from benchmarks.paper.results import Results
from benchmarks.paper.sets import EMBEDDED, TF_IDF, find_sets, shape_of
from benchmarks.peer_run import write_json

QUICK = Plan(
    sets=[EMBEDDED, EMBEDDED + TF_IDF],
    curve_seconds=2.0,
    growth_ranks=(10, 20, 50),
    growth_seconds=2.0,
    rank_of_threads=20,
    size_nonzeros=50_000,
    size_sides=(500, 1_000, 2_000),
    readings_starts=2,
    penalty_cells=((EMBEDDED, 20),),
    penalty_weights=(1.0, 30.0, 1000.0),
    penalty_iterations=100,
)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper", description=(__doc__ or "").splitlines()[0]
    )
    add_data_argument(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for the results"
    )
    parser.add_argument("--sets", nargs="+", metavar="SET", help="default: all in the data folder")
    parser.add_argument(
        "--seconds", type=float, help="length of a run (60; a sixth of it in Figures 3 and 4)"
    )
    parser.add_argument("--threads", nargs="+", type=int, metavar="N", help="in Figure 4 (1 2)")
    parser.add_argument("--at-once", type=int, default=1, help="single-threaded runs at a time (1)")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, metavar="KIND", help=f"of {', '.join(KINDS)} (all)"
    )
    parser.add_argument("--quick", action="store_true", help="embedded corpus, a few minutes")
    parser.add_argument("--tables-only", action="store_true", help="run nothing")
    parser.add_argument("--runs-only", action="store_true", help="make no tables and figures")
    return parser.parse_args(arguments)


def make_plan(args: argparse.Namespace) -> tuple[Plan, list[str]]:
    """The measurements to make, and the missing data sets."""
    changes: dict[str, Any] = {}
    if args.seconds:
        changes |= {"curve_seconds": args.seconds, "growth_seconds": args.seconds / 6}
    if args.threads:
        changes["threads"] = tuple(args.threads)
    if args.quick:
        return QUICK._replace(**changes), []
    names, absent = find_sets(args.data)
    if args.sets:
        unknown = [name for name in args.sets if name not in names]
        if unknown:
            raise SystemExit(
                f"Unknown data set: {', '.join(unknown)}; there are {', '.join(names)}."
            )
        names = args.sets
    return Plan(names)._replace(**changes), absent


def write_results(out: Path, absent: list[str], quick: bool) -> None:
    """Write the page, figures and results.json from the stored measurements."""
    results = Results.of(out / "paper" / "runs")
    if not results.good:
        raise SystemExit(f"There are no measurements in {out / 'paper' / 'runs'} yet.")
    captions: dict[str, str] = {}
    try:
        from benchmarks.paper.figures import draw_all
    except ImportError:
        print('No figures: they need matplotlib, pip install ".[plots]".')
    else:
        captions = draw_all(results, out / "paper")
    write_json(out / "paper" / "results.json", {"results": results.good, "failed": results.failed})
    (out / "paper.md").write_text(page(results, captions, absent, quick), encoding="utf-8")
    for failed in results.failed:
        print(f"failed: {failed['kind']} {failed['settings']}: {failed['error']}")
    print(f"{out / 'paper.md'} and {len(captions)} figures written")


def main() -> int:
    """Make the missing measurements, then write the page."""
    args = parse()
    plan, absent = make_plan(args)
    if not args.tables_only:
        shapes = {name: shape_of(name, args.data) for name in plan.sets}
        try:
            jobs = [job for job in jobs_of(plan, shapes) if job.kind in (args.kinds or KINDS)]
            run_all(jobs, args.data, args.out / "paper" / "runs", args.at_once)
        except KeyboardInterrupt:
            print(
                "\nInterrupted. Run the same command to resume; --tables-only shows results so far."
            )
            return 130
    if not args.runs_only:
        write_results(args.out, absent, args.quick)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
