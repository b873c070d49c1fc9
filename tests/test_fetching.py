"""Data sets by name, from a web server on this machine and from files: nothing leaves it."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from klnmf import datasets
from klnmf.datasets import images, loading, single_cells, texts
from klnmf.readers import CountTable, entries, write_counts
from local_server import offer

pytest.importorskip("pooch", reason="downloading is an extra: klnmf[datasets]")
pytestmark = pytest.mark.usefixtures("no_folders_of_the_user")

GENERATOR = np.random.default_rng(0)
COUNTS = sp.csr_array(GENERATOR.poisson(0.5, size=(12, 7)).astype(np.uint8))
LABELS = np.repeat([1, 2, 10], 4)


# ---- the data sets -------------------------------------------------------------------------------


def mat_file(**variables: Any) -> bytes:
    stream = io.BytesIO()
    scipy.io.savemat(stream, variables)
    return stream.getvalue()


def packed(**members: bytes) -> bytes:
    """A .tar.gz of files in a folder."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(f"folder/{name.replace('__', '.')}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def triplets(matrix: sp.csr_array) -> bytes:
    rows, columns = matrix.nonzero()
    lines = zip(rows + 1, columns + 1, matrix.data, strict=True)
    return "".join(f"{i} {j} {v}\n" for i, j, v in lines).encode()


def sized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every data set have the size of COUNTS."""
    full = loading.DataSet

    def small(name: str, description: str, shape: Any = None, nnz: Any = None) -> Any:
        return full(name, description, shape and COUNTS.shape, nnz and COUNTS.nnz)

    for module in (texts, images, single_cells):
        monkeypatch.setattr(module, "DataSet", small)


def check_bunch(bunch: Any, labels: bool = True, names: bool = False) -> None:
    np.testing.assert_array_equal(bunch.data.toarray(), COUNTS.toarray())
    assert bunch.data.format == "csr"
    assert bunch.DESCR
    if labels:
        np.testing.assert_array_equal(
            bunch.target_names[bunch.target].astype(str), LABELS.astype(str)
        )
    else:
        assert bunch.target is None
    assert (bunch.feature_names is not None) == names


@pytest.mark.parametrize(
    ("fetch", "attribute"),
    [
        (datasets.fetch_reuters21578, "REUTERS"),
        (datasets.fetch_tdt2, "TDT2"),
        (datasets.fetch_rcv1_4class, "RCV1"),
    ],
)
def test_matlab_files(
    fetch: Any, attribute: str, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sized(monkeypatch)
    content = mat_file(fea=sp.csc_matrix(COUNTS.astype(float)), gnd=LABELS[:, None].astype(float))
    monkeypatch.setattr(texts, attribute, offer(server, "x.mat", content))
    for _ in range(2):  # the second time from what was kept
        bunch = fetch(data_home=tmp_path)
        check_bunch(bunch)
        assert bunch.data.dtype == np.int32
        np.testing.assert_array_equal(bunch.target_names, [1, 2, 10])
        (tmp_path / "x.mat").unlink(missing_ok=True)
    assert len(server.requests) == 1
    weighted = fetch(data_home=tmp_path, tf_idf=True).data
    np.testing.assert_allclose(weighted.toarray(), datasets.tf_idf(COUNTS).toarray())


def test_newsgroups(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.repeat([1, 3, 20], 4)
    split = {"train": slice(0, 8), "test": slice(8, 12)}
    members = {
        f"{name}__data": triplets(sp.csr_array(COUNTS[part])) for name, part in split.items()
    }
    members |= {
        f"{name}__label": "\n".join(map(str, labels[part])).encode() for name, part in split.items()
    }
    words = [f"word{k}" for k in range(7)]
    archive = offer(server, "news.tgz", packed(**members))
    monkeypatch.setattr(
        texts, "NEWSGROUPS", (archive, offer(server, "vocabulary.txt", "\n".join(words).encode()))
    )
    bunch = datasets.fetch_20newsgroups(data_home=tmp_path)
    np.testing.assert_array_equal(bunch.data.toarray(), COUNTS.toarray())
    assert list(bunch.feature_names) == words
    assert list(bunch.target_names) == [
        "alt.atheism", "comp.os.ms-windows.misc", "talk.religion.misc"
    ]  # fmt: skip
    np.testing.assert_array_equal(bunch.target, np.repeat([0, 1, 2], 4))


def docword(matrix: sp.csr_array = COUNTS) -> bytes:
    return "{}\n{}\n{}\n".format(*matrix.shape, matrix.nnz).encode() + triplets(matrix)


def test_uci_bag_of_words(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sized(monkeypatch)
    monkeypatch.setattr(texts, "_UCI", server.url)
    offer(server, "docword.kos.txt.gz", gzip.compress(docword()))
    offer(server, "vocab.kos.txt", b"a\nb\nc\nd\ne\nf\ng\n")
    bunch = datasets.fetch_uci_bag_of_words("kos", data_home=tmp_path)
    check_bunch(bunch, labels=False, names=True)
    assert list(bunch.feature_names) == list("abcdefg")
    with pytest.raises(ValueError, match=r"name must be .*'kos'.*got 'bbc'"):
        datasets.fetch_uci_bag_of_words("bbc")


def fetch_docword(content: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The data set "kos" from this docword file, packed or not."""
    sized(monkeypatch)
    name = "docword.kos.txt.gz" if content[:2] == b"\x1f\x8b" else "docword.kos.txt"
    (folder / name).write_bytes(content)
    (folder / "vocab.kos.txt").write_text("a\nb\nc\nd\ne\nf\ng\n")
    return datasets.fetch_uci_bag_of_words("kos", data_home=folder, download_if_missing=False)


