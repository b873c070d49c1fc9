"""The page of a release: whole calls of klnmf beside the release before and scikit-learn.

    python -m benchmarks.release --data DIR --before OTHER/src --out DIR
    python -m benchmarks.release --sets bible --out DIR          # the embedded corpus alone

Makes the calls of ``benchmarks.whole_calls`` (those in OUT/whole_calls.json are not repeated) and
writes OUT/index.html, one page that loads nothing else. The release before is a checkout with its
compiled core; both builds run alternately on this machine, and ratios are taken start by start.
"""

from __future__ import annotations

import argparse
import html
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import whole_calls
from benchmarks.common import add_data_argument
from benchmarks.peer_report import number
from benchmarks.whole_call_tables import LABELS, Record, cell, cells, middle, ratio, select
from klnmf.plots.style import pyplot

COLOURS = {"scikit-learn": "#9aa5b1", "baseline": "#e0a458", "klnmf": "#2a6f97"}
NAMES = {"scikit-learn": "scikit-learn, 200 iterations", "baseline": "release before"}
STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #8884 }
td:first-child, th:first-child { text-align: left }
figure { margin: 1.5rem 0; background: #fff; border-radius: .5rem; padding: .5rem }
.wide { overflow-x: auto }
svg { max-width: 100%; height: auto }
"""


def seconds_of(records: Sequence[Record], of: Mapping[str, Any], threads: int | None) -> dict:
    """Median seconds of the default call of each build, and scikit-learn's."""
    found = {
        build: middle(select(records, kind="whole", build=build, threads=threads, **of), "seconds")
        for build in ("baseline", "klnmf")
    }
    scikit = select(records, kind="scikit-learn", **of).get(0)
    return {"scikit-learn": scikit and scikit["seconds"], **found}


def figure(records: Sequence[Record], threads: int | None) -> str:
    """Seconds of the whole call by set, as SVG."""
    pyplot_ = pyplot()
    which = cells(record for record in records if record["kind"] == "whole")
    height = 1.0 + 0.9 * len(which)
    drawing, ax = pyplot_.subplots(figsize=(8, height), layout="constrained")
    labels = []
    for row, (name, rank, dtype) in enumerate(which):
        found = seconds_of(records, {"set": name, "rank": rank, "dtype": dtype}, threads)
        labels.append(f"{LABELS.get(name, name)}, r = {rank}\n{dtype}")
        shown = [(build, value) for build, value in found.items() if value]
        for place, (build, value) in enumerate(shown):
            y = row + 0.25 * (place - (len(shown) - 1) / 2)
            ax.plot(value, y, "o", color=COLOURS[build], markersize=8)
            ax.text(value, y, f"   {number(value)} s", va="center", fontsize=8)
        ax.axhline(row + 0.5, color="#0002", linewidth=0.8)
    ax.set_yticks(range(len(which)), labels)
    ax.set_ylim(len(which) - 0.5, -0.5)
    ax.set_xscale("log")
    ax.margins(x=0.15)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("")
    ax.set_xlabel("seconds of the whole call")
    ax.spines[["top", "right"]].set_visible(False)
    in_use = {r["build"] for r in records if r["kind"] == "whole"}
    in_use |= {r["kind"] for r in records if r["kind"] == "scikit-learn"}
    handles = [
        pyplot_.Line2D(
            [], [], marker="o", linestyle="", color=colour, label=NAMES.get(build, "this release")
        )
        for build, colour in COLOURS.items()
        if build in in_use
    ]
    drawing.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    written = io.StringIO()
    drawing.savefig(written, format="svg", metadata={"Date": None})
    pyplot_.close(drawing)
    return "<svg" + written.getvalue().partition("<svg")[2]


def rows(records: Sequence[Record], threads: int | None) -> list[list[str]]:
    """One row for each set: seconds, and how often faster than the others."""
    found = []
    for name, rank, dtype in cells(record for record in records if record["kind"] == "whole"):
        of = {"set": name, "rank": rank, "dtype": dtype}
        seconds = seconds_of(records, of, threads)
        ours, before = (
            select(records, kind="whole", build=build, threads=threads, **of)
            for build in ("klnmf", "baseline")
        )
        level = select(records, kind="level", build="klnmf", threads=threads, **of)
        scikit, now = seconds["scikit-learn"], seconds["klnmf"]
        to_level = middle(level, "seconds")
        found.append(
            [
                f"{LABELS.get(name, name)}, r = {rank}, {dtype}",
                *(cell(value) for value in seconds.values()),
                cell(ratio(before, ours, "seconds")),
                cell(scikit / now if scikit and now else None),
                cell(scikit / to_level if scikit and to_level else None),
                cell(middle(ours, "gap"), "{:.0e}"),
                cell(_above(ours, before), "{:+.3f} %"),
            ]
        )
    return found


HEADER = [
    *("data", "scikit-learn, s", "release before, s", "this release, s", "before / now"),
    *("scikit-learn / now", "the same to its objective", "optimality gap"),
    "end against before",
]


def _above(ours: Mapping[int, Record], before: Mapping[int, Record]) -> float | None:
    """How far the median end is above that of the release before, in percent."""
    mine, theirs = middle(ours, "objective"), middle(before, "objective")
    return 100 * (mine / theirs - 1) if mine and theirs else None


def page(records: Sequence[Record], version: str) -> str:
    """Return the page."""
    facts = records[-1]["environment"]
    packages = {k: v for k, v in facts.items() if k not in ("processor", "cores", "klnmf")}
    versions = ", ".join(f"{html.escape(k)} {html.escape(str(v))}" for k, v in packages.items())
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>klnmf {version}: measured</title><style>{STYLE}</style>",
        f"<h1>klnmf {html.escape(version)}, measured</h1>",
        "<p>Wall time of the default call, <code>KLNMF(r).fit(X)</code>, from the call to its "
        "return: medians over the starts. scikit-learn runs 200 multiplicative updates on one "
        f"thread. Machine: {html.escape(records[-1]['machine'])}; {versions}.</p>",
    ]
    for threads in dict.fromkeys(r["threads"] for r in records if r["kind"] == "whole"):
        words = "all threads" if threads is None else f"{threads} thread{'s' * (threads != 1)}"
        lines = [HEADER, *rows(records, threads)]
        body = "".join(
            "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in line) + "</tr>"
            for tag, line in zip(["th"] + ["td"] * len(lines), lines, strict=False)
        )
        parts += [f"<h2>On {words}</h2>", f"<figure>{figure(records, threads)}</figure>"]
        parts += [f'<div class="wide"><table>{body}</table></div>']
    return "\n".join([*parts, "</html>\n"])


def main(arguments: list[str] | None = None) -> int:
    """Measure what is not stored, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_data_argument(parser)
    default = ["bible", "reuters", "tdt2", "pbmc3k", "20ng"]
    parser.add_argument("--sets", nargs="+", default=default, help=f"({' '.join(default)})")
    parser.add_argument("--before", type=Path, metavar="SRC", help="source of the release before")
    parser.add_argument("--threads", nargs="+", default=["1", "default"], help="(1 default)")
    parser.add_argument("--starts", type=int, default=5, help="seeds 0, 1, ... (5)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    stored = args.out / "whole_calls.json"
    call = ["--to-level", "--json", str(stored), "--out", str(args.out)]
    call += ["--sets", *args.sets, "--threads", *args.threads, "--starts", str(args.starts)]
    call += ["--data", str(args.data)] if args.data else []
    call += ["--baseline", str(args.before)] if args.before else []
    whole_calls.main(call)
    records = json.loads(stored.read_text(encoding="utf-8"))["records"]
    target = args.out / "index.html"
    target.write_text(page(records, records[-1]["environment"]["klnmf"]), encoding="utf-8")
    print(f"page: {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
