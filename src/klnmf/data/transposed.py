"""Names that show that rows and columns were exchanged: features in rows, or samples in columns."""

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from klnmf.signatures import standard_type

# Barcodes of cells, perhaps with the name of a sample: AAACATACAACCAC-1, donor2_AAACATACAACCAC.
# Longer sequences are features of their own, such as variants of a gene.
_BARCODE = re.compile(
    r"(?:.*[^A-Za-z])?(?:[ACGT]{8,32}-\d+|[ACGT]{12,32})(?:[^A-Za-z].*)?", re.DOTALL
)
_GENE_ID = re.compile(r"ENS[A-Z]*G\d{11}(?:\.\d+)?")
# Names that are looked at, and the shares of them that decide.
_LOOKED_AT, _NEARLY_ALL, _HARDLY_ANY = 2000, 0.9, 0.1
_SHOWN = 60  # characters of an example


class _Kind(NamedTuple):
    what: str
    is_one: Callable[[Any], bool]
    are_features: bool


_KINDS = (
    _Kind("mutation types", lambda name: standard_type(name) is not None, are_features=True),
    _Kind("ids of genes", lambda name: _is_like(_GENE_ID, name), are_features=True),
    _Kind("barcodes of cells", lambda name: _is_like(_BARCODE, name), are_features=False),
)


def misplaced_names(row_names: Any, column_names: Any) -> str | None:
    """Say which names are those of the other axis; None: there are no such names.

    >>> misplaced_names(["CD3E", "LYZ"], ["AAACATACAACCAC-1", "AAACATTGAGCTAC-1"])
    "its columns are barcodes of cells, such as 'AAACATACAACCAC-1'"
    >>> misplaced_names(["A[C>A]A", "A[C>A]C"], ["tumour 1", "tumour 2"])
    "its rows are mutation types, such as 'A[C>A]A'"
    """
    for kind in _KINDS:
        where, names, others = "rows", row_names, column_names
        if not kind.are_features:
            where, names, others = "columns", column_names, row_names
        if _share(names, kind) >= _NEARLY_ALL and _share(others, kind) <= _HARDLY_ANY:
            example = next(name for name in names if kind.is_one(name))
            return f"its {where} are {kind.what}, such as {str(example)[:_SHOWN]!r}"
    return None


def _share(names: Iterable[Any] | None, kind: _Kind) -> float:
    if names is None:
        return 0.0
    found = [kind.is_one(name) for name in islice(names, _LOOKED_AT)]
    return sum(found) / len(found) if len(found) > 1 else 0.0


def _is_like(pattern: re.Pattern[str], name: Any) -> bool:
    return isinstance(name, str) and pattern.fullmatch(name) is not None