def test_a_docword_file_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_TEXT", 10)
    check_bunch(fetch_docword(docword(), tmp_path, monkeypatch), labels=False, names=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: b"12\nx\n3\n" + text,
            r"line 2: expected a whole number: W.*found 'x'",
        ),
        (lambda text: text.rsplit(b"\n", 2)[0] + b"\n", "it is cut off"),
        (lambda text: text + b"12 7 1\n", "announces 42 entries but has more"),
        (lambda text: text.replace(b"\n1 ", b"\n99 ", 1), "row 99 is not from 1 to 12"),
        (
            lambda text: text[: text.rfind(b" ", 0, -4)] + b" 99 1\n",
            "column 99 is not from 1 to 7",
        ),
    ],
    ids=["header", "cut off", "too long", "document", "word"],
)
def test_broken_docword_files(
    change: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match=message):
        fetch_docword(change(docword()), tmp_path, monkeypatch)


def test_packed_docword_files_that_end_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match=r"damaged or cut off.*Remove the file and download it again"):
        fetch_docword(gzip.compress(docword())[:-20], tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("count", "message"),
    [
        # 2³² + 1 would be 1 in 32 bits.
        (b"4294967297", "has the count 4294967297.0: it is damaged"),
        (b"-1", "counts are finite numbers of 0 or more"),
    ],
)
def test_counts_that_are_none_are_refused(
    count: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = docword()
    with pytest.raises((OSError, ValueError), match=message):
        fetch_docword(text[: text.rfind(b" ") + 1] + count + b"\n", tmp_path, monkeypatch)
    assert not (tmp_path / "uci_kos.npz").exists()


def test_archives_of_newsgroups_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("a b c")
    for content in (b"no archive", packed(train__data=b"1 1 1\n")):
        (tmp_path / "news.tgz").write_bytes(content)
        with pytest.raises(OSError, match="is not Jason Rennie's archive"):
            texts._read_newsgroups(tmp_path / "news.tgz", tmp_path / "words")


def idx(array: Any) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes())


