"""R's fastTopics in the comparison with peers: what R gets, and what is made of its answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import peer_fast_topics
from benchmarks.peer_clock import Meter, divergence
from benchmarks.peer_jobs import Job
from benchmarks.peer_run import balanced_start
from benchmarks.peer_solvers import SOLVERS

from klnmf.data.validation import check_counts
from klnmf.simulate import simulate_counts


@pytest.fixture(name="X")
def counts() -> sp.csr_array:
    return check_counts(simulate_counts(40, 30, 3, random_state=0).X, dtype=np.float64)


# In place of Rscript: returns the factors that it was given, and what it was told to say of them.
PRETENDED_R = """#!{python}
import pathlib, sys
import numpy as np
if sys.argv[1] == "-e":
    print("0.1", end="")
    sys.exit()
folder = pathlib.Path(sys.argv[2])
names, values = (line.split(",") for line in (folder / "settings.csv").read_text().split())
settings = dict(zip(names, map(float, values)))
n, m, r = (int(settings[name]) for name in "nmr")
p, i = (np.fromfile(folder / name, np.int32) for name in ("p.bin", "i.bin"))
X = np.zeros((n, m))
X[i, np.repeat(np.arange(m), np.diff(p))] = np.fromfile(folder / "x.bin")
L = np.fromfile(folder / "L.bin").reshape(n, r, order="F")
F = np.fromfile(folder / "F.bin").reshape(m, r, order="F")
Y = L @ F.T
some = X > 0
value = np.sum(X[some] * np.log(X[some] / Y[some])) - X.sum() + Y.sum()
(folder / "points.csv").write_text("seconds,iteration,divergence\\n0.5,1,9e9\\n1.5,2,%r\\n"
                                   % float(value * {factor}))
(folder / "memory.csv").write_text("before,peak\\n1000,5000\\n")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a script takes the place of R")
class TestFastTopics:
    @pytest.fixture(name="pretend")
    def pretended_r(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Callable[[float], None]]:
        def put_in_place(factor: float) -> None:
            program = tmp_path / "Rscript"
            program.write_text(PRETENDED_R.format(python=sys.executable, factor=factor))
            program.chmod(0o755)
            monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
            peer_fast_topics.version.cache_clear()

        yield put_in_place
        peer_fast_topics.version.cache_clear()

    def run(self, X: sp.csr_array) -> Meter:
        meter = Meter(X, before=0)
        job = Job("set", "fasttopics", 3, "float64", seed=0, threads=2, seconds=0.2)
        SOLVERS["fasttopics"].run(job, X, balanced_start(X, 3, 0), meter)
        return meter

    def test_r_gets_the_data_and_the_start_without_empty_rows_and_columns(
        self, X: sp.csr_array, pretend: Callable[[float], None]
    ) -> None:
        pretend(1.0)
        assert SOLVERS["fasttopics"].is_installed
        assert SOLVERS["fasttopics"].version == "0.1"
        X = sp.csr_array(sp.hstack([X[:, :4], sp.csr_array((40, 2)), X[:, 4:]]))
        meter = self.run(X)
        W, H = balanced_start(X, 3, 0)
        H[:, 4:6] = 0  # R never saw them
        assert [point[:2] for point in meter.points] == [(0.5, 1), (1.5, 2), (1.5, 2)]
        assert meter.points[-1][2] == pytest.approx(divergence(X, W, H), rel=1e-12)
        assert meter.peak == 4000

    def test_a_divergence_that_the_factors_do_not_bear_out_is_refused(
        self, X: sp.csr_array, pretend: Callable[[float], None]
    ) -> None:
        pretend(0.999)
        with pytest.raises(RuntimeError, match="but its factors have"):
            self.run(X)

    def test_without_r_it_is_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        peer_fast_topics.version.cache_clear()
        assert not SOLVERS["fasttopics"].is_installed
        peer_fast_topics.version.cache_clear()

    @pytest.mark.parametrize("solver", ["fasttopics", "fasttopics-extrapolated"])
    def test_it_descends(self, X: sp.csr_array, solver: str) -> None:
        if not SOLVERS["fasttopics"].is_installed:  # asks R, which takes a moment to start
            pytest.skip("R has no fastTopics")
        meter = Meter(X, before=0)
        job = Job("set", solver, 3, "float64", seed=0, threads=1, seconds=0.2)
        SOLVERS[solver].run(job, X, balanced_start(X, 3, 0), meter)
        values = [value for _, _, value in meter.points]
        assert values[-1] <= values[0] < divergence(X, *balanced_start(X, 3, 0))
        assert (np.diff([seconds for seconds, _, _ in meter.points]) >= 0).all()


def test_every_solver_has_a_line_in_the_plots() -> None:
    plots = pytest.importorskip("benchmarks.peer_plots", exc_type=ImportError)
    assert set(plots.STYLES) == set(SOLVERS)
