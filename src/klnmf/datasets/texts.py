"""Text data sets: words counted in documents."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import scipy.io
import scipy.sparse as sp
from sklearn.utils import Bunch

from klnmf.datasets.files import RemoteFile, find, obtain, search_folders
from klnmf.datasets.named_npz import Folder, Source, Table, checked_csr, load
from klnmf.datasets.weighting import tf_idf as weigh
from klnmf.readers import entries

Array = npt.NDArray[Any]

_CAI = "http://www.cad.zju.edu.cn/home/dengcai/Data"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/bag-of-words"
_QWONE = "http://qwone.com/~jason/20Newsgroups"

REUTERS = RemoteFile("Reuters21578.mat", f"{_CAI}/Reuters21578/Reuters21578.mat")
TDT2 = RemoteFile("TDT2.mat", f"{_CAI}/TDT2/TDT2.mat")
RCV1 = RemoteFile("RCV1_4Class.mat", f"{_CAI}/RCV1/RCV1_4Class.mat")
NEWSGROUPS = (
    RemoteFile("20news-bydate-matlab.tgz", f"{_QWONE}/20news-bydate-matlab.tgz"),
    RemoteFile("20news-vocabulary.txt", f"{_QWONE}/vocabulary.txt"),
)

# Documents, words and nonzeros: the three lines that each file begins with.
UCI_SIZES = {
    "kos": (3_430, 6_906, 353_160),
    "nips": (1_500, 12_419, 746_316),
    "enron": (39_861, 28_102, 3_710_420),
    "nytimes": (300_000, 102_660, 69_679_427),
    "pubmed": (8_200_000, 141_043, 483_450_157),
}

GROUPS = (
    "alt.atheism",
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware",
    "comp.windows.x",
    "misc.forsale",
    "rec.autos",
    "rec.motorcycles",
    "rec.sport.baseball",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.electronics",
    "sci.med",
    "sci.space",
    "soc.religion.christian",
    "talk.politics.guns",
    "talk.politics.mideast",
    "talk.politics.misc",
    "talk.religion.misc",
)


def fetch_reuters21578(
    *, data_home: Folder = None, download_if_missing: bool = True, tf_idf: bool = False
) -> Bunch:
    """Reuters-21578, documents of a single category: 8293 × 18,933 counts, 65 categories.

    Parameters
    ----------
    data_home : path, default=None
        Folder that holds or gets the files. None is the folder that the variable KLNMF_DATA names,
        where it has them, else the cache of klnmf.
    download_if_missing : bool, default=True
        Whether to download what is not there.
    tf_idf : bool, default=False
        Return tf-idf weights (see :func:`tf_idf`) instead of counts.

    Returns
    -------
    sklearn.utils.Bunch
        data (CSR matrix), target, target_names, feature_names (None here), DESCR.
    """
    source = Source("reuters21578", _DESCRIPTIONS["reuters21578"], (8_293, 18_933), 389_455)
    return _from_cai(source, REUTERS, data_home, download_if_missing, tf_idf)


def fetch_tdt2(
    *, data_home: Folder = None, download_if_missing: bool = True, tf_idf: bool = False
) -> Bunch:
    """NIST TDT2, the 30 largest categories: 9394 × 36,771 counts.

    Parameters
    ----------
    data_home : path, default=None
        Folder that holds or gets the files. None is the folder that the variable KLNMF_DATA names,
        where it has them, else the cache of klnmf.
    download_if_missing : bool, default=True
        Whether to download what is not there.
    tf_idf : bool, default=False
        Return tf-idf weights (see :func:`tf_idf`) instead of counts.

    Returns
    -------
    sklearn.utils.Bunch
        data (CSR matrix), target, target_names, feature_names (None here), DESCR.
    """
    source = Source("tdt2_top30", _DESCRIPTIONS["tdt2_top30"], (9_394, 36_771), 1_224_135)
    return _from_cai(source, TDT2, data_home, download_if_missing, tf_idf)


def fetch_rcv1_4class(
    *, data_home: Folder = None, download_if_missing: bool = True, tf_idf: bool = False
) -> Bunch:
    """Four categories of Reuters RCV1: 9625 × 29,992.

    Parameters
    ----------
    data_home : path, default=None
        Folder that holds or gets the files. None is the folder that the variable KLNMF_DATA names,
        where it has them, else the cache of klnmf.
    download_if_missing : bool, default=True
        Whether to download what is not there.
    tf_idf : bool, default=False
        Return tf-idf weights (see :func:`tf_idf`) instead of counts.

    Returns
    -------
    sklearn.utils.Bunch
        data (CSR matrix), target, target_names, feature_names (None here), DESCR.
    """
    source = Source("rcv1_4class", _DESCRIPTIONS["rcv1_4class"], (9_625, 29_992), 730_879)
    return _from_cai(source, RCV1, data_home, download_if_missing, tf_idf)


def fetch_20newsgroups(
    *, data_home: Folder = None, download_if_missing: bool = True, tf_idf: bool = False
) -> Bunch:
    """20 Newsgroups, "bydate", training and test part together, with their words.

    Parameters
    ----------
    data_home : path, default=None
        Folder that holds or gets the files. None is the folder that the variable KLNMF_DATA names,
        where it has them, else the cache of klnmf.
    download_if_missing : bool, default=True
        Whether to download what is not there.
    tf_idf : bool, default=False
        Return tf-idf weights (see :func:`tf_idf`) instead of counts.

    Returns
    -------
    sklearn.utils.Bunch
        data (CSR matrix), target, target_names, feature_names, DESCR.
    """

    def read() -> Table:
        archive, vocabulary = (obtain(f, data_home, download_if_missing) for f in NEWSGROUPS)
        return _read_newsgroups(archive, vocabulary)

    source = Source("20newsgroups_qwone", _DESCRIPTIONS["20newsgroups_qwone"])
    return _weighted(load(source, read, data_home), tf_idf)


def fetch_uci_bag_of_words(
    name: str, *, data_home: Folder = None, download_if_missing: bool = True, tf_idf: bool = False
) -> Bunch:
    """One of the five bags of words of the UCI repository, with their words.

    Parameters
    ----------
    name : {"kos", "nips", "enron", "nytimes", "pubmed"}
        Which one: 0.35, 0.75, 3.7, 70 and 483 million nonzeros.
    data_home : path, default=None
        Folder that holds or gets the files. None is the folder that the variable KLNMF_DATA names,
        where it has them, else the cache of klnmf.
    download_if_missing : bool, default=True
        Whether to download what is not there.
    tf_idf : bool, default=False
        Return tf-idf weights (see :func:`tf_idf`) instead of counts.

    Returns
    -------
    sklearn.utils.Bunch
        data (CSR matrix), target (None: there are no labels), target_names, feature_names, DESCR.
    """
    if name not in UCI_SIZES:
        raise ValueError(f"name must be one of {sorted(UCI_SIZES)}, got {name!r}.")
    docword, vocab = (
        RemoteFile(file, f"{_UCI}/{file}")
        for file in (f"docword.{name}.txt.gz", f"vocab.{name}.txt")
    )

    def read() -> Table:
        unpacked = find([docword.name.removesuffix(".gz")], search_folders(data_home))
        path = unpacked or obtain(docword, data_home, download_if_missing)
        words = obtain(vocab, data_home, download_if_missing).read_text(encoding="utf-8").split()
        return Table(read_docword(path), feature_names=np.array(words))

    n, m, nnz = UCI_SIZES[name]
    source = Source(f"uci_{name}", _DESCRIPTIONS["uci"].format(name=name), (n, m), nnz)
    return _weighted(load(source, read, data_home), tf_idf)


# ---- readers -------------------------------------------------------------------------------------


def _from_cai(
    source: Source, file: RemoteFile, data_home: Folder, download_if_missing: bool, tf_idf: bool
) -> Bunch:
    def read() -> Table:
        return _read_mat(obtain(file, data_home, download_if_missing))

    return _weighted(load(source, read, data_home), tf_idf)


def _weighted(bunch: Bunch, tf_idf: bool) -> Bunch:
    if tf_idf:
        bunch.data = weigh(bunch.data)
    return bunch


def _read_mat(path: Path) -> Table:
    """MATLAB file with the matrix ``fea`` (samples × features) and the labels ``gnd``."""
    try:
        content = scipy.io.loadmat(path, variable_names=["fea", "gnd"])
        counts, labels = checked_csr(content["fea"]), content["gnd"].ravel()
    except (ValueError, KeyError, TypeError, OSError, NotImplementedError) as error:
        raise OSError(
            f"{path} is not a MATLAB file with the variables fea and gnd: {error!r}. Remove it and "
            "download it again."
        ) from error
    return Table(counts, labels.astype(np.int64))


def _read_newsgroups(archive: Path, vocabulary: Path) -> Table:
    """``train`` and ``test`` one below the other: lines of document, word, count, from 1 on."""
    words = np.array(vocabulary.read_text(encoding="utf-8").split())
    parts, labels = [], []
    try:
        with tarfile.open(archive) as tar:
            for part in ("train", "test"):
                of_part = np.array(_member(tar, f"{part}.label").read().split(), dtype=np.int64)
                labels.append(of_part)
                triplets = np.concatenate(list(_number_blocks(_member(tar, f"{part}.data"), 3)))
                parts.append(_from_triplets(triplets, (len(of_part), len(words))))
        groups = np.concatenate(labels)
        if groups.min() < 1 or groups.max() > len(GROUPS):
            raise ValueError(f"groups must be from 1 to {len(GROUPS)}")
    except (tarfile.TarError, KeyError, ValueError, EOFError, zlib.error) as error:
        raise OSError(
            f"{archive} is not Jason Rennie's archive of 20 Newsgroups, or {vocabulary.name} does "
            f"not belong to it: {error!r}. Remove both and download them again."
        ) from error
    counts = checked_csr(sp.vstack(parts, format="csr"))
    return Table(counts, np.array(GROUPS)[groups - 1], words)


def _member(tar: tarfile.TarFile, name: str) -> Any:
    """Stream of the file of that name, in whatever folder; nothing is unpacked to the disk."""
    for member in tar.getmembers():
        if Path(member.name).name == name and member.isfile():
            return tar.extractfile(member)
    raise KeyError(name)


def read_docword(path: Path) -> sp.csr_array:
    """Read UCI's ``docword`` file, packed or not."""
    try:
        return checked_csr(entries.read_docword(path))
    except ValueError as error:
        problem = str(error).rstrip(".")
        raise OSError(f"{path} is damaged or cut off. {problem}. Download it again.") from error