def test_mnist(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sized(monkeypatch)
    offered = (
        offer(server, "images.gz", idx(COUNTS.toarray()[:, :, None])),
        offer(server, "labels.gz", idx(LABELS)),
    )
    monkeypatch.setattr(images, "MNIST", offered)
    check_bunch(datasets.fetch_mnist(data_home=tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", "it begins with b'no g'"),
        (idx(LABELS)[:-9], "ended before the end-of-stream"),
        (gzip.compress(b"PNG..."), "it begins with b'PNG.'"),
        (gzip.compress(bytes([0, 0, 8, 3, 0])), "buffer is smaller than requested"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9, 1])), "cannot reshape array of size 1"),
    ],
    # Not from the contents: packed ones hold the time, and every worker must find the same names.
    ids=["no gzip", "cut off", "no IDX", "cut in the header", "too few numbers"],
)
def test_broken_idx_files(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(OSError, match=f"is not an IDX file of bytes: .*{message}"):
        images.read_idx(tmp_path / "x.gz")


def test_pbmc3k(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    rare = sp.csr_array(np.eye(12, 1, dtype=np.uint8))  # a gene that one cell has
    scipy.io.mmwrite(stream, sp.coo_matrix(sp.hstack([COUNTS, rare]).T.astype(np.int32)))
    genes = "".join(f"ENSG{k}\tGENE{k}\n" for k in range(8)).encode()
    cells = "".join(f"CELL{k}\n" for k in range(12)).encode()
    archive = packed(matrix__mtx=stream.getvalue(), genes__tsv=genes, barcodes__tsv=cells)
    sized(monkeypatch)
    monkeypatch.setattr(single_cells, "PBMC3K", offer(server, "pbmc.tar.gz", archive))
    assert np.bincount(COUNTS.indices, minlength=7).min() >= 3
    bunch = datasets.fetch_pbmc3k(data_home=tmp_path)
    check_bunch(bunch, labels=False, names=True)
    assert list(bunch.feature_names) == [f"GENE{k}" for k in range(7)]


@pytest.mark.parametrize("read", [texts._read_mat, single_cells.read_10x_archive])
def test_files_of_another_kind(read: Any, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"<html>moved</html>" * 20)
    with pytest.raises(OSError, match=r"is not a .*download it again"):
        read(tmp_path / "x")


# ---- matrices that are kept ----------------------------------------------------------------------


def test_a_matrix_in_a_folder_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sized(monkeypatch)
    names = np.array([f"g{k}" for k in range(7)])
    write_counts(CountTable(COUNTS, None, names, LABELS), tmp_path / "pbmc3k.npz")
    (tmp_path / "pbmc3k.columns.txt").rename(tmp_path / "pbmc3k.vocab.txt")  # as good
    monkeypatch.setenv("KLNMF_DATA", str(tmp_path))
    bunch = datasets.fetch_pbmc3k(download_if_missing=False)
    check_bunch(bunch, names=True)
    assert list(bunch.feature_names) == list(names)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "pbmc3k.labels.txt", "pbmc3k.npz", "pbmc3k.vocab.txt"
    ]  # fmt: skip


def test_another_version_of_the_data_is_refused(tmp_path: Path) -> None:
    write_counts(CountTable(COUNTS), tmp_path / "tdt2_top30.npz")
    with pytest.raises(ValueError, match=r"12 × 7 with \d+ nonzeros; expected are 9,394 × 36,771"):
        datasets.fetch_tdt2(data_home=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("npz", b"nonsense", "not a matrix that scipy.sparse.save_npz wrote"),
        ("npz", b"", "not a matrix that scipy.sparse.save_npz wrote"),
        ("labels.txt", b"1\n2\n", "expected 12 names for the rows of tdt2_top30.npz, found 2"),
    ],
)
def test_broken_files_of_matrices_that_were_kept(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    write_counts(CountTable(COUNTS), tmp_path / "tdt2_top30.npz")
    (tmp_path / f"tdt2_top30.{name}").write_bytes(content)
    with pytest.raises((OSError, ValueError), match=message):
        datasets.fetch_tdt2(data_home=tmp_path)


def test_indices_out_of_place_are_found_before_anything_is_read_there(tmp_path: Path) -> None:
    broken = COUNTS.copy()
    broken.indices[3] = 1_000_000
    sp.save_npz(tmp_path / "tdt2_top30.npz", broken)
    with pytest.raises(OSError, match="the matrix is not a valid CSR matrix: indices holds"):
        datasets.fetch_tdt2(data_home=tmp_path)


def test_names_that_do_not_belong_to_the_matrix_are_refused(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sized(monkeypatch)
    monkeypatch.setattr(texts, "_UCI", server.url)
    offer(server, "docword.kos.txt.gz", gzip.compress(docword()))
    offer(server, "vocab.kos.txt", b"a\nb\n")
    with pytest.raises(OSError, match=r"expected 7 names for the columns of docword.*, found 2"):
        datasets.fetch_uci_bag_of_words("kos", data_home=tmp_path)
    assert not (tmp_path / "uci_kos.npz").exists()


# ---- tf-idf --------------------------------------------------------------------------------------


def test_tf_idf() -> None:
    X = np.array([[3, 0, 1], [1, 2, 1], [0, 0, 1]])
    expected = np.array([[1 + np.log(3), 0, 0], [1, 1 + np.log(2), 0], [0, 0, 0]])
    expected *= np.log(3 / np.array([2, 1, 3]))
    unscaled = datasets.tf_idf(X, normalise=False)
    np.testing.assert_allclose(unscaled.toarray(), expected)
    assert unscaled.nnz == 3
    scaled = datasets.tf_idf(sp.coo_matrix(X)).toarray()
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), [1, 1, 0])
    raw = datasets.tf_idf(X, log_counts=False, normalise=False).toarray()
    np.testing.assert_allclose(raw[0, 0], 3 * np.log(3 / 2))
    with pytest.raises(ValueError, match="cannot be negative; the smallest given is -1"):
        datasets.tf_idf([[-1.0, 2.0]])
