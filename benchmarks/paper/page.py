"""The page: each table and figure next to those of the paper, with explanations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

from benchmarks.paper import claims, tables
from benchmarks.paper.results import Results
from benchmarks.paper.sets import LABELS

# The text between the tables; what it says of the numbers was checked against them.
PAGE = Path(__file__).with_name("page.md")


def page(results: Results, captions: Mapping[str, str], absent: list[str], quick: bool) -> str:
    """The whole page; figures are in the folder ``paper`` beside it."""
    figures = {name: f"![{caption}](paper/{name}.svg)" for name, caption in captions.items()}
    of_penalties = [text for name, text in figures.items() if name.startswith("penalties")]
    return Template(PAGE.read_text(encoding="utf-8")).substitute(
        environment=_environment(results),
        absent=_absent(absent),
        quick="\n**This is the quick form: a small corpus and a few seconds per run.**\n"
        if quick
        else "",
        claims=claims.table(results),
        data=tables.data_sets(results),
        times=tables.times_to_level(results),
        zeros=tables.zeros(results),
        memory=tables.memory(results, rank=min(results.values("curve", "rank"), default=10)),
        growth_rank=tables.growth(results, "growth"),
        growth_threads=tables.growth(results, "threads"),
        penalties=tables.penalties(results),
        gain=tables.gain_of_penalties(results),
        penalty_figures="\n\n".join(of_penalties) or "(no figure)",
        **{f"figure{i}": figures.get(f"figure{i}", "(no figure)") for i in (1, 2, 3, 4)},
    )


def _environment(results: Results) -> str:
    found = results.environments()
    versions = ", ".join(f"{name} {found[name]}" for name in ("klnmf", "numpy", "scipy", "python"))
    usual = results.usual_processor
    others = [name for name in found["processor"].split(" / ") if name != usual]
    also = f" (†: {', '.join(others)})" if others else ""
    return f"Measured on {usual}{also}; {versions}. {_lengths(results)}"


def _lengths(results: Results) -> str:
    """How long runs were: what a method has reached depends on it."""
    texts = {"curve": "Figures 1 and 2", "growth": "Figure 3", "threads": "Figure 4"}
    parts = []
    for kind, figure in texts.items():
        seconds = {run["settings"]["seconds"] for run in results.find(kind)}
        if seconds:
            parts.append(f"{figure}: {' or '.join(f'{s:g}' for s in sorted(seconds))} s per run")
    ranks = {run["settings"]["rank"] for run in results.find("threads")}
    at = f" (r = {', '.join(map(str, sorted(ranks)))})" if ranks else ""
    return "; ".join(parts) + at + "." if parts else ""


def _absent(absent: list[str]) -> str:
    if not absent:
        return ""
    names = ", ".join(f"{LABELS[name]} ({name}.npz)" for name in absent)
    return f"Left out because they are not in the data folder: {names}."
