"""What the pages of the guide show is what happens: code is run, commands and paths exist.

docs/guide/choosing.md has its own tests (test_choosing_page.py).
"""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import klnmf
from klnmf.cli.main import build_parser
from klnmf.datasets import load_bible
from klnmf.readers import CountTable, write_counts
from klnmf.simulate import simulate_counts

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if "_build" not in path.parts
}
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
# Blocks that need a cluster or scanpy, or are about a fit of the reader's own X.
NOT_RUN = (
    "import scanpy",
    "Client(",
    "SLURMCluster",
    "KubeCluster",
    "fit_transform(X)  # Hᵀ is",
    "numpy.load(",
)


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of the blocks of a page, without the options of directives."""
    return [
        (language, re.sub(r"^(:\w+:.*\n)+", "", text))
        for language, text in BLOCK.findall(PAGES[page])
    ]


def run_page(page: str) -> dict[str, Any]:
    """Run the Python of a page in the current folder, and return its names."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for language, text in blocks(page):
            if language == "{executed}" or (
                language == "python" and not any(mark in text for mark in NOT_RUN)
            ):
                exec(compile(text, page, "exec"), names)
    finally:
        plt.close("all")
    return names


@pytest.fixture(autouse=True)
def files_of_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of its own."""
    monkeypatch.chdir(tmp_path)


# ---- code ----------------------------------------------------------------------------------------


def test_all_python_is_python() -> None:
    n_blocks = 0
    for page in PAGES:
        for language, text in blocks(page):
            if language in ("python", "{executed}"):
                ast.parse(text, page)
                n_blocks += 1
    assert n_blocks > 40


def test_getting_started(capsys: pytest.CaptureFixture[str]) -> None:
    names = run_page("getting_started.md")
    printed = capsys.readouterr().out
    assert "1189 chapters, 6061 words" in printed
    assert "converged: True" in printed
    assert names["loaded"].model.n_components_ == 12
    # "It found topics that differ between them."
    main = names["W"].argmax(axis=1)
    assert (
        len({np.bincount(main[names["sections"] == s]).argmax() for s in set(names["sections"])})
        > 4
    )


@pytest.mark.slow
def test_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_page("guide/texts.md")
    printed = capsys.readouterr().out
    assert "The fit of 12 topics converged" in printed
    assert "for reading" in printed
    model = names["model"]
    means = names["table"].pivot(index="section", columns="topic", values="share")
    expected = {"Prophecies": "Prophets", "Life of Jesus": "Gospels", "Wisdom": "Wisdom"}
    assert {name: means[name].idxmax() for name in expected} == expected
    first, second = (model.topic_names_[k] for k in names["shares"].argmax(axis=1))
    assert "moses" in first
    assert second == "Wisdom"
    assert names["seeded"].topic_names_[:2] == ["The sea", "Food"]
    assert klnmf.TopicModel.load("bible.klnmf").topic_names_ == model.topic_names_
    assert "Life of Jesus" in (tmp_path / "topics.csv").read_text(encoding="utf-8")
    assert "<html" in (tmp_path / "topics.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_cells() -> None:
    names = run_page("guide/cells.md")
    cells, both, new = names["cells"], names["both"], names["new_cells"]
    assert klnmf.tl.result(cells, "nmf_rank").best_rank == 4
    assert adjusted_rand_score(cells.obs["type"], cells.obs["nmf"]) == 1
    assert klnmf.tl.result(cells, "nmf_consensus").run_share.min() == 1
    # "A program is spent on it, and types of cells share another."
    assert adjusted_rand_score(both.obs["type"], both.obs["nmf"]) < 0.8
    assert adjusted_rand_score(both.obs["type"], both.obs["corrected"]) > 0.99
    assert adjusted_rand_score(new.obs["type"], new.obs["nmf"]) > 0.99
    again = anndata.read_h5ad("cells.h5ad")
    assert again.uns["nmf"]["converged"]
    assert "nmf_differential" in again.uns
    assert Path("programs.pdf").stat().st_size > 2_000
    assert Path("programs.csv").read_text().startswith("program,gene,lift,share,log2_fold_change")


@pytest.mark.slow
def test_signatures(capsys: pytest.CaptureFixture[str]) -> None:
    names = run_page("guide/signatures.md")
    assert names["r"] == 6
    assert names["agreed"].run_share.min() == 1
    # "Five of them are known": the planted ones, whatever their order; the sixth is none of them.
    match = klnmf.topics.match_reference(
        names["in_genome"].components, names["known"], names["types"]
    )
    cosines = np.sort(match.similarity.max(axis=1))
    assert cosines[1] > 0.98
    assert cosines[0] < 0.5
    number = (names["W"] > 0).sum(axis=1).mean()
    assert number < (names["most_likely"] > 0.01).sum(axis=1).mean() - 0.8
    assert names["in_tumours"]["assigned to"].tolist()[5:7] == [0, 0]
    assert "bi-cross-validation" in capsys.readouterr().out


@pytest.mark.slow
def test_other_counts(tmp_path: Path) -> None:
    (tmp_path / "purchases.csv").write_text("user,item,n\nann,tea,2\nbob,ink,1\nann,ink,3\n")
    names = run_page("guide/counts.md")
    assert names["users"].tolist() == ["ann", "bob"]
    assert names["classifier"].score(names["test"], names["test_labels"]) > 0.93
    assert names["per_hour"].sum(axis=1).mean() == pytest.approx(400, rel=0.02)
    assert names["overlap"].n_found == 40


@pytest.mark.slow
def test_events(capsys: pytest.CaptureFixture[str]) -> None:
    names = run_page("guide/events.md")
    assert names["ranks"].best_rank == 4
    assert "the smallest number from 1 to 7" in " ".join(capsys.readouterr().out.split())
    assert names["shares"].max(axis=1).min() > 0.9
    assert Path("components.pdf").stat().st_size > 2_000
    assert "Sales of 2023" in Path("sales.html").read_text(encoding="utf-8")
    # "It predicts best with the three components that are there, the matrix with a single one."
    best = names["results"]
    assert best["5,000 events of a tensor"]["tensor"][1] == 3
    assert best["5,000 events of a tensor"]["matrix"][1] == 1
    assert (
        best["100,000 events of a tensor"]["tensor"] < best["100,000 events of a tensor"]["matrix"]
    )
    assert (
        best["100,000 events of a matrix"]["matrix"] < best["100,000 events of a matrix"]["tensor"]
    )


@pytest.mark.slow
def test_constraints() -> None:
    names = run_page("guide/constraints.md")
    assert names["same"]
    assert names["found"] > 0.99
    assert names["similarity"].min() > 0.99


@pytest.mark.slow
def test_saving(capsys: pytest.CaptureFixture[str]) -> None:
    run_page("guide/saving.md")
    assert "the same result: True" in capsys.readouterr().out


@pytest.mark.slow
def test_large_data() -> None:
    write_counts(CountTable(load_bible().data), "big.npz")
    klnmf.prepare("big.npz", "big.disk")
    names = run_page("guide/large_data.md")
    assert names["matrix"].shape == (1189, 6061)


def test_every_page_with_code_is_run_here() -> None:
    with_code = {page for page in PAGES if "```{executed}" in PAGES[page]}
    run = re.findall(r'run_page\("(\S+)"\)', Path(__file__).read_text(encoding="utf-8"))
    assert with_code - set(run) == {"guide/choosing.md"}


# ---- commands, names and paths -------------------------------------------------------------------


def commands() -> list[list[str]]:
    """Words of every klnmf command that the pages show."""
    lines = [
        line
        for page in PAGES
        for language, text in blocks(page)
        if language in ("sh", "")
        for line in text.splitlines()
    ]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("klnmf ")]


def test_commands_are_understood() -> None:
    parser = build_parser("0")
    found = commands()
    assert len(found) > 15
    for words in found:
        parser.parse_args(words[1:])


def test_commands_of_benchmarks_exist() -> None:
    modules = set(re.findall(r"python -m (benchmarks\.\w+)", "".join(PAGES.values())))
    assert len(modules) > 10
    for module in modules:
        assert importlib.util.find_spec(module), module


@pytest.mark.parametrize(
    "page",
    [
        "architecture.md",
        "coming_from.md",
        *(p for p in PAGES if p.startswith(("internals/", "maths"))),
    ],
)
def test_paths_and_names_exist(page: str) -> None:
    for path in re.findall(r"`((?:src|cpp|tests|benchmarks|docs)/[\w./]*)`", PAGES[page]):
        assert (ROOT / path).exists(), path
    for name in re.findall(r"`(klnmf\.\w+(?:\.\w+)*)", PAGES[page]):
        module, _, attribute = name.rpartition(".")
        found = importlib.util.find_spec(name) if name.count(".") == 1 else None
        if found is None:
            assert hasattr(importlib.import_module(module), attribute), name


def test_scikit_learn_table_is_true() -> None:
    """The table of docs/coming_from.md: divergence_ = reconstruction_err_² / 2, and penalties."""
    from sklearn.decomposition import NMF

    from klnmf.objective import Penalties, kl_divergence, penalised_objective

    X = simulate_counts(30, 20, 3, counts_per_sample=50, random_state=0).X.toarray().astype(float)
    model = NMF(
        3, beta_loss="kullback-leibler", solver="mu", init="random", random_state=0, max_iter=500
    )
    W = model.fit_transform(X)
    H = model.components_
    assert model.reconstruction_err_**2 / 2 == pytest.approx(kl_divergence(X, W, H))
    assert "reconstruction_err_**2 / 2" in PAGES["coming_from.md"]
    alpha_W, l1_ratio = 0.1, 0.4
    l1_W, l2_W = alpha_W * l1_ratio * 20, alpha_W * (1 - l1_ratio) * 20
    expected = (
        kl_divergence(X, W, H)
        + alpha_W * l1_ratio * 20 * np.abs(W).sum()
        + 0.5 * alpha_W * (1 - l1_ratio) * 20 * (W**2).sum()
    )
    penalties = Penalties.of_matrix(l1_W=l1_W, l2_W=l2_W)
    assert penalised_objective(X, W, H, penalties) == pytest.approx(expected)
