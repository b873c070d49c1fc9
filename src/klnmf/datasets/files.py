"""Where the files of a data set are: in a folder of the user's, in the cache, or on the network."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from klnmf.support.optional_packages import installed_version, require

DATA_VARIABLE = "KLNMF_DATA"
_CHUNK = 1 << 16  # bytes
_TIMEOUT = 30.0  # seconds


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
    """Return ``data_home``, else the folder KLNMF_DATA and the cache; downloads go to the last."""
    if data_home is not None:
        return [Path(os.path.expanduser(data_home))]
    named = os.environ.get(DATA_VARIABLE)
    folders = [Path(os.path.expanduser(named))] if named else []
    if not folders or installed_version("pooch"):
        folders.append(Path(_pooch().os_cache("klnmf")))
    return folders


def find(names: Sequence[str], folders: Sequence[Path]) -> Path | None:
    """First file of one of these names."""
    files = (folder / name for folder in folders for name in names)
    return next((file for file in files if file.is_file()), None)


def obtain(
    file: RemoteFile, data_home: str | os.PathLike[str] | None, download_if_missing: bool
) -> Path:
    """Find a file, packed or not, else download it, from where a download was cut off."""
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
            downloader=partial(_download, target / f"{file.name}.part"),
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


def _download(part: Path, url: str, output_file: str, pooch: Any) -> None:
    """Download a file for pooch, and go on with what an earlier try left in ``part``."""
    import requests

    done = part.stat().st_size if part.exists() else 0
    # Not compressed on the way: the part's length must be a place in the file.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            if response.headers.get("Content-Range") == f"bytes */{done}":
                os.replace(part, output_file)  # everything was there already
                return
            part.unlink()  # of another file: from the beginning
            _download(part, url, output_file, pooch)
            return
        response.raise_for_status()
        goes_on = response.status_code == requests.codes.partial_content
        # What the server says, if anything.
        expected = int(response.headers.get("Content-Length", 0)) + (done if goes_on else 0)
        with part.open("ab" if goes_on else "wb") as stream:
            for piece in response.iter_content(_CHUNK):
                stream.write(piece)
    arrived = part.stat().st_size
    if arrived < expected:
        raise OSError(f"the connection ended after {arrived:,} of {expected:,} bytes")
    os.replace(part, output_file)
