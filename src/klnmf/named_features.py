"""New samples whose features are missing, more, or in another order: matched by name."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.validation import warn_caller
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.readers.table import AbsentFeatures, CountTable
from klnmf.support.option_names import option

Positions = npt.NDArray[np.intp]

_LOGGER = logging.getLogger(__name__)
_EXAMPLES = 5
# Share of the model's features below which data are more likely to have other names for them.
MIN_OVERLAP = 0.1


@dataclass(frozen=True)
class FeatureOverlap:
    """Which features of a model the new data have; as text, one line of counts.

    Attributes
    ----------
    model_positions : ndarray of int
        Positions of the common features among those of the model, rising.
    data_positions : ndarray of int
        Positions of the same features, in the same order, among the columns of the data.
    missing : tuple
        Features of the model that the data do not have.
    n_ignored : int
        Columns of the data that the model does not know.
    absent_features : {"unobserved", "zero"}
        What is known of the missing features: nothing, or that their counts are 0.

    Examples
    --------
    >>> from klnmf.named_features import match_features
    >>> overlap = match_features(["sea", "ship", "field"], ["field", "moon", "sea"])
    >>> print(overlap)
    2 of 3 features of the model found (66.7 %), 1 missing, 1 other ignored
    >>> overlap.missing
    ('ship',)
    """

    model_positions: Positions
    data_positions: Positions
    missing: tuple[Hashable, ...]
    n_ignored: int
    absent_features: AbsentFeatures = "unobserved"

    @property
    def n_found(self) -> int:
        """Number of common features."""
        return len(self.model_positions)

    @property
    def n_model(self) -> int:
        """Number of features of the model."""
        return self.n_found + len(self.missing)

    def __str__(self) -> str:
        others = f"{self.n_ignored:,} {'other' if self.n_ignored == 1 else 'others'} ignored"
        of_model = f"{self.n_found:,} of {self.n_model:,} features of the model"
        if self.absent_features == "zero":
            return f"{of_model} occur, {others}"
        share = 100 * self.n_found / self.n_model
        return f"{of_model} found ({share:.1f} %), {len(self.missing):,} missing, {others}"


class Projection(NamedTuple):
    """What `project` returns.

    Attributes
    ----------
    W : ndarray, CSR array or DataFrame of shape (n_samples, n_components)
        What ``transform`` would return; it follows ``sparse_output`` and ``set_output`` too.
    overlap : FeatureOverlap
        Which features were found; ``print(overlap)`` shows the counts.
    """

    W: Any
    overlap: FeatureOverlap


def match_features(
    model_names: Iterable[Hashable],
    data_names: Iterable[Hashable],
    *,
    absent_features: AbsentFeatures = "unobserved",
    min_overlap: float = MIN_OVERLAP,
) -> FeatureOverlap:
    """Find the features of a model among the columns of new data, by name.

    Parameters
    ----------
    model_names : iterable of str
        Names of the model's features, in its order.
    data_names : iterable of str
        Names of the columns of the data.
    absent_features : {"unobserved", "zero"}, default="unobserved"
        What is known of features that the data do not have, see `project`.
    min_overlap : float, default=0.1
        Least share of the model's features that must be found. Counts that are complete
        (``absent_features="zero"``) may have any.

    Returns
    -------
    FeatureOverlap

    Raises
    ------
    ValueError
        If a name that matters occurs twice (which of the columns is meant cannot be told; columns
        that the model does not know may be called what they like), or too few features are common.
    """
    if absent_features not in ("unobserved", "zero"):
        raise ValueError(
            f"{option('absent_features')} must be 'unobserved' or 'zero'; got {absent_features!r}."
        )
    model, data = list(model_names), list(data_names)
    _reject_duplicates(model, "The names of the model's features", "Give each its own name")
    known = set(model)
    _reject_duplicates(
        [name for name in data if name in known],
        "The names of the new data's columns",
        "Rename the columns (of an AnnData: adata.var_names_make_unique()), or add those that hold "
        "the same feature into one",
    )
    place = {name: column for column, name in enumerate(data) if name in known}
    found = [position for position, name in enumerate(model) if name in place]
    overlap = FeatureOverlap(
        model_positions=np.array(found, dtype=np.intp),
        data_positions=np.array([place[model[position]] for position in found], dtype=np.intp),
        missing=tuple(name for name in model if name not in place),
        n_ignored=len(data) - len(found),
        absent_features=absent_features,
    )
    if not found or (absent_features == "unobserved" and len(found) < min_overlap * len(model)):
        unknown = [name for name in data if name not in known]
        raise ValueError(_too_few(overlap, unknown, min_overlap))
    return overlap


def _too_few(overlap: FeatureOverlap, unknown: list[Hashable], min_overlap: float) -> str:
    message = "The model and the new data have no feature in common."
    way_out = ""
    if overlap.n_found:
        message = f"Only {overlap}; at least {100 * min_overlap:g} % are needed."
        way_out = (
            " If the counts are complete, as those of texts are, and absent features are 0, pass "
            f"{option('absent_features', 'zero')}; to go on with so few, "
            f"{option('min_overlap', 0)}."
        )
    return (
        f"{message} The model has features such as {_examples(list(overlap.missing))}, the new "
        f"data {_examples(unknown)}. Use the same kind of names for both.{way_out}"
    )


def project(
    model: KLNMF,
    X: Any,
    feature_names: Sequence[Hashable] | npt.NDArray[Any] | None = None,
    *,
    model_feature_names: Sequence[Hashable] | npt.NDArray[Any] | None = None,
    absent_features: AbsentFeatures | None = None,
    min_overlap: float = MIN_OVERLAP,
) -> Projection:
    """Return W for new samples whose columns are matched with the model's features by name.

    Columns that the model does not know are left out. What becomes of features that the data do
    not have depends on the data:

    - In a table of measured features, such as genes, they were not measured. W is solved for with
      the components restricted to the common features, as if the others had never been counted.
    - Counts of texts are complete: a word that does not occur has the count 0. The result is that
      of ``model.transform`` with columns of zeros.

    A `CountTable` knows which of them it is. Where all features are there, in whatever order, the
    result is that of ``model.transform`` in both cases.

    A line says how many features were found; it goes to the logger ``klnmf.named_features``, as a
    warning (which Python shows by default) when features were not measured.

    Parameters
    ----------
    model : KLNMF
        A fitted model.
    X : CountTable, or {array-like, sparse matrix or array, DataFrame} of shape \
            (n_samples, n_columns)
        Counts of the new samples.
    feature_names : sequence of str, default=None
        Names of the columns of X; None takes those of a DataFrame or a CountTable.
    model_feature_names : sequence of str, default=None
        Names of the model's features, in the order of the columns it was fitted on; None takes
        ``feature_names_in_``, which a model has that was fitted on a DataFrame.
    absent_features : {"unobserved", "zero"}, default=None
        What is known of features that X does not have: nothing, or that their counts are 0. None
        is "zero" for a CountTable with ``open_features``, as `klnmf.readers.read_counts` returns
        for texts and for triplets, and else "unobserved".
    min_overlap : float, default=0.1
        Least share of the model's features that must be found; below it, the names are likely to
        be of another kind. It does not matter where absent features are zeros.

    Returns
    -------
    Projection
        Named tuple (W, overlap).

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> from klnmf.named_features import project
    >>> names = ["sea", "ship", "corn", "field"]
    >>> model = KLNMF(n_components=2, random_state=0)
    >>> model = model.fit([[4, 2, 0, 0], [2, 1, 0, 0], [0, 0, 3, 3], [0, 0, 2, 2]])
    >>> W, overlap = project(model, [[8, 0, 9]], ["sea", "corn", "moon"], model_feature_names=names)
    >>> print(overlap)
    2 of 4 features of the model found (50.0 %), 2 missing, 1 other ignored
    >>> rates = model.inverse_transform(W)  # of all features, the missing ones too
    >>> [round(float(rate), 2) for rate in rates[0]]
    [8.0, 4.0, 0.0, 0.0]
    """
    check_is_fitted(model, "components_")
    if isinstance(X, CountTable):
        feature_names = X.column_names if feature_names is None else feature_names
        absent_features = absent_features or X.absent_features
        X = X.X
    X = checked_matrix(X)
    X = X if hasattr(X, "shape") else np.asarray(X)
    overlap = match_features(
        _names_of_model(model, model_feature_names),
        _names_of_data(X, feature_names),
        absent_features=absent_features or "unobserved",
        min_overlap=min_overlap,
    )
    return Projection(project_common(model, _columns(X, overlap.data_positions), overlap), overlap)


def project_common(model: KLNMF, X: Any, overlap: FeatureOverlap) -> Any:
    """Return W for samples of which X has the common features alone, in the model's order."""
    is_lost = overlap.missing and overlap.absent_features == "unobserved"
    _LOGGER.log(logging.WARNING if is_lost else logging.INFO, "%s", overlap)
    part, counts = model_of_features(model, X, overlap)
    whole_mass, mass = (np.asarray(m.components_.sum(axis=1)).ravel() for m in (model, part))
    unseen = np.flatnonzero((whole_mass > 0) & (mass == 0))
    if len(unseen):
        warn_caller(
            f"The components {', '.join(map(str, unseen))} have no weight on the features that "
            "were found: nothing can be said about them, and their columns of W are 0.",
            UserWarning,
        )
    W = part.transform(counts)
    if hasattr(W, "index") and hasattr(X, "index"):
        W.index = X.index
    return W


