"""What 10x Genomics' Cell Ranger writes: a folder of three files, or one HDF5 file.

Both hold features × cells; what is returned is cells × features.
"""

from dataclasses import replace
from pathlib import Path

from klnmf.data.streams import CountStream, Outline, swapped
from klnmf.readers.entries import matrix_market
from klnmf.readers.feature_types import of_type
from klnmf.readers.format import Format
from klnmf.readers.hdf5 import compressed, stored_stream
from klnmf.readers.hdf5_items import Group, opened
from klnmf.support.descriptions import described
from klnmf.support.input_files import ReadError, check_number_of_names, text_lines
from klnmf.support.option_names import option

MATRIX_NAMES = ("matrix.mtx", "matrix.mtx.gz")


def matrices_in(folder: Path) -> list[Path]:
    """Files of a folder that are named as 10x names its matrix, with or without a prefix."""
    return sorted(file for file in folder.iterdir() if file.name.endswith(MATRIX_NAMES))


def companion(matrix: Path, kinds: tuple[str, ...]) -> Path | None:
    """First of ``PREFIXkind.tsv`` and ``PREFIXkind.tsv.gz`` that lies beside the matrix."""
    prefix = matrix.name.removesuffix(".gz").removesuffix("matrix.mtx")
    files = [matrix.with_name(f"{prefix}{kind}.tsv{gz}") for kind in kinds for gz in ("", ".gz")]
    return next((file for file in files if file.is_file()), None)


class TenX(Format):
    """Folder with matrix.mtx, barcodes.tsv and features.tsv (or genes.tsv), packed or not."""

    name = "10x"
    is_folder = None

    def matches(self, path: Path) -> bool:
        """Whether it is such a folder, or the matrix in one."""
        if path.is_dir():
            return bool(matrices_in(path))
        is_matrix = path.name.endswith(MATRIX_NAMES)
        return is_matrix and companion(path, ("features", "genes")) is not None

    def stream(
        self, path: Path, *, feature_names: str = "name", feature_type: str | None = None
    ) -> CountStream:
        """Read some lines at a time."""
        path = _matrix_of(path) if path.is_dir() else path
        barcode_file = _needed(path, "barcodes")
        feature_file = _needed(path, "features", "genes")
        file = matrix_market(path)
        barcodes = [fields[0] for fields in _fields(barcode_file)]
        features = _fields(feature_file)
        ids, names, types = (
            [fields[min(position, len(fields) - 1)] for fields in features] for position in range(3)
        )
        have_types = bool(features) and all(len(fields) >= 3 for fields in features)
        columns = {"id": ids, "name": names} | ({"type": types} if have_types else {})

        def outline() -> Outline:
            of_what = f"of {path.name} (features × cells)"
            check_number_of_names(barcode_file, len(barcodes), file.shape[1], f"columns {of_what}")
            check_number_of_names(feature_file, len(features), file.shape[0], f"rows {of_what}")
            return Outline(file.shape[::-1], {"row_names": barcodes})

        cells = CountStream(swapped(lambda limit: file.blocks()), outline)
        return _with_features(path, cells, columns, feature_names, feature_type)


class TenXH5(Format):
    """HDF5 file of Cell Ranger, of version 3 and later or of version 2 (one genome)."""

    name = "10x-h5"
    endings = (".h5",)

    def stream(
        self, path: Path, *, feature_names: str = "name", feature_type: str | None = None
    ) -> CountStream:
        """Read some cells at a time."""
        with opened(path) as file:
            group = _genome(file)
            if "features" in group:
                holder, kinds = group.group("features"), ("id", "name", "feature_type")
            else:
                holder, kinds = group, ("genes", "gene_names", "")
            columns = {
                kind: holder.array(key).strings()
                for kind, key in zip(("id", "name", "type"), kinds, strict=True)
                if key in holder
            }
            barcodes = group.array("barcodes").strings()
            n_features, n_cells = (int(n) for n in group.array("shape", (2,)).numbers("iu"))
            for what, names, size in (
                ("barcodes", barcodes, n_cells),
                *((f"{kind}s of features", names, n_features) for kind, names in columns.items()),
            ):
                if len(names) != size:
                    raise group.refuse(f"has {len(names):,} {what} where {size:,} are needed.")
            # Compressed columns of features × cells are compressed rows of cells × features.
            stored = compressed(group, "csr", (n_cells, n_features))
            cells = stored_stream(stored, {"row_names": barcodes})
        return _with_features(path, cells, columns, feature_names, feature_type)


def _matrix_of(folder: Path) -> Path:
    found = matrices_in(folder)
    if not found:
        raise ReadError(folder, "there is no matrix.mtx or matrix.mtx.gz in this folder.")
    if len(found) > 1:
        several = f"several matrices ({', '.join(file.name for file in found)})"
        raise ReadError(folder, f"it has {several}: pass the path of one of them.")
    return found[0]


def _genome(file: Group) -> Group:
    """Group of the one genome of a file."""
    items = {name: file.item(name) for name in file.names()}
    groups = {k: v for k, v in items.items() if isinstance(v, Group) and "barcodes" in v}
    if not groups:
        formats = f"{option('format', 'h5ad')} or {option('format', 'loom')}"
        problem = "no group has barcodes, as in the .h5 files of Cell Ranger."
        raise ReadError(file.path, f"{problem} If this is an AnnData or loom file, add {formats}.")
    if len(groups) > 1:
        found = f"{len(groups)} genomes ({', '.join(groups)})"
        raise ReadError(file.path, f"{found}; a file with one is expected.")
    return next(iter(groups.values()))


def _with_features(
    path: Path,
    cells: CountStream,
    columns: dict[str, list[str]],
    feature_names: str,
    feature_type: str | None,
) -> CountStream:
    """Stream of cells × features, of the features of one type, with their names."""
    if feature_names not in ("name", "id"):
        problem = f"must be 'name' or 'id'; got {described(feature_names)}."
        raise ValueError(f"{option('feature_names')} {problem}")
    ids = columns.get("id")
    about = {"column_names": columns.get(feature_names, ids), "column_ids": ids}

    def outline() -> Outline:
        shape, of_cells, dtype = cells.outline()
        return Outline(shape, of_cells | about, dtype)

    return of_type(path, replace(cells, outline=outline), columns.get("type"), feature_type)


def _needed(matrix: Path, *kinds: str) -> Path:
    file = companion(matrix, kinds)
    if file is None:
        names = " or ".join(f"{kind}.tsv(.gz)" for kind in kinds)
        raise ReadError(matrix, f"{names} should lie beside it and is not there.")
    return file


def _fields(path: Path) -> list[list[str]]:
    return [line.rstrip("\r\n").split("\t") for _, line in text_lines(path)]
