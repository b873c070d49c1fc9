"""A fit while it runs: callback, progress bar, Ctrl-C, threads, processes."""

from __future__ import annotations

import multiprocessing
import os
import queue
import re
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import threadpoolctl
from sklearn.exceptions import ConvergenceWarning

from klnmf import KLNMF, objective
from klnmf.backends.cpu import effective_threads
from klnmf.simulate import simulate_counts
from klnmf.support.caching import cached_property
from klnmf.support.progress import ProgressBar
from strategies import make_model

COUNTS = simulate_counts(60, 40, 3, counts_per_sample=150, random_state=0).X

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def model(**parameters: Any) -> KLNMF:
    """Return a small model that gives the same result every time."""
    return make_model(**{"n_components": 3, "random_state": 0, "n_threads": 1, **parameters})


def run_python(code: str, *arguments: str, timeout: float = 60, **environment: str) -> str:
    """Run code in a fresh interpreter and return what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


# ---- callback -----------------------------------------------------------------------------------


def test_callback_gets_each_record() -> None:
    records: list[dict[str, Any]] = []
    with pytest.warns(ConvergenceWarning):
        estimator = model(max_iter=4, tol=0.0, callback=records.append).fit(COUNTS)
    assert records == estimator.history_
    assert len(records) == 4


def test_callback_stops_the_fit_without_a_warning() -> None:
    estimator = model(tol=0.0, callback=lambda record: record["iteration"] == 3)
    W = estimator.fit_transform(COUNTS)  # warnings are errors in this test suite
    assert estimator.n_iter_ == 3
    assert not estimator.converged_
    H = estimator.components_.T
    assert estimator.divergence_ == pytest.approx(objective.kl_divergence(COUNTS, W, H.T), rel=1e-6)


def test_callback_that_stops_in_the_last_iteration_does_not_warn() -> None:
    model(tol=0.0, max_iter=3, callback=lambda record: record["iteration"] == 3).fit(COUNTS)


def test_error_in_the_callback_comes_through() -> None:
    def fail(record: dict[str, Any]) -> None:
        raise RuntimeError("my own mistake")

    with pytest.raises(RuntimeError, match="my own mistake"):
        model(callback=fail).fit(COUNTS)


# ---- progress bar -------------------------------------------------------------------------------


def test_progress_bar_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    model(progress=True).fit(COUNTS)
    out, err = capfd.readouterr()
    assert out == ""
    assert "klnmf" in err
    assert "/500" in err


@pytest.mark.parametrize("progress", ["auto", False])
def test_no_progress_bar_where_nobody_looks(
    progress: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klnmf.support.progress.SECONDS_BEFORE_SHOWN", 0.0)
    model(progress=progress).fit(COUNTS)
    assert capfd.readouterr() == ("", "")


def test_progress_bar_shows_objective_and_gap(capfd: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(True, 1e-3, 10) as bar:
        bar._bar.mininterval = 0.0
        bar.update({"objective": 1234.5, "optimality_gap": 0.02})
        bar.update({"objective": 1200.5, "optimality_gap": 0.01})
    shown = capfd.readouterr().err
    assert "2/10" in shown
    assert "objective 1200.5, gap 1.0e-02" in shown


# ---- Ctrl-C -------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["srcd", "mu", "bmme", "ccd", "srcd-paper"])
def test_interrupt_leaves_a_usable_model(solver: str) -> None:
    def interrupt(record: dict[str, Any]) -> None:
        if record["iteration"] == 4:
            raise KeyboardInterrupt

    estimator = model(solver=solver, callback=interrupt, dtype=np.float64, tol=0.0)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(COUNTS)
    assert estimator.n_iter_ == len(estimator.history_) == 4
    assert estimator.converged_ is False
    assert estimator.divergence_ == pytest.approx(estimator.history_[-1]["divergence"], rel=1e-9)
    W = estimator.transform(COUNTS)
    at_transform = objective.kl_divergence(COUNTS, W, estimator.components_)
    assert at_transform <= estimator.divergence_ * (1 + 1e-9)
    assert np.isfinite(estimator.score(COUNTS))


def test_interrupted_fit_can_go_on_with_a_warm_start() -> None:
    def interrupt(record: dict[str, Any]) -> None:
        if record["iteration"] == 4:
            raise KeyboardInterrupt

    estimator = model(callback=interrupt, warm_start=True)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(COUNTS)
    estimator.set_params(run=None).fit(COUNTS)
    assert estimator.history_[0]["iteration"] == 5
    np.testing.assert_array_equal(estimator.components_, model().fit(COUNTS).components_)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_real_signal_in_a_long_fit() -> None:
    code = """
        import signal
        from klnmf import KLNMF, RunOptions, objective
        from klnmf.simulate import simulate_counts

        # Where the tests run in the background, the shell has set SIGINT to be ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        X = simulate_counts(3000, 500, 5, counts_per_sample=100, random_state=0).X
        say = lambda record: print("iteration", record["iteration"], flush=True)
        model = KLNMF(20, random_state=0, tol=0.0, max_iter=10**9, run=RunOptions(callback=say))
        try:
            model.fit(X)
        except KeyboardInterrupt:
            W, H = model.transform(X), model.components_
            value = objective.kl_divergence(X, W, H)
            good = model.n_iter_ >= 3 and value <= model.divergence_ * (1 + 1e-6)
            print("usable" if good and not model.converged_ else "broken", flush=True)
            raise
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "iteration 3\n":
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert out.splitlines()[-1] == "usable"
    assert err.rstrip().endswith("KeyboardInterrupt")


