"""Single-cell counts: molecules of each gene in each cell."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp
from sklearn.utils import Bunch

from klnmf.datasets.files import RemoteFile, obtain
from klnmf.datasets.named_npz import Folder, Source, Table, checked_csr, load

PBMC3K = RemoteFile(
    "pbmc3k_filtered_gene_bc_matrices.tar.gz",
    "https://cf.10xgenomics.com/samples/cell-exp/1.1.0/pbmc3k/pbmc3k_filtered_gene_bc_matrices.tar.gz",
)
CELLS_PER_GENE = 3
_DESCRIPTION = """\
10x Genomics PBMC3k
-------------------
2700 blood cells of a healthy donor (samples) x genes found in at least 3 of them (features):
numbers of molecules (UMI counts).
"""


def fetch_pbmc3k(*, data_home: Folder = None, download_if_missing: bool = True) -> Bunch:
    """UMI counts of 2700 blood cells; genes that fewer than 3 cells have are left out.

    Parameters
    ----------
    data_home : path, default=None
        Folder that holds or gets the files. None is the folder that the variable KLNMF_DATA names,
        where it has them, else the cache of klnmf.
    download_if_missing : bool, default=True
        Whether to download what is not there.

    Returns
    -------
    sklearn.utils.Bunch
        data (CSR matrix), feature_names (genes), DESCR; target and target_names where cell types
        lie beside the matrix, else None: 10x Genomics gives none.
    """

    def read() -> Table:
        return read_10x_archive(obtain(PBMC3K, data_home, download_if_missing))

    source = Source("pbmc3k", _DESCRIPTION, (2_700, 13_714), 2_282_976)
    return load(source, read, data_home)


def read_10x_archive(path: Path) -> Table:
    """``matrix.mtx`` (genes × cells) and ``genes.tsv`` of a packed 10x folder, as cells × genes."""
    try:
        with tarfile.open(path) as tar:
            members = {Path(m.name).name: m for m in tar.getmembers() if m.isfile()}
            matrix, genes = (tar.extractfile(members[n]) for n in ("matrix.mtx", "genes.tsv"))
            counts = checked_csr(scipy.io.mmread(matrix).T)
            lines = genes.read().decode().splitlines() if genes else []
        names = np.array([line.split("\t")[-1] for line in lines])
        if len(names) != counts.shape[1]:
            raise ValueError(f"{len(names):,} genes are named, and {counts.shape[1]:,} counted")
    except (tarfile.TarError, KeyError, ValueError, EOFError, zlib.error) as error:
        raise OSError(
            f"{path} is not a packed 10x folder with matrix.mtx and genes.tsv: {error!r}. Remove "
            "it and download it again."
        ) from error
    kept = np.bincount(counts.indices, minlength=counts.shape[1]) >= CELLS_PER_GENE
    return Table(sp.csr_array(counts[:, kept]), None, names[kept])
