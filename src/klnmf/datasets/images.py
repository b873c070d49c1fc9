"""Images as counts: the brightness of each pixel."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import Bunch

from klnmf.datasets.files import RemoteFile, obtain
from klnmf.datasets.loading import DataSet, Folder, load, shared_docs
from klnmf.readers import CountTable

_MIRROR = "https://storage.googleapis.com/cvdf-datasets/mnist"
MNIST = (
    RemoteFile(
        "train-images-idx3-ubyte.gz",
        f"{_MIRROR}/train-images-idx3-ubyte.gz",
        "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    RemoteFile(
        "train-labels-idx1-ubyte.gz",
        f"{_MIRROR}/train-labels-idx1-ubyte.gz",
        "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
)
_DESCRIPTION = """\
MNIST, training part
--------------------
60,000 handwritten digits (samples) x 784 pixels (features, 67 of them always 0), 8,994,156
nonzeros. Brightness from 0 to 255; labels 0 to 9. Pixel k is row k // 28 and column k % 28.
"""


@shared_docs
def fetch_mnist(*, data_home: Folder = None, download_if_missing: bool = True) -> Bunch:
    """Return the 60,000 training images of MNIST, 28 × 28 pixels each, as a sparse matrix."""

    def read() -> CountTable:
        images, labels = (read_idx(obtain(f, data_home, download_if_missing)) for f in MNIST)
        return CountTable(images.reshape(len(images), -1), labels=labels)

    return load(DataSet("mnist_train", _DESCRIPTION, (60_000, 784), 8_994_156), read, data_home)


def read_idx(path: Path) -> npt.NDArray[Any]:
    """Array of an IDX file of bytes: 0, 0, 8, number of dimensions, sizes (big-endian), numbers."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise OSError(f"{path} is not a complete gzip file: {error}. Download it again.") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise OSError(f"{path} is not an IDX file of bytes: it begins with {content[:4]!r}.")
    if len(content) < 4 + 4 * content[3]:
        raise OSError(f"{path} ends within its header.")
    sizes = np.frombuffer(content, ">u4", count=content[3], offset=4).astype(np.int64)
    numbers = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    if len(numbers) != sizes.prod():
        raise OSError(
            f"{path} holds {len(numbers):,} numbers where {sizes.prod():,} are announced."
        )
    return numbers.reshape(sizes)
