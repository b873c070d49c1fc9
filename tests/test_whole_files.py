"""Files appear under their names when they are whole, and dead writers leave nothing for good."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.data.on_disk.layout import write_json
from klnmf.readers import CountTable, prepare, read_counts, write_counts
from klnmf.report import write_report
from klnmf.support.whole_files import writing

# Writes half a file, says so, and waits to be killed.
HALF = """
import sys, time
from klnmf.support.whole_files import writing
with writing(sys.argv[1]) as stream:
    stream.write(b"half")
    stream.flush()
    print("half", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "counts [1].npz"  # a name that a pattern would misunderstand


def writer_of_half(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HALF, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    return process


def test_a_later_writer_removes_what_a_killed_one_left(path: Path) -> None:
    other = path.with_name("other.npz")
    writers = [writer_of_half(path), writer_of_half(path), writer_of_half(other)]
    for process in writers:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    left = os.listdir(path.parent)
    assert len(left) == 3
    assert all(re.fullmatch(r"\.[0-9a-f]{8}\.[0-9a-f]{8}\.part\..*\.npz", n) for n in left)

    def write() -> list[str]:
        with writing(path) as stream, writing(path) as second:
            stream.write(b"whole")
            second.write(b"of another writer")
        assert path.read_bytes() == b"whole"
        return [name for name in os.listdir(path.parent) if name != path.name]

    assert len(write()) == 3  # their writers may still be at work
    two_hours_ago = time.time() - 2 * 3600
    for name in left:
        os.utime(path.parent / name, (two_hours_ago, two_hours_ago))
    (remaining,) = write()
    assert remaining.endswith(".part.other.npz")  # that of the other file, for its own writers


def test_a_file_that_is_not_finished_is_not_there(path: Path) -> None:
    path.write_text("old")

    def write_half() -> None:
        with writing(path, "w") as file:
            file.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == [path.name]


# ---- a full disk ---------------------------------------------------------------------------------

X = sp.csr_array(np.random.default_rng(0).poisson(3.0, (200, 100)))
TABLE = CountTable(X, [f"r{i}" for i in range(200)])


def save_model(path: Path) -> None:
    model = KLNMF(2, max_iter=1, tol=1e9, n_threads=1).fit(X[:20])
    model.save(path, sample_names=["name" * 100] * 200)


def save_report(path: Path) -> None:
    model = KLNMF(2, max_iter=1, tol=1e9, n_threads=1)
    W = model.fit_transform(X[:20])
    write_report(path, model, W)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "model.klnmf": save_model,
    "page.html": save_report,
    "header.json": lambda path: write_json(path, {"names": ["x" * 10_000]}),
    **{
        f"counts.{ending}": lambda path: write_counts(TABLE, path)
        for ending in ("npz", "mtx", "mtx.gz", "csv", "tsv.gz", "parquet")
    },
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_names_the_file(name: str, tmp_path: Path) -> None:
    """A limit on the size of files is as good as a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            WRITERS[name](tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(tmp_path / name)
    assert caught.value.strerror == os.strerror(errno.EFBIG)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_while_a_matrix_is_prepared(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            prepare(TABLE, tmp_path / "counts")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(tmp_path / "counts.partial")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_what_is_not_a_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="pipe is a folder or a device"), writing(pipe):
        pass
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize("ending", [".npz", ".mtx.gz", ".parquet", ".klnmf"])
def test_the_longest_name_that_a_file_can_have(ending: str, tmp_path: Path) -> None:
    longest = 255 - len(ending)
    names = [letter * longest + ending for letter in "ab"] + ["ä" * (longest // 2) + ending]
    for name in names:
        if ending == ".klnmf":
            save_model(tmp_path / name)
        else:
            write_counts(CountTable(X), tmp_path / name)
            assert read_counts(tmp_path / name).X.shape == X.shape
    assert sorted(os.listdir(tmp_path)) == sorted(names)


def test_links_that_lead_round_in_a_circle(tmp_path: Path) -> None:
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    first.symlink_to(second)
    second.symlink_to(first)
    with pytest.raises(OSError, match=r"a\.npz is a link that leads back to itself"):
        write_counts(TABLE, first)
    assert first.is_symlink()
