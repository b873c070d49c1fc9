"""Mutational signatures: the types of mutations, tables of them, and other opportunities.

Types have the names of SigProfiler and COSMIC, such as ``A[C>T]G``: C became T between A and G.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from klnmf.support.array_types import FloatArray
from klnmf.support.descriptions import described

LOGGER = logging.getLogger("klnmf.readers")

SUBSTITUTIONS = ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G")
# The 96 types of single base substitutions, in the order of published plots.
SBS96 = tuple(f"{a}[{change}]{b}" for change in SUBSTITUTIONS for a in "ACGT" for b in "ACGT")

# Single bases with any context and strand (T:A[C>A]G), doublets (AC>TT), insertions and deletions.
_TYPE = re.compile(
    r"(?:[BNTU]:)?[ACGT]+\[(?:C>[AGT]|T>[ACG])\][ACGT]+|[ACGT]{2}>[ACGT]{2}|\d:(?:Del|Ins):[CTRM]:\d"
)

# The 96 types as others write them: ACA>AAA; C>A:ACA; ACA C>A; CA A.A.
_BEFORE, _AFTER, _NEW = "(?P<a>[ACGT])", "(?P<b>[ACGT])", "(?P<new>[ACGT])"
_OTHER_SPELLINGS = [
    re.compile(spelling)
    for spelling in (
        rf"{_BEFORE}(?P<old>[CT]){_AFTER}>(?P=a){_NEW}(?P=b)",
        rf"(?P<old>[CT])>{_NEW}[^A-Z]?{_BEFORE}(?P=old){_AFTER}",
        rf"{_BEFORE}(?P<old>[CT]){_AFTER}[^A-Z]?(?P=old)>{_NEW}",
        rf"(?P<old>[CT]){_NEW}[ :]{_BEFORE}\.{_AFTER}",
    )
]

_COMPLEMENT = str.maketrans("ACGT", "TGCA")
__all__ = ["SBS96", "ConvertedSignatures", "change_opportunities", "samples_by_types"]


def standard_type(name: Any) -> str | None:
    """Return the name that SigProfiler gives to a type of mutations; None: it is no such type.

    >>> standard_type("T:A[C>A]G"), standard_type("ACA>AAA"), standard_type(("C>A", "ACA"))
    ('T:A[C>A]G', 'A[C>A]A', 'A[C>A]A')
    >>> standard_type("tumour 1")
    """
    text = ":".join(map(str, name)) if isinstance(name, tuple) else str(name)
    if _TYPE.fullmatch(text):
        return text
    for spelling in _OTHER_SPELLINGS:
        found = spelling.fullmatch(text)
        if found is not None and found["old"] != found["new"]:
            return f"{found['a']}[{found['old']}>{found['new']}]{found['b']}"
    return None


def standard_types(names: Iterable[Any] | None) -> list[str] | None:
    """Return the names that SigProfiler gives to types; None: not all of these are types."""
    found = []
    for name in () if names is None else names:
        found.append(standard_type(name) or "")
        if not found[-1]:
            return None
    return found or None


def has_types_in_rows(row_names: Iterable[Any] | None, column_names: Iterable[Any] | None) -> bool:
    """Whether all rows and no columns have names of mutation types.

    >>> has_types_in_rows(["A[C>A]A", "A[C>A]C"], ["tumour 1"])
    True
    """
    columns = () if column_names is None else column_names
    return standard_types(row_names) is not None and not any(map(standard_type, columns))


def say_turned(whose: str) -> None:
    """Say that a table was turned."""
    LOGGER.warning("%s: its rows are mutation types, so rows and columns were exchanged", whose)


def samples_by_types(table: Any) -> Any:
    """Turn a DataFrame whose rows are mutation types, and sort the 96 types as in published plots.

    Rows become columns if all names of rows are types of mutations and no names of columns are. The
    logger ``klnmf.readers`` says so. `klnmf.readers.read_counts` turns files in the same way.
    Types that are written in another way (``ACA>AAA``, ``C>A:ACA``) get the names of `SBS96`.

    Parameters
    ----------
    table : pandas.DataFrame
        Counts or signatures, types × samples (SigProfiler, COSMIC) or samples × types. The types
        are the names of the rows, those of the columns, or in columns of their own, as in tables
        that begin with "Type" and "Trinucleotide".

    Returns
    -------
    pandas.DataFrame
        Samples × types, or signatures × types. If the columns are the 96 types of `SBS96`, they
        have its order. Otherwise their order is kept.

    Examples
    --------
    >>> import pandas as pd
    >>> from klnmf.signatures import SBS96, samples_by_types
    >>> counts = pd.DataFrame({"tumour 1": range(96), "tumour 2": range(96)}, index=SBS96[::-1])
    >>> turned = samples_by_types(counts)
    >>> turned.shape, turned.columns[0], turned.loc["tumour 1", "A[C>A]A"].item()
    ((2, 96), 'A[C>A]A', 95)
    """
    if not hasattr(table, "columns") or not hasattr(table, "index"):
        raise TypeError(f"table must be a pandas DataFrame; got {described(table)}.")
    table = _with_types_as_index(table)
    if has_types_in_rows(table.index, table.columns):
        say_turned("the DataFrame")
        table = table.T
    types = standard_types(table.columns)
    if types is not None and types != list(table.columns):
        table = table.set_axis(types, axis=1)
    is_standard = len(table.columns) == len(SBS96) and set(table.columns) == set(SBS96)
    return table[list(SBS96)] if is_standard else table


def _with_types_as_index(table: Any) -> Any:
    """Make columns that hold the types, in one name or in two, the index of a table."""
    texts = [
        name
        for j, name in enumerate(table.columns)
        if len(table) and isinstance(table.iloc[0, j], str)
    ]
    for chosen in [[name] for name in texts] + [[a, b] for a in texts for b in texts if a != b]:
        types = standard_types(table[chosen].itertuples(index=False, name=None))
        if types is not None:
            return table.drop(columns=texts).set_axis(types, axis=0)
    return table


class ConvertedSignatures(NamedTuple):
    """Signatures for other opportunities.

    Attributes
    ----------
    components : ndarray of shape (n_components, n_types)
        Each sums to 1.
    scale : ndarray of shape (n_components,)
        ``W * scale`` goes with them: the expected numbers of mutations under the new opportunities.
    """

    components: FloatArray
    scale: FloatArray


def change_opportunities(
    components: Any, types: Iterable[str], *, before: Any = None, after: Any = None
) -> ConvertedSignatures:
    """Convert signatures to other opportunities, such as those of an exome to those of a genome.

    A mutation of type j can happen at o_j places. If a signature s_k holds rates per place, the
    expected counts are Σ_k a_ik s_jk o_j. A fit without penalties finds h_jk = s_jk o_j, whatever
    the opportunities are: multiplying column j by o_j > 0 maps the nonnegative factors onto
    themselves, so both problems have the same optima. The conversion after the fit is therefore
    exact: h_jk becomes h_jk o'_j / o_j, and the sums of the components go into W.

    Parameters
    ----------
    components : array-like of shape (n_components, n_types)
        Nonnegative signatures.
    types : sequence of str
        Names of the types, in the order of the columns.
    before, after : mapping, pandas.Series or array-like, optional
        Opportunities of the data that the signatures belong to, and of those that they are wanted
        for. By type, such as ``A[C>T]G``; or by trinucleotide, such as ``ACG``, where a context and
        its reverse complement are added up; or an array in the order of the types. None: the same
        for all types, which gives rates per place.

    Returns
    -------
    ConvertedSignatures

    Examples
    --------
    >>> from klnmf.signatures import change_opportunities
    >>> types = ["A[C>T]A", "A[C>T]G"]
    >>> exome, genome = {"ACA": 3.0, "ACG": 2.0}, {"ACA": 300.0, "ACG": 50.0}
    >>> found = change_opportunities([[0.5, 0.5]], types, before=exome, after=genome)
    >>> found.components.tolist(), found.scale.tolist()
    ([[0.8, 0.2]], [62.5])
    """
    H, types = np.asarray(components, dtype=np.float64), list(types)
    if H.ndim != 2 or H.shape[1] != len(types) or not (np.isfinite(H) & (H >= 0.0)).all():
        raise ValueError(
            "components must be finite numbers of 0 or more, with one column for each of the "
            f"{len(types)} types; got an array of shape {H.shape}."
        )
    factor = _opportunities(after, types, "after") / _opportunities(before, types, "before")
    converted = H * factor
    scale = converted.sum(axis=1)
    return ConvertedSignatures(converted / np.where(scale > 0.0, scale, 1.0)[:, None], scale)


def _opportunities(given: Any, types: list[str], name: str) -> FloatArray:
    """One positive number per type."""
    if given is None:
        return np.ones(len(types))
    if hasattr(given, "items"):
        values = np.array([_opportunity(dict(given.items()), kind, name) for kind in types])
    else:
        values = np.asarray(given, dtype=np.float64)
    if values.shape != (len(types),) or not ((values > 0.0) & np.isfinite(values)).all():
        raise ValueError(f"{name} must hold a number above 0 for each of the {len(types)} types.")
    return values


def _opportunity(table: Mapping[str, float], kind: str, name: str) -> float:
    if kind in table:
        return float(table[kind])
    context = re.sub(r"\[(.)>.\]", r"\1", kind)
    both = (context, context.translate(_COMPLEMENT)[::-1])
    if not any(strand in table for strand in both):
        raise ValueError(f"{name} has neither the type {kind!r} nor the context {context!r}.")
    return float(sum(table.get(strand, 0.0) for strand in both))
