"""Data sets by name, from a web server on this machine and from files: nothing leaves it."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from klnmf import datasets
from klnmf.datasets import files, images, prepared, single_cells, texts
from klnmf.datasets.files import RemoteFile, obtain

pytest.importorskip("pooch", reason="downloading is an extra: klnmf[datasets]")

GENERATOR = np.random.default_rng(0)
COUNTS = sp.csr_array(GENERATOR.poisson(0.5, size=(12, 7)).astype(np.uint8))
LABELS = np.repeat([1, 2, 10], 4)
CONTENT = GENERATOR.bytes(500_000)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ``server.content`` with ranges; cuts the first ``server.cuts`` answers short."""

    def do_GET(self) -> None:
        server: Any = self.server
        content = server.content.get(self.path.lstrip("/"))
        server.requests.append((self.path, self.headers.get("Range")))
        if content is None:
            self.send_error(404)
            return
        start = 0
        if server.ranges and "Range" in self.headers:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        if server.cuts:
            server.cuts -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    """A web server whose files are the entries of ``server.content``."""
    running: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.content, running.requests, running.cuts, running.ranges = {}, [], 0, True
    running.url = f"http://127.0.0.1:{running.server_address[1]}"
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture(autouse=True)
def no_folders_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KLNMF_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def offer(server: Any, name: str, content: bytes, checksum: bool = True) -> RemoteFile:
    """Put a file on the server."""
    server.content[name] = content
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    return RemoteFile(name, f"{server.url}/{name}", digest if checksum else None)


# ---- files ---------------------------------------------------------------------------------------


def test_a_file_is_downloaded_once(server: Any, tmp_path: Path) -> None:
    file = offer(server, "a.bin", CONTENT)
    for _ in range(2):
        assert obtain(file, tmp_path, True).read_bytes() == CONTENT
    assert len(server.requests) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("ranges", [True, False], ids=["with ranges", "without"])
def test_a_download_that_was_cut_off_goes_on(server: Any, tmp_path: Path, ranges: bool) -> None:
    file = offer(server, "a.bin", CONTENT)
    server.cuts, server.ranges = 1, ranges
    with pytest.raises(OSError, match=r"a\.bin could not be downloaded.*the next call goes on"):
        obtain(file, tmp_path, True)
    assert not (tmp_path / "a.bin").exists()
    assert obtain(file, tmp_path, True).read_bytes() == CONTENT
    asked_for = [header for _, header in server.requests]
    assert asked_for[0] is None
    arrived = int(asked_for[1].removeprefix("bytes=").removesuffix("-"))
    assert 150_000 < arrived <= 250_000  # of the half that was sent, but for the last piece


def test_a_complete_part_is_not_downloaded_again(server: Any, tmp_path: Path) -> None:
    file = offer(server, "a.bin", CONTENT)
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert obtain(file, tmp_path, True).read_bytes() == CONTENT


def test_a_wrong_checksum_keeps_nothing(server: Any, tmp_path: Path) -> None:
    file = offer(server, "a.bin", CONTENT)
    server.content["a.bin"] = CONTENT[::-1]
    with pytest.raises(
        OSError, match=r"another checksum than expected.*Nothing was kept.*Get http"
    ):
        obtain(file, tmp_path, True)
    assert list(tmp_path.iterdir()) == []
    server.content["a.bin"] = CONTENT
    assert obtain(file, tmp_path, True).read_bytes() == CONTENT