# ---- threads ------------------------------------------------------------------------------------


def test_numbers_of_threads() -> None:
    allowed = joblib.cpu_count()
    assert effective_threads(1) == 1
    assert effective_threads(7) == 7
    assert effective_threads(-1) == allowed
    assert effective_threads(-2) == max(1, allowed - 1)
    assert effective_threads(-1000) == 1
    with pytest.raises(ValueError, match=r"from 1 to 1024, or negative, got 0"):
        effective_threads(0)


DEFAULT_THREADS = "from klnmf.backends.cpu import effective_threads; print(effective_threads(None))"


@pytest.mark.parametrize("given", ["1", "3"])
def test_default_follows_omp_num_threads(given: str) -> None:
    assert run_python(DEFAULT_THREADS, OMP_NUM_THREADS=given).strip() == given


def test_default_is_every_cpu_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert int(run_python(DEFAULT_THREADS)) == joblib.cpu_count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here")
def test_default_respects_an_affinity_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    pin = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
    assert run_python(pin + DEFAULT_THREADS).strip() == "1"


def test_default_respects_threadpoolctl() -> None:
    with threadpoolctl.threadpool_limits(1):
        assert effective_threads(None) == 1
    with threadpoolctl.threadpool_limits(2, user_api="openmp"):
        assert effective_threads(None) == min(2, joblib.cpu_count())


def test_any_number_of_threads_gives_the_same_bits() -> None:
    one, two, many = (model(n_threads=n, tol=0.05).fit(COUNTS) for n in (1, 2, 13))
    for other in (two, many):
        np.testing.assert_array_equal(one.components_, other.components_)
        assert one.divergence_ == other.divergence_


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_no_more_operating_system_threads_than_asked_for() -> None:
    code = """
        import re
        from klnmf import KLNMF, RunOptions
        from klnmf.simulate import simulate_counts

        def alive():
            return int(re.search(r"Threads:\\s*(\\d+)", open("/proc/self/status").read())[1])

        X = simulate_counts(500, 100, 3, random_state=0).X
        before = alive()
        for n_threads in (1, 3):
            seen = []
            look = lambda record: seen.append(alive())
            run = RunOptions(callback=look)
            KLNMF(3, random_state=0, n_threads=n_threads, tol=0.2, run=run).fit(X)
            print(max(seen) - before)
    """
    with_one, with_three = map(int, run_python(code, OPENBLAS_NUM_THREADS="1").split())
    assert with_one <= 0
    assert with_three <= 2


