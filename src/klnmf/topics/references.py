"""Components beside those of a table of known ones, such as published signatures or programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from klnmf.signatures import samples_by_types, standard_types
from klnmf.support.array_types import FloatArray
from klnmf.support.optional_packages import require
from klnmf.support.result_tables import Column, ResultTable, ShownAsTable
from klnmf.topics.checks import IndexArray, Names, checked_components, checked_names, dense
from klnmf.topics.matching import component_similarity

_MOST_TERMS = 3  # of a combination
_LEAST_GAIN = 0.01  # of cosine similarity, for another term


@dataclass(frozen=True, eq=False, repr=False)
class ReferenceMatch(ShownAsTable):
    """Components and what they resemble in a table of known ones. It prints as a table.

    Attributes
    ----------
    similarity : ndarray of shape (n_components, n_reference)
        Cosine similarity of every component with every known one.
    nearest, second : ndarray of int, shape (n_components,)
        The most and the second most similar known component; -1 if there is no second.
    combinations : list of dict
        For each component the known ones, by number, that add up to it, and their shares.
    combination_similarity : ndarray of shape (n_components,)
        Cosine similarity of each component with its combination.
    component_names, reference_names : list of str
        Names of the rows of both tables.
    """

    similarity: FloatArray
    nearest: IndexArray
    second: IndexArray
    combinations: list[dict[int, float]]
    combination_similarity: FloatArray
    component_names: list[str]
    reference_names: list[str]

    def to_frame(self) -> Any:
        """Return the table as a DataFrame (extra ``dataframes``).

        Returns
        -------
        pandas.DataFrame
            One row for each component, with the columns component, nearest, cosine, second,
            second_cosine, combination and combination_cosine.
        """
        return require("pandas", "A DataFrame", "dataframes").DataFrame(self._columns())

    def _shown(self) -> ResultTable:
        columns = []
        for name, cells in self._columns().items():
            is_text = not isinstance(cells[0], float)
            texts = cells if is_text else [f"{cell:.3f}" for cell in cells]
            columns.append(Column(name.replace("_", " "), texts, is_text))
        return ResultTable(columns)

    def _columns(self) -> dict[str, list[Any]]:
        rows = np.arange(len(self.nearest))
        has_second = self.second >= 0
        second_cosine = np.where(has_second, self.similarity[rows, self.second], np.nan)
        return {
            "component": self.component_names,
            "nearest": [self.reference_names[k] for k in self.nearest],
            "cosine": self.similarity[rows, self.nearest].tolist(),
            "second": [self.reference_names[k] if k >= 0 else "" for k in self.second],
            "second_cosine": second_cosine.tolist(),
            "combination": [self._in_words(parts) for parts in self.combinations],
            "combination_cosine": self.combination_similarity.tolist(),
        }

    def _in_words(self, parts: dict[int, float]) -> str:
        return " + ".join(f"{share:.0%} {self.reference_names[k]}" for k, share in parts.items())


def match_reference(
    components: Any,
    reference: Any,
    feature_names: Names | None = None,
    *,
    component_names: Names | None = None,
) -> ReferenceMatch:
    """Find the known components that each component resembles, alone and combined.

    Features are matched by name. Unlike in `match_components`, several components may resemble the
    same known one. A combination begins with the nearest one, and the known component that raises
    the cosine similarity most is added as long as it gains at least 0.01, up to three; its shares
    are those of the nearest nonnegative combination. Shares that become 0 are left out.

    Parameters
    ----------
    components : array-like, sparse matrix or DataFrame of shape (n_components, n_features)
        Components, such as ``components_`` of a fitted model.
    reference : CountTable, DataFrame or array-like of shape (n_reference, n_features)
        Known components with their names: a file that `klnmf.readers.read_counts` has read, or a
        DataFrame. Tables with mutation types in rows are turned, and types may be written in any
        way that `klnmf.signatures.samples_by_types` knows.
    feature_names : sequence of str, optional
        Names of the features of ``components``. Required if the reference has names.
    component_names : sequence of str, optional
        Names of the components, if they are not those of a DataFrame.

    Returns
    -------
    ReferenceMatch

    Examples
    --------
    >>> import pandas as pd
    >>> from klnmf.topics import match_reference
    >>> known = pd.DataFrame(
    ...     [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], index=["A", "B"], columns=["x", "y", "z"]
    ... )
    >>> match_reference([[0.0, 3.0, 2.0], [2.0, 1.0, 1.0]], known, ["z", "y", "x"])
    component    nearest  cosine  second  second cosine  combination    combination cosine
    component 0  B        0.588   A       0.555          60% B + 40% A  0.809
    component 1  B        0.866   A       0.408          75% B + 25% A  0.957
    """
    ours, own_names, names = _table(components, component_names, feature_names, "component")
    known, known_names, known_features = _table(reference, None, None, "reference")
    ours, known = _on_shared_features(dense(ours), dense(known), names, known_features)
    similarity = component_similarity(ours, known)
    order = np.argsort(-similarity, axis=1, kind="stable")
    found = [_combination(row, known) for row in ours]
    return ReferenceMatch(
        similarity=similarity,
        nearest=order[:, 0],
        second=order[:, 1] if order.shape[1] > 1 else np.full(len(order), -1),
        combinations=[parts for parts, _ in found],
        combination_similarity=np.array([cosine for _, cosine in found]),
        component_names=own_names,
        reference_names=known_names,
    )


def _table(
    given: Any, names: Names | None, feature_names: Names | None, of_what: str
) -> tuple[Any, list[str], Names | None]:
    """Components, their names, and those of their features."""
    if hasattr(given, "columns") and hasattr(given, "index"):
        given = samples_by_types(given)
        own = (given.index, given.columns)
        given = given.to_numpy()
    elif hasattr(given, "row_names"):
        own = (given.row_names, given.column_names)
        given = given.X
    else:
        own = (None, None)
    matrix = checked_components(given)
    names = own[0] if names is None else names
    feature_names = own[1] if feature_names is None else feature_names
    feature_names = standard_types(feature_names) or feature_names
    return matrix, checked_names(names, matrix.shape[0], of_what), feature_names


def _on_shared_features(
    first: FloatArray, second: FloatArray, first_names: Names | None, second_names: Names | None
) -> tuple[FloatArray, FloatArray]:
    """Return components and known ones with the same features in the same order."""
    if (first_names is None) != (second_names is None):
        raise ValueError("Pass the feature names of both, components and reference, or of neither.")
    if first_names is None:
        return first, second
    names = checked_names(first_names, first.shape[1])
    other_names = checked_names(second_names, second.shape[1])
    for given, whose in ((names, "feature_names"), (other_names, "features of the reference")):
        name, times = Counter(given).most_common(1)[0]
        if times > 1:
            raise ValueError(f"{whose} must be distinct; {name!r} occurs more than once.")
    _, places, other_places = np.intersect1d(names, other_names, return_indices=True)
    if places.size == 0:
        raise ValueError("Components and reference have no feature name in common.")
    return first[:, places], second[:, other_places]


def _combination(row: FloatArray, known: FloatArray) -> tuple[dict[int, float], float]:
    """Greedy combination of known components, with their shares of its sum, and its cosine.

    The projection onto the cone of some components has the largest cosine of all their nonnegative
    combinations.
    """
    chosen: list[int] = []
    best, amounts = 0.0, np.zeros(0)
    length = np.linalg.norm(row)
    if not length > 0.0:
        return {}, 0.0
    target = row / length
    for _ in range(min(_MOST_TERMS, len(known))):
        trials = {}
        for k in (k for k in range(len(known)) if k not in chosen):
            x, distance = nnls(known[[*chosen, k]].T, target)
            # For a target of length 1, sin² = distance².
            trials[k] = float(np.sqrt(max(0.0, 1.0 - distance**2))), x
        k = max(trials, key=lambda k: (trials[k][0], -k))
        if trials[k][0] < best + (_LEAST_GAIN if chosen else 1e-12):
            break
        chosen.append(k)
        best, amounts = trials[k]
    sizes = amounts * known[chosen].sum(axis=1)
    shares = sizes / (sizes.sum() or 1.0)
    by_size = np.argsort(-shares, kind="stable")
    return {chosen[i]: float(shares[i]) for i in by_size if shares[i] > 0.0}, best
