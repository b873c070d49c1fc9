"""Where the files of a data set are: in a folder of the user's, in the cache, or on the network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klnmf.support.optional_packages import installed_version, require

DATA_VARIABLE = "KLNMF_DATA"


@dataclass(frozen=True)
class RemoteFile:
    """A file on the network.

    ``checksum`` is "sha256:..." or "md5:...", None where the publisher's file was not at hand: what
    it holds is then checked by its shape and its number of nonzeros alone.
    """

    name: str
    url: str
    checksum: str | None = None


def search_folders(data_home: str | os.PathLike[str] | None) -> list[Path]:
    """Where files are looked for: ``data_home``, else the folder KLNMF_DATA and the cache.

    The last one is where downloads go. Without pooch there is no cache, and no download.
    """
    if data_home is not None:
        return [Path(os.path.expanduser(data_home))]
    named = os.environ.get(DATA_VARIABLE)
    folders = [Path(os.path.expanduser(named))] if named else []
    if not folders or installed_version("pooch"):
        folders.append(Path(_pooch().os_cache("klnmf")))
    return folders


def find(names: Sequence[str], folders: Sequence[Path]) -> Path | None:
    """First file of one of these names."""
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    return None


def obtain(
    file: RemoteFile, data_home: str | os.PathLike[str] | None, download_if_missing: bool
) -> Path:
    """Path of a file: one that is there already, packed or not, is used; else it is downloaded.

    A download that was cut off is taken up where it stopped; a file under the final name is
    complete and has the right checksum. An OSError says which file is missing, and where to get it.
    """
    folders = search_folders(data_home)
    found = find([file.name.removesuffix(".gz"), file.name], folders)
    if found is not None:
        return found
    target = folders[-1]
    if not download_if_missing:
        raise OSError(
            f"{file.name} was not found and download_if_missing is False. {_hint(file, folders)}"
        )
    pooch = _pooch()
    try:
        path = pooch.retrieve(
            file.url,
            known_hash=file.checksum,
            fname=file.name,
            path=target,
            downloader=_ResumingDownload(target / f"{file.name}.part"),
        )
    except OSError as error:  # requests' errors are OSErrors
        raise OSError(
            f"{file.name} could not be downloaded: {error}. The part that arrived is kept, and the "
            f"next call continues from there. {_hint(file, folders)}"
        ) from error
    except ValueError as error:  # a wrong checksum; pooch keeps nothing under the final name
        raise OSError(
            f"{file.name} from {file.url} does not have the expected checksum: it was damaged on "
            "the way, or the publisher changed it. Nothing was kept. " + _hint(file, folders)
        ) from error
    return Path(path)


def _hint(file: RemoteFile, folders: Sequence[Path]) -> str:
    places = " or ".join(str(folder) for folder in folders)
    return (
        f"Download {file.url} on another machine and save it as {file.name} in {places} (or in "
        f"any folder that data_home or the environment variable {DATA_VARIABLE} names)."
    )


def _pooch() -> Any:
    return require("pooch", "Downloading data sets", extra="datasets")


class _ResumingDownload:
    """Downloader for pooch that goes on with what an earlier try left in a ``.part`` file."""

    def __init__(self, part: Path, chunk: int = 1 << 16, timeout: float = 30.0) -> None:
        self.part, self.chunk, self.timeout = part, chunk, timeout

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        import requests

        done = self.part.stat().st_size if self.part.exists() else 0
        # Not compressed on the way: the part's length must be a place in the file.
        headers = {"Accept-Encoding": "identity"}
        if done:
            headers["Range"] = f"bytes={done}-"
        with requests.get(url, headers=headers, stream=True, timeout=self.timeout) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                if response.headers.get("Content-Range") == f"bytes */{done}":
                    os.replace(self.part, output_file)  # everything was there already
                    return
                self.part.unlink()  # of another file: from the beginning
                self(url, output_file, pooch)
                return
            response.raise_for_status()
            goes_on = response.status_code == requests.codes.partial_content
            expected = _length(response, done if goes_on else 0)
            with self.part.open("ab" if goes_on else "wb") as stream:
                for piece in response.iter_content(self.chunk):
                    stream.write(piece)
        arrived = self.part.stat().st_size
        if expected is not None and arrived < expected:
            raise OSError(f"the connection ended after {arrived:,} of {expected:,} bytes")
        os.replace(self.part, output_file)


def _length(response: Any, done: int) -> int | None:
    """Bytes that the whole file should have, if the server says so."""
    length = response.headers.get("Content-Length")
    return None if length is None else done + int(length)