def test_fits_in_several_python_threads_at_once() -> None:
    def fit(seed: int, n_threads: int) -> np.ndarray:
        return model(random_state=seed, n_threads=n_threads, tol=0.2).fit(COUNTS).components_

    serial = [fit(seed, 1) for seed in range(6)]
    with ThreadPoolExecutor(3) as pool:
        parallel = list(pool.map(lambda seed: fit(seed, 2), range(6)))
    for one, other in zip(serial, parallel, strict=True):
        np.testing.assert_array_equal(one, other)


def _fit_and_put(results: Any) -> None:
    results.put(model(n_threads=2, tol=0.2).fit(COUNTS).components_)


@needs_fork
# Python 3.12 warns about a fork in a process with threads: that is the point here.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_after_threads_were_used_does_not_hang() -> None:
    expected = model(n_threads=2, tol=0.2).fit(COUNTS).components_
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [context.Process(target=_fit_and_put, args=(results,)) for _ in range(2)]
    for child in children:
        child.start()
    try:
        got = [results.get(timeout=30) for _ in children]
    except queue.Empty:
        pytest.fail("a forked child hung in its fit")
    finally:
        for child in children:
            child.kill()
            child.join()
    for components in got:
        np.testing.assert_array_equal(components, expected)
    # The parent still works, too.
    again = model(n_threads=2, tol=0.2).fit(COUNTS).components_
    np.testing.assert_array_equal(again, expected)


FORKS_WHILE_ANOTHER_THREAD_FITS = """
    import os, sys, threading, time, warnings

    warnings.simplefilter("ignore")  # Python 3.12 warns about forks beside threads
    import numpy as np

    import klnmf

    X = np.random.default_rng(0).poisson(0.3, (300, 200))
    n_forks, is_over = int(sys.argv[1]), False

    def fit():
        return klnmf.KLNMF(5, random_state=0, n_threads=2, max_iter=30).fit(X).components_

    def fit_again_and_again():
        while not is_over:
            fit()

    worker = threading.Thread(target=fit_again_and_again)
    worker.start()
    children = []
    for i in range(n_forks):
        time.sleep(0.05)  # the first one comes while the thread imports scikit-learn
        child = os.fork()
        if child == 0:
            np.save(f"{sys.argv[2]}/{i}.npy", fit())
            os._exit(0)
        children.append(child)
    end = time.monotonic() + 60
    while children and time.monotonic() < end:
        children = [child for child in children if os.waitpid(child, os.WNOHANG) == (0, 0)]
        time.sleep(0.02)
    for child in children:
        os.kill(child, 9)
    is_over = True
    worker.join()
    expected = fit()
    for i in range(n_forks):
        assert np.array_equal(np.load(f"{sys.argv[2]}/{i}.npy"), expected)
"""


@needs_fork
@pytest.mark.parametrize(
    "n_forks", [pytest.param(3), pytest.param(40, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_fork_while_another_thread_fits_does_not_hang(n_forks: int, tmp_path: Path) -> None:
    run_python(FORKS_WHILE_ANOTHER_THREAD_FITS, str(n_forks), str(tmp_path), timeout=150)


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_another_thread_computes_a_property() -> None:
    computing, may_end = threading.Event(), threading.Event()

    class Slow:
        is_quick = False

        @cached_property
        def value(self) -> int:
            computing.set()
            assert self.is_quick or may_end.wait(60)
            return 5

    thread = threading.Thread(target=lambda: Slow().value)
    thread.start()
    assert computing.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends a child that waits for ever
        quick = Slow()
        quick.is_quick = True
        os._exit(quick.value - 5)
    assert os.waitpid(child, 0)[1] == 0
    may_end.set()
    thread.join()


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ValueError, match=re.escape("'mu'")):
        model(solver="adam").fit(COUNTS)
    with pytest.raises(ValueError, match=re.escape("'reference'")):
        model(backend="gpu").fit(COUNTS)
