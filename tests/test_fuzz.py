"""Files that once broke something do so no more, and the fuzzer finds what it should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from fuzz.targets import TARGETS

HERE = Path(__file__).parent
BROKEN = HERE / "data" / "broken"
# What may come of good files, of odd ones that are made by code, and of those that are kept.
WANTED = {"good": ("read",), "odd": ("refused",), "kept": ("read", "refused")}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of forks")


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run in a process of its own, which has no threads when it forks."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def verdicts() -> list[dict[str, str]]:
    """What came of every case that is known."""
    answer = run_python("-m", "fuzz", "--replay", str(BROKEN))
    assert answer.returncode in (0, 1), answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


@pytest.mark.parametrize("target", TARGETS)
def test_known_files(target: str, verdicts: list[dict[str, str]]) -> None:
    """No file that ever broke something does so again, and good ones are still read."""
    found = [about for about in verdicts if about["target"] == target]
    assert {"good"} <= {about["group"] for about in found}
    wrong = [about for about in found if about["kind"] not in WANTED[about["group"]]]
    assert not wrong, "\n".join(
        f"{a['group']}, {a['case']}: {a['kind']}\n{a['text']}" for a in wrong
    )


def test_kept_files_are_of_a_target() -> None:
    assert {path.name for path in BROKEN.iterdir()} <= set(TARGETS)


@pytest.mark.slow
def test_quick_fuzzing(tmp_path: Path) -> None:
    answer = run_python("-m", "fuzz", "--tries", "300", "--seconds", "900", "--keep", str(tmp_path))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "found" in answer.stdout


# ---- the fuzzer itself ---------------------------------------------------------------------------

BAD_READERS = """
import json, os, signal, time
from fuzz import judge
from fuzz.children import try_all, workplace
from fuzz.readings import WrongResultError
from fuzz.targets import Target

def use(folder):
    exec((folder / "code").read_text())

codes = [
    "raise ValueError('no')",
    "raise KeyError('no')",
    "os.kill(os.getpid(), signal.SIGSEGV)",
    "bytearray(1 << 32)",
    "raise WrongResultError('no')",
    "while True: pass",
    "time.sleep(60)",
    "(folder / 'code').unlink()",
]
judge.SECONDS, judge.SECONDS_OF_WAITING = 0.5, 1.0
with workplace() as place:
    target = Target("bad", use, None)
    make = lambda number: {"code": codes[number].encode()}
    for tried in try_all(place, target, range(len(codes)), make):
        print(json.dumps([tried.verdict.kind, tried.verdict.cause, list(tried.files)]))
"""


def test_what_is_found() -> None:
    """Each death costs one child; the tries after it are made all the same."""
    answer = run_python("-c", BAD_READERS)
    assert not answer.returncode, answer.stderr
    found = [json.loads(line) for line in answer.stdout.splitlines()]
    causes = ["", "KeyError", "SIGSEGV", "MemoryError", "WrongResultError"]
    causes += ["took too long"] * 2 + [""]
    assert [kind for kind, _, _ in found] == ["refused", *["found"] * 6, "read"]
    assert all(
        cause.startswith(wanted) for (_, cause, _), wanted in zip(found, causes, strict=True)
    )
    assert [files for _, _, files in found] == [[], *[["code"]] * 6, []]


@pytest.mark.parametrize("target", TARGETS)
def test_a_try_can_be_made_again(target: str) -> None:
    made = [TARGETS[target].mutated(Random(f"{number}")) for number in (1, 1, 2, 3, 4)]
    assert made[0] == made[1]
    assert any(files != made[0] for files in made[2:])
