"""Matrices on disk: the same bits as in memory, in bounded memory, and every way to be broken."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF, MiniBatchKLNMF, RunOptions, open_matrix
from klnmf.cli import main
from klnmf.data.sparse_data import InMemoryData
from klnmf.datasets import load_bible
from klnmf.evaluation import evaluate
from klnmf.readers import CountTable, prepare, read_counts, write_counts
from on_disk_checks import assert_is


@pytest.fixture(scope="module")
def bible() -> sp.csr_array:
    return load_bible().data[:300]


# ---- the same bits -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("solver", "options"),
    [
        ("srcd", {}),
        ("srcd", {"l1_W": 0.1, "l1_H": 0.1, "init": "random"}),
        ("srcd", {"init": "nndsvd"}),
        ("srcd-paper", {}),
        ("mu", {}),
        ("bmme", {}),
        ("ccd", {}),
    ],
)
def test_fit_has_the_bits_of_memory(tmp_path, bible, solver, options, dtype):
    X = bible.astype(dtype)
    prepare(X, tmp_path / "X", memory="1M")
    matrix = open_matrix(tmp_path / "X", memory=50_000)  # dozens of pieces
    assert len(list(matrix.data.view(0).pieces())) > 10
    models = [
        KLNMF(4, solver=solver, max_iter=6, random_state=0, n_threads=threads, **options)
        for threads in (1, 2, 1)
    ]
    W = models[0].fit_transform(X)
    for model in models[1:]:
        np.testing.assert_array_equal(model.fit_transform(matrix), W)
        np.testing.assert_array_equal(model.components_, models[0].components_)
        assert model.divergence_ == models[0].divergence_
        assert model.optimality_gap_ == models[0].optimality_gap_
        for name in ("objective", "optimality_gap"):
            np.testing.assert_array_equal(
                *([record[name] for record in of.history_] for of in (model, models[0]))
            )
    np.testing.assert_array_equal(models[0].transform(matrix), models[0].transform(X))


def test_fit_with_swaps_and_score_has_the_bits_of_memory(tmp_path, bible):
    matrix = prepare(bible, tmp_path / "X")
    one, other = (KLNMF(8, random_state=1) for _ in range(2))
    np.testing.assert_array_equal(one.fit_transform(bible), other.fit_transform(matrix))
    assert one.converged_
    assert one.score(bible) == other.score(matrix)


def test_score_of_values_that_are_not_whole(tmp_path, bible):
    X = bible.astype(np.float64) * 0.3
    matrix = prepare(X, tmp_path / "X")
    model = KLNMF(3, random_state=0, max_iter=50, tol=0.1).fit(X)
    assert model.score(matrix) == model.score(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_checkpoint_in_memory_goes_on_from_disk(tmp_path, bible):
    options = {"random_state": 0, "run": RunOptions(checkpoint=tmp_path / "c"), "tol": 1e-9}
    KLNMF(3, max_iter=3, **options).fit(bible)
    model = KLNMF(3, max_iter=6, **options).fit(prepare(bible, tmp_path / "X"))
    whole = KLNMF(3, max_iter=6, random_state=0, tol=1e-9).fit(bible)
    assert model.n_iter_ == 6
    np.testing.assert_array_equal(model.components_, whole.components_)


def test_dtype_and_features_must_be_those_of_the_matrix(tmp_path, bible):
    matrix = prepare(bible.astype(np.float32), tmp_path / "X")
    with pytest.raises(ValueError, match=r"prepared in float32.*prepare the matrix again"):
        KLNMF(2, dtype=np.float64).fit(matrix)
    model = KLNMF(2, random_state=0, dtype="float32", tol=0.1).fit(matrix)
    with pytest.raises(ValueError, match="features"):
        model.transform(prepare(bible[:, :50], tmp_path / "narrow"))


def test_fits_in_two_threads_share_a_matrix(tmp_path, bible):
    prepare(bible, tmp_path / "X")
    matrix = open_matrix(tmp_path / "X", memory=50_000)
    wanted = KLNMF(4, random_state=0, tol=0.1).fit(bible).components_
    with ThreadPoolExecutor(2) as pool:
        fits = [pool.submit(KLNMF(4, random_state=0, tol=0.1).fit, matrix) for _ in range(4)]
    for fit in fits:
        np.testing.assert_array_equal(fit.result().components_, wanted)


def test_a_pass_that_is_left_ends_its_thread(tmp_path, bible):
    prepare(bible, tmp_path / "X")
    before = threading.active_count()
    pieces = open_matrix(tmp_path / "X", memory=50_000).data.view(0).pieces()
    next(pieces)
    assert threading.active_count() == before + 1
    pieces.close()
    assert threading.active_count() == before


def test_rows_are_taken_as_from_memory(tmp_path, bible):
    X = bible.astype(np.float32)
    view, wanted = prepare(X, tmp_path / "X").data.view(0), InMemoryData(X).view(0)
    for rows in ([], [299], [0, 1, 2], [5, 4, 4, 17, 18, 299, 0]):
        for ours, theirs in zip(
            view.take_rows(np.array(rows, dtype=int)),
            wanted.take_rows(np.array(rows, dtype=int)),
            strict=True,
        ):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype


def test_what_takes_counts_in_memory_says_so(tmp_path, bible):
    matrix = prepare(bible, tmp_path / "X")
    with pytest.raises(TypeError, match=r"on disk.*row_blocks"):
        MiniBatchKLNMF(2).fit(matrix)
    with pytest.raises(TypeError, match="must be in memory"):
        evaluate(KLNMF(2, random_state=0, tol=0.1).fit(bible), matrix)
    stream = MiniBatchKLNMF(2, random_state=0)
    for block in matrix.row_blocks(100):
        stream.partial_fit(block)
    assert stream.n_steps_ == 3


def test_what_a_matrix_on_disk_says(tmp_path, bible):
    matrix = prepare(CountTable(bible, labels=["a"] * 300), tmp_path / "X")
    assert repr(matrix).endswith(f"300 × {bible.shape[1]:,}, {bible.nnz:,} nonzeros)")
    assert (len(matrix), matrix.sum(), matrix.labels[0]) == (300, bible.sum(), "a")
    assert matrix.row_names is None
    assert (matrix.as_csr() != bible).nnz == 0
    assert pickle.loads(pickle.dumps(matrix)).nnz == bible.nnz
    assert_is(matrix, bible)


# ---- the command ---------------------------------------------------------------------------------


def test_commands(tmp_path, capsys, monkeypatch):
    pytest.importorskip("jinja2", reason="reports need jinja2")
    monkeypatch.chdir(tmp_path)
    bible = load_bible()
    table = CountTable(bible.data[:200], bible.sample_names[:200], bible.feature_names)
    write_counts(table, "X.npz")
    assert main(["prepare", "X.npz", "X.disk", "--memory", "8M"]) == 0
    assert "written: X.disk, 200 samples" in capsys.readouterr().err
    assert main(["prepare", "X.npz", "X.disk"]) == 1
    assert "--force" in capsys.readouterr().err
    for data, model in (("X.disk", "disk"), ("X.npz", "memory")):
        assert (
            main(["fit", data, "-r", "4", "-o", f"{model}.klnmf", "--report", f"{model}.html"]) == 0
        )
        assert main(["transform", f"{model}.klnmf", data, "-o", f"{model}.csv"]) == 0
    assert Path("disk.csv").read_bytes() == Path("memory.csv").read_bytes()
    assert "on disk" in capsys.readouterr().err
    assert main(["evaluate", "disk.klnmf", "X.disk"]) == 0
    assert main(["convert", "X.disk", "again.npz"]) == 0
    assert (read_counts("again.npz").X != table.X).nnz == 0
    # Features of another order are matched by name.
    order = np.argsort(np.array(bible.feature_names))[::-1]
    other = CountTable(table.X[:, order], table.row_names, np.array(bible.feature_names)[order])
    prepare(other, "other.disk")
    assert main(["transform", "disk.klnmf", "other.disk", "-o", "other.csv"]) == 0
    assert "into memory" in capsys.readouterr().err
    assert main(["prepare", "X.npz", "Y", "--memory", "no"]) == 1
    assert main(["fit", "X.disk", "-r", "2", "--dtype", "float64", "-o", "no.klnmf"]) == 1
    assert "prepare the matrix again" in capsys.readouterr().err
    shutil.rmtree("X.disk")


# ---- memory --------------------------------------------------------------------------------------

_MEASURED = """
import sys
from pathlib import Path
from klnmf import KLNMF, MiniBatchKLNMF, open_matrix
from klnmf.readers import prepare
import warnings
warnings.simplefilter("ignore")

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if " kB" in line}