def model_of_features(model: KLNMF, X: Any, overlap: FeatureOverlap) -> tuple[KLNMF, Any]:
    """Return model and counts on the features that are known, given counts of the common ones."""
    if overlap.absent_features == "zero":
        X = with_zeros(X, overlap)
        return restricted(model, np.arange(overlap.n_model), X), X
    return restricted(model, overlap.model_positions, X), X


def with_zeros(X: Any, overlap: FeatureOverlap) -> Any:
    """Return counts of all of the model's features from those of the common ones."""
    if not overlap.missing:
        return X
    common = sp.csr_array(X if sp.issparse(X) else np.asarray(X))
    arrays = common.data, overlap.model_positions[common.indices], common.indptr
    return sp.csr_array(arrays, shape=(common.shape[0], overlap.n_model))


def restricted(model: KLNMF, positions: Positions, X: Any) -> KLNMF:
    """Return a copy of a model that knows these features alone and takes X's names for them."""
    part = copy.copy(model)
    if len(positions) < model.n_features_in_:
        part.components_ = model.components_[:, positions]
        weights = getattr(model, "feature_weight_", None)
        part.feature_weight_ = None if weights is None else weights[positions]
        part.n_features_in_ = len(positions)
    part.__dict__.pop("feature_names_in_", None)
    names = list(getattr(X, "columns", []))
    if names and all(isinstance(name, str) for name in names):
        part.feature_names_in_ = np.array(names, dtype=object)
    return part


