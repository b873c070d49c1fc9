"""Data sets by name: one comes with the package, well-known ones are downloaded once."""

from klnmf.datasets.bible import load_bible
from klnmf.datasets.images import fetch_mnist
from klnmf.datasets.single_cells import fetch_pbmc3k
from klnmf.datasets.texts import (
    fetch_20newsgroups,
    fetch_rcv1_4class,
    fetch_reuters21578,
    fetch_tdt2,
    fetch_uci_bag_of_words,
)
from klnmf.datasets.weighting import tf_idf

__all__ = [
    "fetch_20newsgroups",
    "fetch_mnist",
    "fetch_pbmc3k",
    "fetch_rcv1_4class",
    "fetch_reuters21578",
    "fetch_tdt2",
    "fetch_uci_bag_of_words",
    "load_bible",
    "tf_idf",
]
