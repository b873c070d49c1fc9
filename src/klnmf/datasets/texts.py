"""Text data sets: words counted in documents."""

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from sklearn.utils import Bunch

from klnmf.datasets.files import RemoteFile
from klnmf.datasets.loading import DataSet, Folder, damaged, described, load, shared_docs
from klnmf.readers import FORMATS, CountTable
from klnmf.readers.entries import EntryFile
from klnmf.readers.streams import collected
from klnmf.topics.checks import checked_choice

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
    *("alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware"),
    *("comp.sys.mac.hardware", "comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles"),
    *("rec.sport.baseball", "rec.sport.hockey", "sci.crypt", "sci.electronics", "sci.med"),
    *("sci.space", "soc.religion.christian", "talk.politics.guns", "talk.politics.mideast"),
    *("talk.politics.misc", "talk.religion.misc"),
)


@shared_docs
def fetch_reuters21578(
    *, data_home: Folder = None, download_if_missing: bool = True, tf_idf: bool = False
) -> Bunch:
    """Reuters-21578, ModApte version: 8293 stories × 18,933 words, 65 categories.

    Stories with several categories are left out. Counts from Deng Cai's text data in MATLAB format.
    """
    data_set = DataSet("reuters21578", described(fetch_reuters21578), (8_293, 18_933), 389_455)
    return load(data_set, [REUTERS], _read_mat, data_home, download_if_missing, tf_idf)


@shared_docs
def fetch_tdt2(
    *, data_home: Folder = None, download_if_missing: bool = True, tf_idf: bool = False
) -> Bunch:
    """NIST Topic Detection and Tracking: 9394 documents of 1998 × 36,771 words, 30 categories.

    The 30 largest categories. 678 of the words do not occur. Counts from Deng Cai's text data in
    MATLAB format.
    """
    data_set = DataSet("tdt2_top30", described(fetch_tdt2), (9_394, 36_771), 1_224_135)
    return load(data_set, [TDT2], _read_mat, data_home, download_if_missing, tf_idf)


@shared_docs
def fetch_rcv1_4class(
    *, data_home: Folder = None, download_if_missing: bool = True, tf_idf: bool = False
) -> Bunch:
    """Reuters RCV1, four categories (C15, ECAT, GCAT, MCAT): 9625 documents × 29,992 words.

    From Deng Cai's text data in MATLAB format.
    """
    data_set = DataSet("rcv1_4class", described(fetch_rcv1_4class), (9_625, 29_992), 730_879)
    return load(data_set, [RCV1], _read_mat, data_home, download_if_missing, tf_idf)


@shared_docs
def fetch_20newsgroups(
    *, data_home: Folder = None, download_if_missing: bool = True, tf_idf: bool = False
) -> Bunch:
    """20 Newsgroups, sorted by date: posts × words, training and test part together.

    Duplicates and some headers are removed, stop words are kept. Counts by Jason Rennie.
    """
    data_set = DataSet("20newsgroups_qwone", described(fetch_20newsgroups))
    return load(data_set, NEWSGROUPS, _read_newsgroups, data_home, download_if_missing, tf_idf)


@shared_docs
def fetch_uci_bag_of_words(
    name: str, *, data_home: Folder = None, download_if_missing: bool = True, tf_idf: bool = False
) -> Bunch:
    """One of the five bags of words of the UCI repository: documents × words, without labels.

    Stop words and rare words are left out.

    Parameters
    ----------
    name : {"kos", "nips", "enron", "nytimes", "pubmed"}
        Which one: 0.35, 0.75, 3.7, 70 and 483 million nonzeros.
    """
    checked_choice(name, "name", sorted(UCI_SIZES))
    names = f"docword.{name}.txt.gz", f"vocab.{name}.txt"
    files = [RemoteFile(file, f"{_UCI}/{file}") for file in names]
    n, m, nnz = UCI_SIZES[name]
    data_set = DataSet(f"uci_{name}", f"{name}: {described(fetch_uci_bag_of_words)}", (n, m), nnz)
    return load(data_set, files, _read_docword, data_home, download_if_missing, tf_idf)


# ---- files of the publishers ---------------------------------------------------------------------


def _read_docword(path: Path, words: Path) -> CountTable:
    with damaged(path, f"the docword file of the words in {words}"):
        return FORMATS["uci"].read(path, column_names=words)


def _read_mat(path: Path) -> CountTable:
    """MATLAB file with the matrix ``fea`` (samples × features) and the labels ``gnd``."""
    with damaged(path, "a MATLAB file with the variables fea and gnd"):
        content = scipy.io.loadmat(path, variable_names=["fea", "gnd"])
        return CountTable(content["fea"], labels=content["gnd"].ravel().astype(np.int64))


def _read_newsgroups(archive: Path, vocabulary: Path) -> CountTable:
    """``train`` and ``test`` one below the other: lines of document, word, count, from 1 on."""
    what = f"Jason Rennie's archive of 20 Newsgroups with the words in {vocabulary.name}"
    with damaged(archive, what), tarfile.open(archive) as tar:
        words = vocabulary.read_text(encoding="utf-8").split()
        parts, labels = zip(
            *(_read_part(tar, p, len(words)) for p in ("train", "test")), strict=True
        )
        return CountTable(sp.vstack(parts), None, words, np.concatenate(labels))


def _read_part(tar: tarfile.TarFile, part: str, n_words: int) -> tuple[Any, Any]:
    """Read one of the two parts: its counts, and the name of the group of each document."""
    groups = np.array(_member(tar, f"{part}.label").read().split(), dtype=np.int64)
    if groups.min() < 1 or groups.max() > len(GROUPS):
        raise ValueError(f"groups must be from 1 to {len(GROUPS)}")
    lines = EntryFile(Path(part), 0, (len(groups), n_words), None, width=3, is_whole=True)
    blocks = lines.parsed(_member(tar, f"{part}.data"))
    return collected(blocks, lambda: lines.shape), np.array(GROUPS)[groups - 1]


def _member(tar: tarfile.TarFile, name: str) -> Any:
    """Stream of the file of that name, in whatever folder; nothing is unpacked to the disk."""
    for member in tar.getmembers():
        if Path(member.name).name == name and member.isfile():
            return tar.extractfile(member)
    raise KeyError(name)
