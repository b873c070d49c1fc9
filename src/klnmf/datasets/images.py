"""Images as counts: the brightness of each pixel."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import Bunch

from klnmf.datasets.files import RemoteFile
from klnmf.datasets.loading import DataSet, Folder, damaged, described, load, shared_docs
from klnmf.readers import CountTable
from klnmf.support.input_files import open_binary

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


@shared_docs
def fetch_mnist(*, data_home: Folder = None, download_if_missing: bool = True) -> Bunch:
    """MNIST, training part: 60,000 handwritten digits × 784 pixels.

    Brightness from 0 to 255; labels 0 to 9. Pixel k is row k // 28 and column k % 28 of an image.
    67 of the pixels are always 0.
    """
    data_set = DataSet("mnist_train", described(fetch_mnist), (60_000, 784), 8_994_156)
    return load(data_set, MNIST, _read_mnist, data_home, download_if_missing)


def _read_mnist(images: Path, labels: Path) -> CountTable:
    pixels = read_idx(images)
    return CountTable(pixels.reshape(len(pixels), -1), labels=read_idx(labels))


def read_idx(path: Path) -> npt.NDArray[Any]:
    """Array of an IDX file of bytes: 0, 0, 8, number of dimensions, sizes (big-endian), numbers."""
    with damaged(path, "an IDX file of bytes"), open_binary(path) as stream:
        content = stream.read()
        if content[:3] != b"\x00\x00\x08" or len(content) < 4:
            raise ValueError(f"it begins with {content[:4]!r}")
        sizes = np.frombuffer(content, ">u4", count=content[3], offset=4).astype(np.int64)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(sizes)
