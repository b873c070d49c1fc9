"""The package itself: its names are there, and nothing is imported before it is asked for."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import klnmf
from commands import outcome
from klnmf import KLNMF
from klnmf.support import optional_packages
from klnmf.support.optional_packages import installed_version


@pytest.mark.parametrize("imported", ["klnmf", "klnmf.cli.main"])
def test_an_import_does_not_wait_for_large_libraries(imported: str) -> None:
    code = (
        f"import sys, {imported}; print(sorted({{'numpy', 'scipy', 'sklearn'}} & {{*sys.modules}}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_names_are_found_when_asked_for() -> None:
    for name in klnmf.__all__:
        assert getattr(klnmf, name) is not None
    assert klnmf.KLNMF is klnmf.KLNMF
    assert klnmf.KLNMF.__module__ == "klnmf.estimators.kl_nmf"
    assert set(klnmf.__all__) <= set(dir(klnmf))


def test_modules_are_found_when_asked_for() -> None:
    code = "import klnmf; print(klnmf.simulate.simulate_counts(3, 4, 2, random_state=0).X.shape)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "(3, 4)\n"
    for name in ("datasets", "model_selection", "plots", "topics", "uncertainty"):
        assert getattr(klnmf, name).__name__ == f"klnmf.{name}"


def test_other_names_are_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NMF'"):
        klnmf.NMF  # noqa: B018


def test_all_that_is_imported_is_declared() -> None:
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())
    project = project["project"]
    needed, optional = project["dependencies"], project["optional-dependencies"]

    def names(requirements: list[str]) -> set[str]:
        found = {re.split(r"[<>=\[;]", text)[0] for text in requirements}
        found = {name.replace("cupy-cuda12x", "cupy") for name in found}
        return {name.replace("scikit-learn", "sklearn").replace("-", "_") for name in found}

    declared = names(needed)
    for requirements in optional.values():
        declared |= names(requirements)
    imported = set()
    for file in Path(klnmf.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(str(node.module).partition(".")[0])
    assert imported - declared - {"klnmf", "cupyx"} <= sys.stdlib_module_names  # cupyx: of CuPy


def test_what_an_uninstalled_package_left_is_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("left_behind", "distributed_by_hand"):
        (tmp_path / name / "old").mkdir(parents=True)
    (tmp_path / "distributed_by_hand" / "__init__.py").write_text("")
    assert installed_version("left_behind") is None
    assert installed_version("no_such_package") is None
    assert installed_version("distributed_by_hand") == "unknown"
    assert installed_version("numpy") == np.__version__


def test_info_says_which_packages_of_a_back_end_are_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = optional_packages.installed_version
    monkeypatch.setattr(
        optional_packages, "installed_version", lambda n: None if n == "distributed" else there(n)
    )
    _, out, _ = outcome(capsys, "info", "--json")
    facts = json.loads(out)
    advice = 'distributed is not installed: pip install "klnmf[dask]"'
    assert facts["back-ends"]["dask"] == f"no: {advice}"
    assert facts["extras"]["dask"] == advice
    with pytest.raises(ImportError, match=f"backend='dask' is not available.*{re.escape(advice)}"):
        KLNMF(2, backend="dask").fit(np.ones((3, 2)))


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize("warnings", ["ON", "OFF"])
def test_all_targets_of_make_share_one_build(warnings: str) -> None:
    """They install with the same settings, so that none compiles anew what another compiled."""
    root = Path(__file__).parents[1]
    targets = ("demo", "test", "docs")
    command = ["make", "--dry-run", "--always-make", f"WERROR={warnings}"]
    settings = set()
    for target in targets:
        run = [*command, target]
        planned = subprocess.run(run, cwd=root, capture_output=True, text=True, check=True).stdout
        installs = [line for line in planned.splitlines() if " --editable " in line]
        assert len(installs) == 1
        settings.add(re.sub(r" --editable '\.\[[\w,]+\]'( --group \w+)?", "", installs[0]))
    assert len(settings) == 1
    assert f"KLNMF_WERROR={warnings}" in settings.pop()


def test_a_tag_is_released_only_if_all_files_name_its_version() -> None:
    root = Path(__file__).parents[1]
    project = tomllib.loads(root.joinpath("pyproject.toml").read_text(encoding="utf-8"))
    right = f"v{project['project']['version']}"
    for tag, status in ((right, 0), (f"{right}.1", 1)):
        command = [sys.executable, root / "tools" / "check_version.py", tag]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == status, found.stderr
    assert all(
        f"{name} names version" in found.stderr
        for name in ("pyproject.toml", "CHANGELOG.md", "CITATION.cff", "recipe/recipe.yaml")
    )


def test_workflows_run_targets_that_exist() -> None:
    root = Path(__file__).parents[1]
    makefile = root.joinpath("Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):.*##", makefile, re.MULTILINE))
    workflows = [file.read_text("utf-8") for file in root.glob(".github/workflows/*.yml")]
    called = {name for text in workflows for name in re.findall(r"run: make ([a-z0-9-]+)", text)}
    assert {"pytest", "wheel", "sdist", "docs", "fuzz", "check-version"} <= called
    assert called <= targets
    others = [line for text in workflows for line in re.findall(r"run: (?!make )(.*)", text)]
    assert others == [".ci/run"]