def test_a_file_of_the_users_is_used_as_it_is(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = offer(server, "a.bin", CONTENT)
    (tmp_path / "a.bin").write_bytes(b"mine")
    assert obtain(file, tmp_path, True).read_bytes() == b"mine"
    monkeypatch.setenv("KLNMF_DATA", str(tmp_path))
    assert obtain(file, None, True).read_bytes() == b"mine"
    assert server.requests == []


def test_downloads_go_to_the_cache_and_not_to_the_users_folder(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("KLNMF_DATA", str(own))
    path = obtain(offer(server, "a.bin", CONTENT), None, True)
    assert tmp_path / "cache" in path.parents
    assert list(own.iterdir()) == []


@pytest.mark.parametrize("download", [True, False], ids=["no network", "no download wanted"])
def test_a_missing_file_says_what_to_put_where(tmp_path: Path, download: bool) -> None:
    file = RemoteFile("a.bin", "http://127.0.0.1:9/a.bin")
    with pytest.raises(OSError, match=r"Get http://127\.0\.0\.1:9/a\.bin") as caught:
        obtain(file, tmp_path, download)
    assert str(tmp_path) in str(caught.value)
    assert "KLNMF_DATA" in str(caught.value)


def test_a_file_that_is_not_on_the_server_says_so(server: Any, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"404.*Get http"):
        obtain(RemoteFile("b.bin", f"{server.url}/b.bin"), tmp_path, True)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".part"] == []


def test_without_pooch_files_at_hand_still_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLNMF_DATA", str(tmp_path))
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    (tmp_path / "a.bin").write_bytes(b"mine")
    assert obtain(RemoteFile("a.bin", "http://127.0.0.1:9/a.bin"), None, True).is_file()
    with pytest.raises(ImportError, match=r'pip install "klnmf\[datasets\]"'):
        obtain(RemoteFile("b.bin", "http://127.0.0.1:9/b.bin"), None, True)


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
    full = prepared.Source

    def small(name: str, description: str, shape: Any = None, nnz: Any = None) -> Any:
        return full(name, description, shape and COUNTS.shape, nnz and COUNTS.nnz)

    for module in (texts, images, single_cells):
        monkeypatch.setattr(module, "Source", small)


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
    for _ in range(2):  # the second time from the prepared form
        bunch = fetch(data_home=tmp_path)
        check_bunch(bunch)
        assert bunch.data.dtype == np.uint8
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
    with pytest.raises(ValueError, match=r"name must be one of .*'kos'.*got 'bbc'"):
        datasets.fetch_uci_bag_of_words("bbc")


def test_a_docword_file_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "docword.x.txt"
    path.write_bytes(docword())
    blocks = texts._number_blocks
    monkeypatch.setattr(
        texts, "_number_blocks", lambda stream, width: blocks(stream, width, size=10)
    )
    np.testing.assert_array_equal(texts.read_docword(path).toarray(), COUNTS.toarray())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: b"12\nx\n3\n" + text, "three lines D, W, NNZ"),
        (lambda text: text.rsplit(b"\n", 2)[0] + b"\n", "it is cut off"),
        (lambda text: text + b"12 7 1\n", "more lines than that"),
        (lambda text: text.replace(b"\n1 ", b"\n99 ", 1), "document numbers must rise"),
        (
            lambda text: text[: text.rfind(b" ", 0, -4)] + b" 99 1\n",
            "word numbers must be from 1 to 7",
        ),
    ],
    ids=["header", "cut off", "too long", "document", "word"],
)
def test_broken_docword_files(change: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "docword.x.txt"
    path.write_bytes(change(docword()))
    with pytest.raises(OSError, match=message):
        texts.read_docword(path)


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
        (b"no gzip", "not a complete gzip file"),
        (idx(LABELS)[:-9], "not a complete gzip file"),
        (gzip.compress(b"PNG..."), "not an IDX file of bytes"),
        (
            gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9, 1])),
            "holds 1 numbers where 9 are announced",
        ),
    ],
)
def test_broken_idx_files(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(OSError, match=message):
        images.read_idx(tmp_path / "x.gz")


def test_pbmc3k(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    rare = sp.csr_array(np.eye(12, 1, dtype=np.uint8))  # a gene that one cell has
    scipy.io.mmwrite(stream, sp.coo_matrix(sp.hstack([COUNTS, rare]).T.astype(np.int32)))
    genes = "".join(f"ENSG{k}\tGENE{k}\n" for k in range(8)).encode()
    archive = packed(matrix__mtx=stream.getvalue(), genes__tsv=genes)
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


# ---- prepared matrices ---------------------------------------------------------------------------


def test_a_prepared_matrix_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sized(monkeypatch)
    names = np.array([f"g{k}" for k in range(7)])
    prepared.write_prepared(tmp_path, "pbmc3k", prepared.Table(COUNTS, LABELS, names))
    monkeypatch.setenv("KLNMF_DATA", str(tmp_path))
    bunch = datasets.fetch_pbmc3k(download_if_missing=False)
    check_bunch(bunch, names=True)
    assert list(bunch.feature_names) == list(names)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "pbmc3k.labels.txt", "pbmc3k.npz", "pbmc3k.vocab.txt"
    ]  # fmt: skip


def test_another_version_of_the_data_is_refused(tmp_path: Path) -> None:
    prepared.write_prepared(tmp_path, "tdt2_top30", prepared.Table(COUNTS))
    with pytest.raises(ValueError, match=r"12 × 7 with \d+ nonzeros; expected are 9,394 × 36,771"):
        datasets.fetch_tdt2(data_home=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("npz", b"nonsense", "not a matrix that scipy.sparse.save_npz wrote"),
        ("labels.txt", b"1\n2\n", r"labels\.txt has 2 lines; tdt2_top30\.npz needs 12"),
    ],
)
def test_broken_prepared_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    prepared.write_prepared(tmp_path, "tdt2_top30", prepared.Table(COUNTS))
    (tmp_path / f"tdt2_top30.{name}").write_bytes(content)
    with pytest.raises((OSError, ValueError), match=message):
        datasets.fetch_tdt2(data_home=tmp_path)


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
