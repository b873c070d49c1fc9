"""Kernels are compiled for several instruction sets: which one is used, and that all agree."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands import outcome
from klnmf import _core

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from check_sets import reachable_code  # noqa: E402

USABLE = _core.usable_instruction_sets()
VARIABLE = "KLNMF_INSTRUCTION_SET"
V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


def run_with(
    instruction_set: str | None, *arguments: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if instruction_set is not None:
        environ[VARIABLE] = instruction_set
    return subprocess.run(
        [sys.executable, *arguments], env=environ, check=check, capture_output=True, text=True
    )


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(),
    reason="asks Linux what an x86-64 processor can do",
)
def test_the_processor_is_asked_as_linux_asks_it() -> None:
    flags = set(re.findall(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)[0].split())
    highest = "x86-64-v4" if flags >= V4 else "x86-64-v3" if flags >= V3 else "x86-64"
    every = ["x86-64", "x86-64-v3", "x86-64-v4"]
    assert every[: every.index(highest) + 1] == USABLE


def test_the_highest_set_is_used_unless_another_is_named() -> None:
    program = "from klnmf import _core; print(_core.instruction_set())"
    for named, used in [(None, USABLE[-1]), ("", USABLE[-1]), *zip(USABLE, USABLE, strict=True)]:
        assert run_with(named, "-c", program).stdout.split()[0] == used


def test_info_names_the_set_in_use(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "instruction_set", lambda: "x86-64-v9 (of nobody)")
    code, out, _ = outcome(capsys, "info", "--json")
    assert code == 0
    assert json.loads(out)["machine"]["instruction set"].split()[0] == "x86-64-v9"


def test_a_set_that_is_none_is_an_error_that_names_the_usable_ones() -> None:
    answer = run_with("avx9", "-c", "import klnmf; klnmf.KLNMF", check=False)
    assert answer.returncode == 1
    last = answer.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: the environment variable {VARIABLE} is 'avx9'")
    assert all(name in last for name in USABLE)
    assert "unset it" in last


def test_all_sets_agree_to_rounding(tmp_path: Path) -> None:
    """tools/small_fits.py fails where two results differ by more than rounding."""
    script = str(ROOT / "tools" / "small_fits.py")
    first = str(tmp_path / f"{USABLE[-1]}.npz")
    assert USABLE[-1] in run_with(None, script, first).stdout
    for name in USABLE[:-1]:
        out = run_with(name, script, str(tmp_path / "other.npz"), "--compare", first).stdout
        assert f"{name} (" in out
        assert "allowed" in out


def test_all_sets_try_the_same_components_to_the_bit() -> None:
    program = """
import hashlib, numpy as np, scipy.sparse as sp
from klnmf.data.passes import SampledNonzeros
rng, bits = np.random.default_rng(0), hashlib.sha256()
for n_others in (1, 2, 3):  # the kernels differ
    X = sp.random_array((9, 11), density=0.5, rng=rng).tocsr()
    indices = np.array([rng.permuted(X.indices) + 11 * q for q in range(n_others)], dtype=np.int32)
    W, H = rng.random((9, 3)), rng.random((11 * n_others, 3))
    u, h = rng.random((2, 9)), rng.random((2, 11 * n_others))
    sample = SampledNonzeros(X.indptr.astype(np.int64), indices, X.data, W, H)
    for part in (sample.y, *(sample.ratio_sums(u, h, mode) for mode in range(-1, n_others))):
        bits.update(part.tobytes())
    bits.update(np.float64(sample.gain(u, h)).tobytes())
print(bits.hexdigest())
"""
    assert len({run_with(name, "-c", program).stdout for name in USABLE}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", USABLE[:-1])
def test_kernel_tests_pass_with_every_lower_set(name: str) -> None:
    tests = [str(ROOT / "tests" / f"test_{part}.py") for part in ("kernels", "tensor_kernels")]
    answer = run_with(name, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, check=False)
    assert answer.returncode == 0, answer.stdout[-2000:]


# ---- no code of a higher set in reach ------------------------------------------------------------


def test_code_in_reach_is_found_in_the_listing_of_nm() -> None:
    linux = """
0000000000000000 D _ZN5klnmf9x86_64_v46passesE
0000000000000100 t _ZN5klnmfL13guarded_rangeIfEEvv
0000000000000000 W _ZSt3maxIdERKT_S2_S2_
0000000000000040 T _ZN5klnmf6sharedEv
0000000000000000 V _ZN5klnmf5tableE
0000000000000200 t _GLOBAL__sub_I_row_kernels_float.cpp
"""
    assert reachable_code(linux) == [
        "_ZSt3maxIdERKT_S2_S2_",
        "_ZN5klnmf6sharedEv",
        "_GLOBAL__sub_I_row_kernels_float.cpp",
    ]
    macos = "0000000000000000 S __ZN5klnmf9x86_64_v36passesE\n---------------- T __ZSt3maxv\n"
    assert reachable_code(macos) == ["__ZSt3maxv"]


@pytest.mark.skipif(
    not (shutil.which("c++") and shutil.which("nm")), reason="needs a C++ compiler and nm"
)
def test_the_check_of_object_files_fails_on_an_inline_function(tmp_path: Path) -> None:
    checked = {}
    for keyword in ("inline", "static"):
        source = tmp_path / f"{keyword}.cpp"
        source.write_text(
            f"{keyword} int once(int x) {{ return x + 1; }} extern int (*const table)(int);\n"
            "int (*const table)(int) = once;\n"
        )
        subprocess.run(["c++", "-c", str(source), "-o", f"{source}.o"], check=True)
        checked[keyword] = run_with(
            None, str(ROOT / "tools" / "check_sets.py"), f"{source}.o", check=False
        )
    assert checked["inline"].returncode == 1
    assert "can be called by code for any processor" in checked["inline"].stderr
    assert checked["static"].returncode == 0, checked["static"].stderr


def test_no_code_of_a_higher_set_is_in_reach() -> None:
    """CMake checks this at every build; here for those that lie in the build folder."""
    objects = sorted(map(str, ROOT.glob("build/*/CMakeFiles/klnmf_x86_64_v*.dir/cpp/*.o")))
    if not objects or shutil.which("nm") is None:
        pytest.skip("no object files of higher sets, or no nm")
    answer = run_with(None, str(ROOT / "tools" / "check_sets.py"), *objects, check=False)
    assert answer.returncode == 0, answer.stderr
