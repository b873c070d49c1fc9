"""Single-cell counts: molecules of each gene in each cell."""

import shutil
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

import numpy as np
from sklearn.utils import Bunch

from klnmf.datasets.files import RemoteFile
from klnmf.datasets.loading import DataSet, Folder, damaged, described, load, shared_docs
from klnmf.readers import FORMATS, CountTable

PBMC3K = RemoteFile(
    "pbmc3k_filtered_gene_bc_matrices.tar.gz",
    "https://cf.10xgenomics.com/samples/cell-exp/1.1.0/pbmc3k/pbmc3k_filtered_gene_bc_matrices.tar.gz",
)
CELLS_PER_GENE = 3


@shared_docs
def fetch_pbmc3k(*, data_home: Folder = None, download_if_missing: bool = True) -> Bunch:
    """10x Genomics PBMC3k: 2700 blood cells of a healthy donor × 13,714 genes.

    Counts are numbers of molecules (UMI). Genes that fewer than 3 cells have are left out.

    10x Genomics gives no cell types. There are labels only if you put ``pbmc3k.labels.txt`` beside
    ``pbmc3k.npz``.
    """
    data_set = DataSet("pbmc3k", described(fetch_pbmc3k), (2_700, 13_714), 2_282_976)
    return load(data_set, [PBMC3K], read_10x_archive, data_home, download_if_missing)


def read_10x_archive(path: Path) -> CountTable:
    """Read a packed 10x folder as cells × genes."""
    names = ("matrix.mtx", "barcodes.tsv", "genes.tsv")
    with damaged(path, "a packed 10x folder"), TemporaryDirectory() as folder:
        with tarfile.open(path) as tar:
            members = {Path(m.name).name: m for m in tar.getmembers() if m.isfile()}
            for name in names:
                with Path(folder, name).open("wb") as file:
                    shutil.copyfileobj(cast("IO[bytes]", tar.extractfile(members[name])), file)
        table = FORMATS["10x"].read(Path(folder))
    kept = np.bincount(table.X.indices, minlength=table.shape[1]) >= CELLS_PER_GENE
    return CountTable(table.X[:, kept], None, table.column_names[kept])