def _columns(X: Any, positions: Positions) -> Any:
    """Return the columns of X in this order, X itself where that is what it has."""
    if np.array_equal(positions, np.arange(X.shape[1])):
        return X
    return _safe_indexing(X, positions, axis=1)


def _names_of_model(model: KLNMF, given: Any) -> list[Hashable]:
    names = getattr(model, "feature_names_in_", None) if given is None else given
    if names is None:
        raise ValueError(
            "The model does not know the names of its features, since it was not fitted on a "
            "DataFrame. Pass them as model_feature_names, in the order of the columns it was "
            "fitted on."
        )
    names = list(names)
    if len(names) != model.n_features_in_:
        raise ValueError(
            f"model_feature_names has {len(names):,} names; the model has "
            f"{model.n_features_in_:,} features."
        )
    return names


def _names_of_data(X: Any, given: Any) -> list[Hashable]:
    names = getattr(X, "columns", None) if given is None else given
    if names is None:
        raise ValueError(
            f"The columns of X have no names, since it is a {type(X).__name__} and not a "
            "DataFrame. Pass them as feature_names."
        )
    names, shape = list(names), np.shape(X)
    if len(shape) != 2 or len(names) != shape[1]:
        raise ValueError(
            f"X has shape {shape} and {len(names):,} feature names; wanted are samples × features "
            "with one name for each column."
        )
    return names


def _reject_duplicates(names: list[Hashable], whose: str, advice: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"{whose} are not unique: {_examples(twice)} occur more than once. {advice}."
        )


def _examples(names: list[Hashable]) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:_EXAMPLES])
    return shown + (", ..." if len(names) > _EXAMPLES else "") or "(there is none)"
