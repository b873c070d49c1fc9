"""Matrices on disk: the same bits as in memory, in bounded memory, and every way to be broken."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings

import klnmf.on_disk.preparing as preparing
from klnmf import KLNMF, open_matrix
from klnmf.cli import main
from klnmf.datasets import load_bible
from klnmf.on_disk import prepare
from klnmf.on_disk.layout import npy_header
from klnmf.on_disk.sizes import parse_bytes
from klnmf.readers import CountTable, ReadError, read_counts, write_counts
from klnmf.sparse_data import SparseData
from klnmf.validation import check_counts


@pytest.fixture(scope="module")
def bible() -> sp.csr_array:
    return load_bible().data[:300]


def random_counts(n: int, m: int, density: float, seed: int = 0) -> sp.csr_array:
    generator = np.random.default_rng(seed)
    X = sp.random_array((n, m), density=density, rng=generator, format="csr")
    X.data = generator.geometric(0.4, X.nnz).astype(np.float32)
    return X


def assert_is(matrix: object, X: sp.csr_array) -> None:
    """Both views on disk are those in memory, to the bit, and so is all that is derived."""
    found, wanted = matrix.data, SparseData(check_counts(X))
    for mode in (0, 1):
        ours, theirs = found.view(mode), wanted.view(mode)
        for part in ("indptr", "indices", "values", "row_sums"):
            on_disk, in_memory = getattr(ours, part), getattr(theirs, part)
            assert on_disk.dtype == in_memory.dtype, part
            np.testing.assert_array_equal(on_disk, in_memory, err_msg=part)
    for fact in ("shape", "dtype", "nnz", "total", "divergence_constant", "is_exact_in_float32"):
        assert getattr(found, fact) == getattr(wanted, fact), fact
    assert found.fingerprint == wanted.fingerprint


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
        assert [r["objective"] for r in model.history_] == [
            r["objective"] for r in models[0].history_
        ]
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
    options = {"random_state": 0, "checkpoint": tmp_path / "c", "tol": 1e-9}
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


def test_what_a_matrix_on_disk_says(tmp_path, bible):
    matrix = prepare(CountTable(bible, labels=["a"] * 300), tmp_path / "X")
    assert repr(matrix).endswith(f"300 × {bible.shape[1]:,}, {bible.nnz:,} nonzeros)")
    assert (len(matrix), matrix.sum(), matrix.labels[0]) == (300, bible.sum(), "a")
    assert matrix.row_names is None
    assert (matrix.as_csr() != bible).nnz == 0
    assert pickle.loads(pickle.dumps(matrix)).nnz == bible.nnz
    assert_is(matrix, bible)


# ---- preparing -----------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.floats(0, 1),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_any_limit_gives_what_scipy_gives(tmp_path_factory, n, m, density, limit, seed, ordered):
    """Entries in any order with duplicates and zeros; or rows in order."""
    folder = tmp_path_factory.mktemp("limits")
    generator = np.random.default_rng(seed)
    size = int(density * n * m)
    places = generator.integers(n, size=size), generator.integers(m, size=size)
    entries = sp.coo_array((generator.integers(4, size=size), places), shape=(n, m))
    X = entries.tocsr()
    file = folder / "X.mtx"
    scipy.io.mmwrite(file, X if ordered else entries)
    data = X if ordered else file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "BYTES_PER_ENTRY", (1 << 20) // limit)
        assert_is(prepare(data, folder / "out", memory="1M"), X)
    assert sorted(p.name for p in folder.iterdir()) == ["X.mtx", "out"]
    assert not list((folder / "out").glob("*.bucket"))


def save(table: CountTable, folder: Path, kind: str) -> Path:
    path = folder / f"counts.{kind.replace('csc.', '')}"
    if kind == "csc.npz":
        write_counts(table, path)
        sp.save_npz(path, table.X.tocsc())
    elif kind == "docword":
        path = folder / "docword.counts.txt"
        rows = np.repeat(np.arange(table.shape[0]), np.diff(table.X.indptr))
        lines = [
            f"{i + 1} {j + 1} {v}\n"
            for i, j, v in zip(rows, table.X.indices, table.X.data, strict=True)
        ]
        path.write_text("".join([*(f"{x}\n" for x in (*table.shape, table.X.nnz)), *lines]))
        (folder / "vocab.counts.txt").write_text("".join(f"{c}\n" for c in table.column_names))
    else:
        write_counts(table, path)
    return path


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(
    "kind",
    ["npz", "csc.npz", "mtx", "mtx.gz", "docword", "csv", "tsv.gz", "parquet", "h5ad"],
)
def test_every_format_gives_what_its_reader_gives(tmp_path, kind, transpose, monkeypatch):
    X = random_counts(40, 25, 0.2).astype(np.int32)
    rows, columns = [f"row {i}" for i in range(40)], [f"word {j}" for j in range(25)]
    path = save(CountTable(X, rows, columns), tmp_path, kind)
    said: list[str] = []
    monkeypatch.setattr(preparing, "BYTES_PER_ENTRY", (1 << 20) // 30)
    matrix = prepare(path, tmp_path / "out", memory="1M", transpose=transpose, say=said.append)
    wanted = read_counts(path, transpose=transpose)
    assert_is(matrix, wanted.X)
    for what in ("row_names", "column_names", "labels"):
        found, expected = getattr(matrix, what), getattr(wanted, what)
        assert (found is None) == (expected is None)
        assert expected is None or list(found) == list(expected)
    assert not any("as a whole" in line for line in said)


@pytest.mark.parametrize("scale", [1, 0.5, 2**22, 2.0**40])
@pytest.mark.parametrize("kind", [np.int64, np.float32, np.float64])
def test_types_are_those_of_a_fit_in_memory(tmp_path, kind, scale):
    X = (random_counts(20, 10, 0.3).astype(np.float64) * scale).astype(kind)
    X.eliminate_zeros()
    assert_is(prepare(X, tmp_path / "matrix"), X)
    sp.save_npz(tmp_path / "X.npz", X)
    assert_is(prepare(tmp_path / "X.npz", tmp_path / "file"), read_counts(tmp_path / "X.npz").X)
    wide = prepare(X, tmp_path / "wide", dtype=np.float64)
    assert_is(wide, X.astype(np.float64))


def test_what_cannot_be_read_in_pieces_says_so(tmp_path):
    path = tmp_path / "table.svmlight"
    path.write_text("1 1:2 3:1\n0 2:4\n")
    said: list[str] = []
    matrix = prepare(path, tmp_path / "out", say=said.append)
    assert_is(matrix, read_counts(path).X)
    assert any("read into memory as a whole" in line for line in said)
    table = tmp_path / "table.csv"
    table.write_text(",a,b\nx,1,0\ny,0,2\n")
    assert prepare(table, tmp_path / "table").column_names.tolist() == ["a", "b"]


def test_interrupted_between_rows_and_columns_goes_on(tmp_path, monkeypatch, bible):
    sp.save_npz(tmp_path / "X.npz", bible)
    out = tmp_path / "out"

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(preparing, "_write_columns", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "X.npz", out)
    assert not out.exists()
    with pytest.raises(ReadError, match="it was interrupted"):
        open_matrix(out)
    monkeypatch.undo()
    monkeypatch.setattr(preparing, "_write_rows", None)  # must not be needed again
    said: list[str] = []
    assert_is(prepare(tmp_path / "X.npz", out, say=said.append), read_counts(tmp_path / "X.npz").X)
    assert "going on: the rows are complete" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["X.npz", "out"]


@pytest.mark.parametrize("what", ["source", "files", "options"])
def test_leftovers_of_other_data_are_not_gone_on_with(tmp_path, monkeypatch, bible, what):
    source, out = tmp_path / "X.npz", tmp_path / "out"
    sp.save_npz(source, bible)
    with monkeypatch.context() as patch:
        patch.setattr(preparing, "_write_columns", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            prepare(source, out)
    if what == "source":
        bible = bible[::2]
        sp.save_npz(source, bible)
    elif what == "files":
        os.truncate(tmp_path / "out.partial" / "rows.values.npy", 1000)
    dtype = "float64" if what == "options" else None
    said: list[str] = []
    matrix = prepare(source, out, dtype=dtype, say=said.append)
    assert not any("going on" in line for line in said)
    assert_is(matrix, bible.astype(dtype or np.float32))


def test_killed_while_rows_are_written_begins_anew(tmp_path, bible):
    """The leftovers of a process that was killed are cleared; another one at work is noticed."""
    partial = tmp_path / "out.partial"
    partial.mkdir()
    (partial / "rows.values.npy").write_bytes(b"half")
    (partial / "column.7.bucket").write_bytes(b"half")
    with preparing._held(partial), pytest.raises(FileExistsError, match="another process"):
        prepare(bible, tmp_path / "out")
    assert_is(prepare(bible, tmp_path / "out"), bible)


def test_a_source_that_is_wrong_leaves_nothing(tmp_path):
    path = tmp_path / "X.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 3\n2 5 1\n")
    with pytest.raises(ReadError, match="line 4"):
        prepare(path, tmp_path / "out")
    sp.save_npz(tmp_path / "X.npz", sp.csr_array([[1.0, 0.0], [0.0, -2.0]]))
    with pytest.raises(ReadError, match=r"X.npz: row 1, column 1 holds -2.0"):
        prepare(tmp_path / "X.npz", tmp_path / "out")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "X.npz").read_bytes()[:-40])
    with pytest.raises(ReadError, match="cut off"):
        prepare(tmp_path / "cut.npz", tmp_path / "out")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ReadError, match="empty"):
        prepare(tmp_path / "empty.csv", tmp_path / "out")
    with pytest.raises(ValueError, match="row 0, column 1 holds nan"):
        prepare(np.array([[1.0, np.nan]]), tmp_path / "out")
    with pytest.raises(ValueError, match="safe from"):
        prepare(np.array([[1.0, 1e-30]]), tmp_path / "out", dtype="float32")
    with pytest.raises(ValueError, match="it is empty"):
        prepare(np.zeros((0, 3)), tmp_path / "out")
    with pytest.raises(ValueError, match="two-dimensional"):
        prepare(np.zeros(3), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()


def test_wrong_calls(tmp_path, bible):
    with pytest.raises(FileNotFoundError, match="no such file"):
        prepare(tmp_path / "nowhere.npz", tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        prepare(bible, tmp_path / "no" / "out")
    with pytest.raises(TypeError, match="in memory"):
        prepare(bible, tmp_path / "out", layer="raw")
    with pytest.raises(ValueError, match="dtype must be"):
        prepare(bible, tmp_path / "out", dtype="int32")
    for memory in ("much", True, 2.5, "10K"):
        with pytest.raises(ValueError, match="memory must be"):
            prepare(bible, tmp_path / "out", memory=memory)
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="something else"):
        prepare(bible, tmp_path / "mine", overwrite=True)
    prepare(bible, tmp_path / "out")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        prepare(bible, tmp_path / "out")
    assert_is(prepare(bible[:9], tmp_path / "out", overwrite=True), bible[:9])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "out"]
    assert parse_bytes("1.5g") == 3 << 29


def test_empty_matrix_and_empty_rows(tmp_path):
    X = sp.csr_array((3, 4), dtype=np.float32)
    assert_is(prepare(X, tmp_path / "empty"), X)
    Y = sp.csr_array([[0, 0, 0], [0, 2, 0], [0, 0, 0]], dtype=np.float32)
    matrix = prepare(Y, tmp_path / "nearly")
    assert_is(matrix, Y)
    model = KLNMF(1, random_state=0).fit(matrix)
    np.testing.assert_array_equal(model.components_, KLNMF(1, random_state=0).fit(Y).components_)


# ---- damage --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    table = CountTable(random_counts(30, 20, 0.3), [f"r{i}" for i in range(30)])
    return prepare(table, tmp_path / "X").path


def test_numpy_alone_reads_it(folder):
    parts = [
        np.load(folder / f"rows.{p}.npy", mmap_mode="r") for p in ("values", "indices", "indptr")
    ]
    X = sp.csr_array(tuple(parts), shape=json.loads((folder / "header.json").read_text())["shape"])
    assert (random_counts(30, 20, 0.3) != X).nnz == 0
    assert npy_header(np.dtype("<f8"), 5)[:8] == b"\x93NUMPY\x01\x00"


def test_every_file_that_is_cut_missing_or_too_long_is_named(folder):
    for file in sorted(folder.iterdir()):
        if file.name == "header.json":
            continue
        content = file.read_bytes()
        for damaged in (content[:-1], content + b"x", None):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            with pytest.raises(ReadError, match=file.name):
                open_matrix(folder)
        file.write_bytes(content)
    open_matrix(folder, verify=True)


def test_a_changed_byte_is_found_by_verify(folder):
    for file in sorted(folder.iterdir()):
        if file.name == "header.json":
            continue
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        before = file.read_bytes()
        file.write_bytes(content)
        with pytest.raises(ReadError, match=file.name):
            open_matrix(folder, verify=True)
        file.write_bytes(before)


def test_what_compiled_code_follows_is_checked_though_checksums_match(folder):
    header = json.loads((folder / "header.json").read_text())
    cases = [
        ("rows.indptr.npy", 3, 10**6, False, "does not rise"),
        ("columns.indptr.npy", -1, 0, False, "does not rise"),
        ("rows.indices.npy", 2, 20, True, "not from 0 to 19"),
        ("columns.indices.npy", 2, -1, True, "not from 0 to 29"),
        ("columns.values.npy", 2, np.nan, True, "not positive"),
    ]
    for name, place, value, verify, message in cases:
        before = (folder / name).read_bytes()
        array = np.load(folder / name)
        array[place] = value
        (folder / name).write_bytes(before[:128] + array.tobytes())
        changed = json.loads(json.dumps(header))
        from klnmf.on_disk.layout import sha256

        changed["files"][name]["sha256"] = sha256(folder / name)
        (folder / "header.json").write_text(json.dumps(changed))
        with pytest.raises(ReadError, match=f"{name}.*{message}"):
            open_matrix(folder, verify=verify)
        (folder / name).write_bytes(before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "Install a newer klnmf"),
        ({"version": "1"}, "damaged"),
        ({"format": "other"}, "damaged"),
        ({"shape": [30]}, "damaged"),
        ({"shape": [31, 20]}, "rows.indptr.npy.*not an array of 32"),
        ({"nonzeros": -1}, "damaged"),
        ({"dtype": "<f8"}, "not an array"),
        ({"dtype": "|O"}, "damaged"),
        ({"total": "much"}, "damaged"),
        ({"whole": 1}, "damaged"),
        ({"files": {}}, "damaged"),
        ({"files": {"../x": {}}}, "damaged"),
    ],
)
def test_headers_that_are_wrong(folder, change, message):
    header = json.loads((folder / "header.json").read_text())
    (folder / "header.json").write_text(json.dumps(header | change))
    with pytest.raises(ReadError, match=message):
        open_matrix(folder)


def test_folders_that_are_something_else(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        open_matrix(tmp_path / "nowhere")
    with pytest.raises(ReadError, match="not a folder that `klnmf prepare` wrote"):
        open_matrix(tmp_path)
    (folder / "header.json").write_text("{")
    with pytest.raises(ReadError, match="damaged"):
        open_matrix(folder)


# ---- the command ---------------------------------------------------------------------------------


def test_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bible = load_bible()
    table = CountTable(bible.data[:200], bible.sample_names[:200], bible.feature_names)
    write_counts(table, "X.npz")
    assert main(["prepare", "X.npz", "X.disk", "--memory", "8M"]) == 0
    assert "written: X.disk, 200 samples" in capsys.readouterr().err
    assert main(["prepare", "X.npz", "X.disk"]) == 1
    assert "--force" in capsys.readouterr().err
    for data, model in (("X.disk", "disk"), ("X.npz", "memory")):
        assert main(["fit", data, "-r", "4", "-o", f"{model}.klnmf", "--report", "r.html"]) == 0
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
    assert "read into memory" in capsys.readouterr().err
    assert main(["prepare", "X.npz", "Y", "--memory", "no"]) == 1
    assert main(["fit", "X.disk", "-r", "2", "--dtype", "float64", "-o", "no.klnmf"]) == 1
    assert "prepare the matrix again" in capsys.readouterr().err
    shutil.rmtree("X.disk")


# ---- memory --------------------------------------------------------------------------------------

_MEASURED = """
import sys
from pathlib import Path
from klnmf import KLNMF, open_matrix
from klnmf.on_disk import prepare
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
        if step == "fit":
            assert with_files < size / 2, f"{with_files / 2**20:.1f} MiB with mapped files"