import numpy, threading, time
warm = prepare(numpy.eye(3), sys.argv[2] + ".warm", overwrite=True)
model = KLNMF(4, max_iter=2, random_state=0, n_threads=1)
model.fit(warm)
peak, done = [0, 0], threading.Event()
def watch():
    while not done.is_set():
        now = anonymous()
        peak[0] = max(peak[0], now["RssAnon"])
        peak[1] = max(peak[1], now["RssAnon"] + now["RssFile"])
        time.sleep(0.001)
before = anonymous()
watcher = threading.Thread(target=watch)
watcher.start()
if sys.argv[3] == "prepare":
    prepare(sys.argv[1], sys.argv[2], memory="8M")
else:
    model.fit(open_matrix(sys.argv[2], memory="2M"))
done.set()
watcher.join()
print(peak[0] - before["RssAnon"], peak[1] - before["RssAnon"] - before["RssFile"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which Linux has")
def test_memory_is_bounded(tmp_path):
    """A quarter of the matrix's size is enough, to prepare it and to fit it."""
    n, length = 80_000, 100  # 8e6 nonzeros: 64 MB by rows, 128 MB on disk
    indices = np.tile(np.arange(0, 4 * length, 4, dtype=np.int32), n)
    indices += np.repeat(np.arange(n, dtype=np.int32) % 4, length)
    values = (np.arange(n * length) % 7 + 1).astype(np.float32)
    X = sp.csr_array((values, indices, np.arange(n + 1, dtype=np.int32) * length), (n, 4 * length))
    sp.save_npz(tmp_path / "X.npz", X, compressed=False)
    size = 2 * 8 * X.nnz
    for step in ("prepare", "fit"):
        run = subprocess.run(
            [sys.executable, "-c", _MEASURED, tmp_path / "X.npz", tmp_path / "X.disk", step],
            capture_output=True,
            text=True,
            check=True,
        )
        own, with_files = (int(number) for number in run.stdout.split())
        assert own < size / 4, f"{step}: {own / 2**20:.1f} MiB of {size / 2**20:.1f}"
        assert with_files < size / 2, f"{step}: {with_files / 2**20:.1f} MiB with mapped files"
