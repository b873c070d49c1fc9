"""Downloads from a web server on this machine: once, resumed, checked, and the messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from klnmf.datasets import files
from klnmf.datasets.files import RemoteFile, obtain
from local_server import offer

pytest.importorskip("pooch", reason="downloading is an extra: klnmf[datasets]")
pytestmark = pytest.mark.usefixtures("no_folders_of_the_user")

CONTENT = np.random.default_rng(0).bytes(500_000)


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
    with pytest.raises(OSError, match=r"a\.bin could not be downloaded.*the next call continues"):
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
    assert [header for _, header in server.requests] == ["bytes=500000-"]


def test_a_part_of_another_file_is_not_used(server: Any, tmp_path: Path) -> None:
    file = offer(server, "a.bin", CONTENT, checksum=False)
    (tmp_path / "a.bin.part").write_bytes(CONTENT + b"more")
    assert obtain(file, tmp_path, True).read_bytes() == CONTENT


def test_a_bad_address_is_not_taken_for_a_wrong_checksum(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="could not be downloaded"):
        obtain(RemoteFile("a.bin", "http://", "sha256:00"), tmp_path, True)


def test_a_wrong_checksum_keeps_nothing(server: Any, tmp_path: Path) -> None:
    file = offer(server, "a.bin", CONTENT)
    server.content["a.bin"] = CONTENT[::-1]
    with pytest.raises(
        OSError, match=r"not have the expected checksum.*Nothing was kept.*Download http"
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
    with pytest.raises(OSError, match=r"Download http://127\.0\.0\.1:9/a\.bin") as caught:
        obtain(file, tmp_path, download)
    assert str(tmp_path) in str(caught.value)
    assert "KLNMF_DATA" in str(caught.value)


def test_a_file_that_is_not_on_the_server_says_so(server: Any, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"404.*Download http"):
        obtain(RemoteFile("b.bin", f"{server.url}/b.bin"), tmp_path, True)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".part"] == []


def test_without_pooch_files_at_hand_still_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLNMF_DATA", str(tmp_path))
    monkeypatch.setattr(files, "installed_version", lambda name: None)
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    (tmp_path / "a.bin").write_bytes(b"mine")
    assert obtain(RemoteFile("a.bin", "http://127.0.0.1:9/a.bin"), None, True).is_file()
    with pytest.raises(ImportError, match=r'pip install "klnmf\[datasets\]"'):
        obtain(RemoteFile("b.bin", "http://127.0.0.1:9/b.bin"), None, True)