def _number_blocks(stream: BinaryIO | Any, width: int, size: int = 1 << 24) -> Iterator[Array]:
    """Lines of ``width`` whole numbers, a block of them at a time."""
    rest = b""
    while True:
        piece = stream.read(size)
        text = rest + piece
        cut = len(text) if not piece else text.rfind(b"\n") + 1
        block, rest = text[:cut], text[cut:]
        if block.strip():
            numbers = np.array(block.split(), dtype=np.int64)
            if len(numbers) % width:
                raise ValueError(f"a line does not have {width} numbers, near {block[-60:]!r}")
            yield numbers.reshape(-1, width)
        if not piece:
            return


def _from_triplets(triplets: Array, shape: tuple[int, int]) -> sp.csr_array:
    rows, columns, values = triplets.T
    for numbers, largest, what in ((rows, shape[0], "document"), (columns, shape[1], "word")):
        if len(numbers) and (numbers.min() < 1 or numbers.max() > largest):
            raise ValueError(f"{what} numbers must be from 1 to {largest:,}")
    return sp.csr_array(sp.coo_array((values, (rows - 1, columns - 1)), shape=shape))


_DESCRIPTIONS = {
    "reuters21578": """\
Reuters-21578, ModApte version
------------------------------
8293 newswire stories (samples) x 18,933 words (features), 389,455 nonzeros; 65 categories. Stories
with several categories are left out. Counts from Deng Cai's text data in MATLAB format.
""",
    "tdt2_top30": """\
NIST Topic Detection and Tracking corpus, the 30 largest categories
-------------------------------------------------------------------
9394 documents of 1998 (samples) x 36,771 words (features, 678 of them empty), 1,224,135 nonzeros;
30 categories. Counts from Deng Cai's text data in MATLAB format.
""",
    "rcv1_4class": """\
Reuters RCV1, four categories (C15, ECAT, GCAT, MCAT)
-----------------------------------------------------
9625 documents (samples) x 29,992 words (features), 730,879 nonzeros. From Deng Cai's text data in
MATLAB format.
""",
    "20newsgroups_qwone": """\
20 Newsgroups, sorted by date, duplicates and some headers removed
------------------------------------------------------------------
Posts of 20 newsgroups (samples) x words (features), training and test part together; stop words are
kept. Counts by Jason Rennie.
""",
    "uci": """\
UCI bag of words: {name}
------------------------
Documents (samples) x words (features), stop words and rare words left out. No labels.
""",
}
