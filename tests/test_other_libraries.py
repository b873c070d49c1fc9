"""klnmf in one process with libraries that bring OpenMP run times and thread pools of their own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

# Each library computes on its threads, again and again, in turn with the others; then so does a
# child of fork where there is one. PyTorch and OpenMP do not survive that, klnmf does.
TOGETHER = """
import os, sys, warnings
warnings.simplefilter("ignore")
imports = {"klnmf": "klnmf", "sklearn": "sklearn.cluster", "torch": "torch"}
for name in sys.argv[1:]:
    __import__(imports[name])
import numpy as np, scipy.sparse as sp
import klnmf, sklearn.cluster

X = sp.csr_array(np.random.default_rng(0).poisson(0.5, (1500, 200)).astype(np.float32))


def of_klnmf(n_threads=4):
    model = klnmf.KLNMF(8, random_state=0, max_iter=4, tol=0.0, n_threads=n_threads)
    return model.fit(X).components_.tobytes()


def of_sklearn():
    means = sklearn.cluster.KMeans(5, init="random", n_init=1, max_iter=2, random_state=0)
    return means.fit(X[:, :20].toarray()).labels_.tobytes()


def of_torch():
    import torch
    ones = torch.ones(500, 500)
    return (ones @ ones).sum().item()


alone = of_klnmf(n_threads=1)
rounds = []
for _ in range(2):
    assert of_klnmf() == alone
    rounds.append((of_sklearn(), of_torch() if "torch" in sys.argv else None))
assert rounds[0] == rounds[1]
if hasattr(os, "fork"):
    child = os.fork()
    if child == 0:
        os._exit(0 if of_klnmf() == alone else 1)
    assert os.waitpid(child, 0)[1] == 0
assert of_klnmf() == alone
print("well")
"""

TORCH = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)


def said(code: str, *arguments: str) -> str:
    # Four threads each, however few cores there are; PyTorch and SciPy's BLAS follow this too.
    environment = os.environ | {"OMP_NUM_THREADS": "4"}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("order", [("klnmf", "sklearn"), ("sklearn", "klnmf")])
def test_scikit_learn_in_one_process(order: tuple[str, ...]) -> None:
    assert said(TOGETHER, *order) == "well\n"


@TORCH
@pytest.mark.parametrize("order", [("klnmf", "sklearn", "torch"), ("torch", "sklearn", "klnmf")])
def test_torch_and_scikit_learn_in_one_process(order: tuple[str, ...]) -> None:
    assert said(TOGETHER, *order) == "well\n"


def test_the_core_brings_no_threads_but_its_own() -> None:
    """No OpenMP run time, whose second copy in one process can hang or crash it, and no BLAS."""
    code = "import klnmf._core, threadpoolctl; print(threadpoolctl.threadpool_info())"
    assert said(code) == "[]\n"
