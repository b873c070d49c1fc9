"""The matrices of the paper's evaluation, as far as they are in the data folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from benchmarks.common import load_matrix
from benchmarks.paper.published import PUBLISHED
from klnmf.data.validation import check_counts
from klnmf.datasets import load_bible

EMBEDDED = "bible"
TF_IDF = "-tfidf"
# The three text sets that the paper used with tf-idf weights.
TEXTS = ("reuters21578", "tdt2_top30", "rcv1_4class")
# 20 Newsgroups: train.data and test.data, one below the other, of
# http://qwone.com/~jason/20Newsgroups/20news-bydate-matlab.tgz. MNIST: the training images of
# https://storage.googleapis.com/cvdf-datasets/mnist. Reuters, TDT2 and RCV1: the
# .mat files of http://www.cad.zju.edu.cn/home/dengcai/Data/TextData.html. PBMC3k: 10x Genomics.
OTHERS = ("20newsgroups_qwone", "pbmc3k")
ALL_SETS = (*PUBLISHED, *OTHERS)
LABELS = {name: published.label for name, published in PUBLISHED.items()} | {
    "20newsgroups_qwone": "20 Newsgroups",
    "pbmc3k": "PBMC3k",
    EMBEDDED: "Bible",
}


def find_sets(folder: Path | None) -> tuple[list[str], list[str]]:
    """Names of the sets in the folder, also with tf-idf for texts, and of the missing ones."""
    if folder is None:
        raise SystemExit(
            "Set the data folder with --data DIR or the environment variable KLNMF_DATA."
        )
    there = [name for name in ALL_SETS if (Path(folder) / f"{name}.npz").exists()]
    if not there:
        wanted = ", ".join(f"{name}.npz" for name in ALL_SETS)
        raise SystemExit(f"{folder} has none of {wanted}.")
    names = [
        variant
        for name in there
        for variant in ([name, name + TF_IDF] if name in TEXTS else [name])
    ]
    return names, [name for name in ALL_SETS if name not in there]


def base_name(name: str) -> str:
    """Name of the set, whatever its weights."""
    return name.removesuffix(TF_IDF)


def label(name: str) -> str:
    """What a set is called in tables and figures."""
    return LABELS[base_name(name)] + (", tf-idf" if name.endswith(TF_IDF) else "")


def shape_of(name: str, folder: Path | None) -> tuple[int, int]:
    """Samples and features, without reading the matrix."""
    base = base_name(name)
    if base == EMBEDDED:
        n, m = load_bible().data.shape
        return n, m
    with np.load(Path(folder or ".") / f"{base}.npz") as file:
        n, m = (int(side) for side in file["shape"])
    return n, m


def load_set(name: str, folder: Path | None) -> sp.csr_array:
    """The matrix in float64, samples × features."""
    base = base_name(name)
    X = load_bible().data if base == EMBEDDED else load_matrix(folder, base, np.float64)
    if name.endswith(TF_IDF):
        X = tf_idf(X)
    return check_counts(sp.csr_array(X), dtype=np.float64)


def tf_idf(X: sp.csr_array) -> sp.csr_array:
    """(1 + log X_ij) log(n / d_j) with the d_j samples of feature j, rows scaled to length 1.

    This is the weighting of Deng Cai's text data, which the paper used.
    """
    weights = sp.csr_array(X, dtype=np.float64)
    with_feature = np.bincount(weights.indices, minlength=weights.shape[1])
    inverse = np.log(weights.shape[0] / np.maximum(with_feature, 1))
    weights.data = (1 + np.log(weights.data)) * inverse[weights.indices]
    weights.eliminate_zeros()
    return normalize(weights)
