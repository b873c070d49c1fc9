"""Install a wheel into a fresh environment without a compiler, and test what was installed.

    python tools/check_wheel.py WHEEL --dependencies oldest newest

The oldest dependencies are the least versions of pyproject.toml. What is checked: the wheel is
small, it is imported quickly, its command runs, and the tests named below pass with the required
dependencies alone, pytest and hypothesis.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from requirements import requirements

ROOT = Path(__file__).resolve().parents[1]
WHERE = ROOT / "build" / "wheels"
MOST_BYTES = 8e6
MOST_SECONDS = 0.3

# Every part of the core, files, threads and forks; a few minutes on two cores.
TESTS = (
    "test_component_matching",
    "test_count_data",
    "test_data_passes",
    "test_estimator",
    "test_estimator_checks",
    "test_kernels",
    "test_long_rows",
    "test_loop",
    "test_on_disk",
    "test_online",
    "test_other_libraries",
    "test_promises",
    "test_run_options",
    "test_running_fit",
    "test_saved_models",
    "test_solvers",
    "test_starts",
    "test_threads",
    "test_topics",
    "test_without_posix",
)

# Seconds that the estimator takes to import after what a user has imported anyway.
IMPORT = """
import time
import numpy, sklearn.decomposition
start = time.perf_counter()
import klnmf
klnmf.KLNMF
print(time.perf_counter() - start)
"""


def fresh_environment(wheel: Path, dependencies: str) -> tuple[Path, dict[str, str]]:
    """Return the Python of a new environment with the wheel, and the variables to run it with."""
    folder = WHERE / f"{dependencies}-{sys.version_info.major}.{sys.version_info.minor}"
    venv.create(folder, clear=True, with_pip=True)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / ("python.exe" if os.name == "nt" else "python")
    # Of that age, scikit-learn's checks of estimators use what pytest 9 warns of.
    pinned = [*requirements("oldest"), "pytest<9"] if dependencies == "oldest" else []
    command = [python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--upgrade"]
    subprocess.run([*command, wheel, *pinned, "pytest", "hypothesis", "pytest-xdist"], check=True)
    # Nothing of this process's environment leads to another klnmf, nor to a compiler.
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    bare["PATH"] = str(scripts)
    if (lscpu := shutil.which("lscpu")) is not None:
        (scripts / "lscpu").symlink_to(lscpu)  # joblib counts cores by it, and warns without
    for compiler in ("c++", "cc", "clang", "cl", "g++", "gcc"):
        assert shutil.which(compiler, path=bare["PATH"]) is None
    return python, bare


def check(wheel: Path, dependencies: str, jobs: int) -> None:
    """Run all checks with the oldest or the newest dependencies."""
    print(f"==> {wheel.name} with the {dependencies} dependencies", flush=True)
    python, bare = fresh_environment(wheel, dependencies)

    def run(*command: str, text: bool = False) -> str:
        done = subprocess.run(
            [str(python), *command], env=bare, check=True, text=True, cwd=ROOT,
            stdout=subprocess.PIPE if text else None,
        )  # fmt: skip
        return done.stdout

    place = run("-c", "import klnmf; print(klnmf.__file__)", text=True)
    assert "site-packages" in place, f"the installed klnmf is not what is imported: {place}"
    run("-m", "klnmf", "info")
    seconds = min(float(run("-c", IMPORT, text=True)) for _ in range(5))
    print(f"imported in {seconds:.3f} s after NumPy and scikit-learn (at most {MOST_SECONDS} s)")
    assert seconds < MOST_SECONDS
    tests = [f"tests/{name}.py" for name in TESTS]
    options = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-n", str(jobs)]
    run("-m", "pytest", *options, *tests)


def main() -> None:
    """Check the wheel that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument(
        "--dependencies", nargs="+", choices=["oldest", "newest"], default=["newest"]
    )
    parser.add_argument("--jobs", type=int, default=2, help="test processes at a time")
    arguments = parser.parse_args()
    size = arguments.wheel.stat().st_size
    print(f"{arguments.wheel.name}: {size / 1e6:.2f} MB (at most {MOST_BYTES / 1e6:.0f} MB)")
    assert size < MOST_BYTES
    for dependencies in arguments.dependencies:
        check(arguments.wheel.resolve(), dependencies, arguments.jobs)


if __name__ == "__main__":
    main()
