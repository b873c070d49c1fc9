"""The documentation names everything and its examples run; ``make docs`` checks the rest."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from klnmf.cli.main import build_parser
from klnmf.topics import match_components

ROOT = Path(__file__).parents[1]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
MODULES = {  # and the page of the reference that each is on
    "klnmf": "klnmf",
    "klnmf.saved": "klnmf",
    "klnmf.topics": "topics",
    "klnmf.plots": "plots",
    "klnmf.readers": "readers",
    "klnmf.report": "report",
    "klnmf.datasets": "datasets",
    "klnmf.tl": "tl",
    "klnmf.named_features": "named_features",
    "klnmf.frames": "frames",
    "klnmf.model_selection": "model_selection",
    "klnmf.uncertainty": "uncertainty",
    "klnmf.evaluation": "evaluation",
    "klnmf.signatures": "signatures",
    "klnmf.simulate": "simulate",
    "klnmf.objective": "objective",
    "klnmf.solvers": "solvers",
    "klnmf.backends": "solvers",
}
ALSO_DOCUMENTED = {"klnmf.saved.models.SavedModel"}  # what klnmf.load_model returns


# ---- pages ---------------------------------------------------------------------------------------


def public_names(module_name: str) -> set[str]:
    """Functions and classes that a module has in ``__all__``, or else defines."""
    module = importlib.import_module(module_name)
    listed = getattr(module, "__all__", None)
    names = (
        [name for name in vars(module) if not name.startswith("_")] if listed is None else listed
    )
    return {
        f"{module_name}.{name}"
        for name in names
        if inspect.isfunction(member := getattr(module, name)) or inspect.isclass(member)
        if listed is not None or member.__module__ == module_name
    }


def documented_names() -> dict[str, str]:
    """Names under ``autosummary`` in the reference, and the page that each is on."""
    names = {}
    for page in sorted((DOCS / "api").glob("*.rst")):
        module, is_listing = "", False
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule::"):
                module = line.split()[-1]
            if line and not line.startswith(" "):
                is_listing = line == ".. autosummary::"
            elif is_listing and line.strip() and not line.strip().startswith(":"):
                names[f"{module}.{line.strip()}"] = page.stem
    return names


@pytest.mark.parametrize("module", MODULES)
def test_reference_has_every_public_name(module: str) -> None:
    names = public_names(module)
    assert names
    documented = documented_names()
    for name in sorted(names):
        assert documented.get(name) == MODULES[module], f"{name} is missing in docs/api"


def test_reference_has_nothing_else() -> None:
    public = set().union(*map(public_names, MODULES))
    assert set(documented_names()) - public == ALSO_DOCUMENTED


def test_every_command_has_its_help() -> None:
    page = (DOCS / "api" / "command_line.rst").read_text(encoding="utf-8")
    (commands,) = (
        action
        for action in build_parser("0")._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert re.findall(r"^\.\. command-help:: (\w+)$", page, re.MULTILINE) == list(commands.choices)


def toctree_entries(page: Path) -> list[str]:
    """Pages that the toctrees of a page name, of either syntax, as paths without endings."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"^\.\. toctree::\n((?:(?: .*)?\n)+)", text, re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    folder = page.parent.relative_to(DOCS)
    return [(folder / line).as_posix() for line in lines if line and not line.startswith(":")]


def test_the_sidebar_names_every_page_once() -> None:
    pages = [
        path
        for pattern in ("*.md", "guide/*.md", "internals/*.md", "maths/*.md", "api/*.rst")
        for path in DOCS.glob(pattern)
    ]
    named = Counter(entry for page in pages for entry in toctree_entries(page))
    expected = {page.relative_to(DOCS).with_suffix("").as_posix() for page in pages} - {"index"}
    assert named == Counter([*expected, "gallery/index"])  # the gallery is made from examples/


def test_pages_that_the_sources_name_exist() -> None:
    sources = [
        path
        for folder, ending in (("src", "py"), ("cpp", "hpp"), ("tests", "py"), ("benchmarks", "py"))
        for path in (ROOT / folder).rglob(f"*.{ending}")
    ]
    named = {
        (page, path.name)
        for path in sources
        for page in re.findall(r"\bdocs/[\w/]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    for page, source in sorted(named):
        assert (ROOT / page).exists(), f"{source} names {page}"


def included_code() -> list[tuple[str, str, dict[str, str]]]:
    """Page, file and options of every ``literalinclude``."""
    found = []
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for file, block in re.findall(
            r"^```\{literalinclude\} (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
        ):
            options = dict(re.findall(r"^:([\w-]+): *(.*)$", block, re.MULTILINE))
            found.append((page.name, str((page.parent / file).resolve()), options))
    return found


@pytest.mark.parametrize(("page", "file", "options"), included_code())
def test_code_that_pages_include_is_there(page: str, file: str, options: dict[str, str]) -> None:
    text = Path(file).read_text(encoding="utf-8")
    for option in ("start-at", "start-after", "end-at", "end-before"):
        assert options.get(option, "").strip('"') in text, (page, option)
    body: list[Any] = ast.parse(text).body if file.endswith(".py") else []
    for name in options.get("pyobject", "").split("."):
        if name:
            body = next(node.body for node in body if getattr(node, "name", None) == name)


# ---- examples ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn and nobody looks at them; ``plt.show`` warns of that."""
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    monkeypatch.setattr(plt, "show", lambda: None)


def run_example(name: str) -> dict[str, Any]:
    import matplotlib.pyplot as plt

    try:
        return runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    finally:
        plt.close("all")


def test_example_of_topics(capsys: pytest.CaptureFixture[str]) -> None:
    names = run_example("plot_bible_topics.py")
    assert names["model"].converged_
    assert names["model"].n_components_ == 12
    assert "disciples" in capsys.readouterr().out


def test_example_of_digits() -> None:
    names = run_example("plot_digit_parts.py")
    assert names["zeros_of_parts"] > 0.8
    assert names["classifier"].score(names["test"], names["test_labels"]) > 0.93


def test_example_of_cells() -> None:
    names = run_example("plot_cell_types.py")
    found = match_components(names["components"], names["planted"].H.T)
    assert found.similarity.min() > 0.99  # "Each program was found."
    # "Half of the genes are enough to recognise the types": most new cells have the program of
    # their type as their main one.
    types = np.array(names["types"])[700:]
    program = names["program"].cat.codes.to_numpy()
    program_of = {kind: np.bincount(program[types == kind]).argmax() for kind in np.unique(types)}
    assert len(set(program_of.values())) == 6
    assert np.mean([program_of[kind] for kind in types] == program) > 0.95


def test_example_of_mutational_signatures() -> None:
    names = run_example("plot_mutational_signatures.py")
    assert names["match"].similarity[0, 4] > 0.99
    assert names["match"].similarity[0, :4].max() < 0.5
    # "Far above" what a model that is right has, and about that.
    assert 2 * names["refit"].divergence_ > 2 * names["counts"].size
    assert 2 * names["model"].divergence_ < 1.1 * names["counts"].size


def test_every_script_of_the_gallery_is_run_here() -> None:
    tested = set(re.findall(r'run_example\("(plot_\w+\.py)"\)', Path(__file__).read_text("utf-8")))
    assert {path.name for path in EXAMPLES.glob("plot_*.py")} == tested
