"""New samples with missing, additional or reordered features, which are matched by name."""

import logging
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import _safe_indexing
from sklearn.utils._set_output import _get_output_config

from klnmf.constraints.constraints import SampleConstraints
from klnmf.constraints.names import feature_names_of, names_seen_in_fit
from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.validation import warn_caller
from klnmf.estimators.base import FactorModel, check_fitted
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.readers.table import AbsentFeatures, CountTable
from klnmf.saved.models import SavedModel
from klnmf.support.descriptions import listed
from klnmf.support.option_names import option
from klnmf.topics.checks import checked_choice, checked_share

__all__ = ["FeatureOverlap", "transform_by_name"]

Positions = npt.NDArray[np.intp]

_LOGGER = logging.getLogger(__name__)
_EXAMPLES = 5
# With a smaller share of the model's features, the data more likely use other names for them.
MIN_OVERLAP = 0.1
# Parameters that a solve for W depends on; constraints on all features do not fit some of them.
_PARAMETERS_OF_W = (
    *("solver", "l1_W", "l2_W", "l1_H", "l2_H", "tol"),
    *("n_threads", "dtype", "sparse_output", "backend"),
)


@dataclass(frozen=True)
class FeatureOverlap:
    """Which features of a model the new data have. Printed, it is one line of counts.

    Attributes
    ----------
    model_positions : ndarray of int
        Positions of the common features among those of the model, in ascending order.
    data_positions : ndarray of int
        Positions of the same features, in the same order, among the columns of the data.
    missing : tuple
        Features of the model that the data do not have.
    n_ignored : int
        Number of columns of the data that the model does not have.
    absent_features : {"unobserved", "zero"}
        Whether the missing features were not observed, or have the count 0.
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


def match_features(
    model_names: Any,
    data_names: Any,
    *,
    absent_features: AbsentFeatures = "unobserved",
    min_overlap: float = MIN_OVERLAP,
) -> FeatureOverlap:
    """Find the features of a model among the columns of new data, as `transform_by_name` does."""
    checked_share(min_overlap, option("min_overlap"))
    checked_choice(absent_features, option("absent_features"), ("unobserved", "zero"))
    model, data = listed(model_names, "model_feature_names"), listed(data_names, "feature_names")
    _reject_duplicates(model, "The names of the model's features")
    wanted = set(model)
    _reject_duplicates(
        [name for name in data if name in wanted], "The names of the new data's columns"
    )
    place = {name: column for column, name in enumerate(data) if name in wanted}
    found = [position for position, name in enumerate(model) if name in place]
    overlap = FeatureOverlap(
        model_positions=np.array(found, dtype=np.intp),
        data_positions=np.array([place[model[position]] for position in found], dtype=np.intp),
        missing=tuple(name for name in model if name not in place),
        n_ignored=len(data) - len(found),
        absent_features=absent_features,
    )
    if found and (absent_features == "zero" or len(found) >= min_overlap * len(model)):
        return overlap
    problem, way_out = "The model and the new data have no feature in common.", ""
    if found:
        problem = f"Only {overlap}; at least {100 * min_overlap:g} % are needed."
        way_out = (
            " If absent features have the count 0, as in texts, use "
            f"{option('absent_features', 'zero')}. To continue anyway, use "
            f"{option('min_overlap', 0)}."
        )
    unknown = [name for name in data if name not in wanted]
    raise ValueError(
        f"{problem} The model has features such as {_examples(overlap.missing)}, the new data "
        f"{_examples(unknown)}. Use the same kind of names for both.{way_out}"
    )


def transform_by_name(
    model: FactorModel | SavedModel,
    X: Any,
    feature_names: Sequence[Hashable] | npt.NDArray[Any] | None = None,
    *,
    model_feature_names: Sequence[Hashable] | npt.NDArray[Any] | None = None,
    absent_features: AbsentFeatures | None = None,
    min_overlap: float = MIN_OVERLAP,
) -> tuple[Any, FeatureOverlap]:
    """Return W for new samples, whose columns are matched with the model's features by name.

    Columns that the model does not have are ignored. Features that the data do not have are treated
    in one of two ways, and a `CountTable` says in which:

    - In a table of measured features, such as genes, they were not observed. W is solved for with
      the common features alone.
    - In counts of texts, a word that does not occur has the count 0. The result is that of
      ``model.transform`` with columns of zeros.

    One line about the features found goes to the logger ``klnmf.named_features``, as a warning
    (which Python shows by default) if features were not observed.

    Parameters
    ----------
    model : KLNMF, MiniBatchKLNMF or SavedModel
        A fitted model, or what `klnmf.load_model` returns.
    X : CountTable, or {array-like, sparse matrix or array, DataFrame} of shape \
            (n_samples, n_columns)
        Counts of the new samples.
    feature_names : sequence of str, default=None
        Names of the columns of X; None uses those of a DataFrame or a CountTable.
    model_feature_names : sequence of str, default=None
        Names of the model's features, in the order of the columns it was fitted to; None uses
        those of the SavedModel, or ``feature_names_in_``, which a fit to a DataFrame sets.
    absent_features : {"unobserved", "zero"}, default=None
        Whether features that X does not have were not observed, or have the count 0. None is
        "zero" for a CountTable with ``open_features``, as `klnmf.readers.read_counts` returns for
        texts and for triplets, and otherwise "unobserved".
    min_overlap : float, default=0.1
        Smallest share of the model's features that must be found, unless absent features are 0.

    Returns
    -------
    W : ndarray, CSR array or DataFrame of shape (n_samples, n_components)
        As from ``transform``, with ``sparse_output`` and ``set_output``.
    overlap : FeatureOverlap
        Which features were found; ``print(overlap)`` shows the counts.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> from klnmf.named_features import transform_by_name
    >>> names = ["sea", "ship", "corn", "field"]
    >>> model = KLNMF(n_components=2, random_state=0)
    >>> model = model.fit([[4, 2, 0, 0], [2, 1, 0, 0], [0, 0, 3, 3], [0, 0, 2, 2]])
    >>> W, overlap = transform_by_name(
    ...     model, [[8, 0, 9]], ["sea", "corn", "moon"], model_feature_names=names
    ... )
    >>> print(overlap)
    2 of 4 features of the model found (50.0 %), 2 missing, 1 other ignored
    >>> overlap.missing
    ('ship', 'field')
    >>> rates = model.inverse_transform(W)  # of all features, the missing ones too
    >>> [round(float(rate), 2) for rate in rates[0]]
    [8.0, 4.0, 0.0, 0.0]
    """
    fitted: FactorModel = model.model if isinstance(model, SavedModel) else model
    if isinstance(model, SavedModel) and model_feature_names is None:
        model_feature_names = model.feature_names
    check_fitted(fitted)
    if isinstance(X, CountTable):
        feature_names = X.column_names if feature_names is None else feature_names
        absent_features = absent_features or X.absent_features
        X = X.X
    X = checked_matrix(X)
    X = X if hasattr(X, "shape") else np.asarray(X)
    if len(X.shape) != 2:
        raise ValueError(f"X must have the shape (n_samples, n_columns), got {X.shape}.")
    overlap = match_features(
        _checked_names(
            names_seen_in_fit(fitted) if model_feature_names is None else model_feature_names,
            "model_feature_names",
            fitted.n_features_in_,
            "The model has no feature names, because it was not fitted to a DataFrame.",
        ),
        _checked_names(
            getattr(X, "columns", None) if feature_names is None else feature_names,
            "feature_names",
            X.shape[1],
            f"The columns of X have no names, because it is a {type(X).__name__}.",
        ),
        absent_features=absent_features or "unobserved",
        min_overlap=min_overlap,
    )
    positions = overlap.data_positions
    is_whole = np.array_equal(positions, np.arange(X.shape[1]))
    common = X if is_whole else _safe_indexing(X, positions, axis=1)
    return transform_common(fitted, common, overlap), overlap


def transform_common(
    model: FactorModel, X: Any, overlap: FeatureOverlap, **constraints: Unpack[SampleConstraints]
) -> Any:
    """Return W for samples of which X has only the common features, in the model's order."""
    is_lost = overlap.missing and overlap.absent_features == "unobserved"
    _LOGGER.log(logging.WARNING if is_lost else logging.INFO, "%s", overlap)
    part, counts = model_of_features(model, X, overlap)
    whole_mass, mass = (np.asarray(m.components_.sum(axis=1)).ravel() for m in (model, part))
    unseen = np.flatnonzero((whole_mass > 0) & (mass == 0))
    if len(unseen):
        warn_caller(
            f"The components {', '.join(map(str, unseen))} have no weight on the features that "
            "were found, so their columns of W are 0.",
            UserWarning,
        )
    W = part.transform(counts, **constraints)
    if hasattr(W, "index") and hasattr(X, "index"):
        W.index = X.index
    return W


def model_of_features(model: FactorModel, X: Any, overlap: FeatureOverlap) -> tuple[KLNMF, Any]:
    """Return model and counts on the observed features, given counts of the common ones.

    The names of these features, if any, are those of X.
    """
    check_fitted(model)
    positions = overlap.model_positions
    if overlap.absent_features == "zero":
        X, positions = with_zeros(X, overlap), np.arange(overlap.n_model)
    weights = model.feature_weight_
    given = model.get_params(deep=False)
    part = KLNMF.from_components(
        model.components_[:, positions],
        feature_names=feature_names_of(X),
        constraint_names=model.constraint_names_,
        n_fixed_W=model.n_fixed_W_,
        W_sums=model.W_sums_,
        feature_weight=None if weights is None else weights[positions],
        **{name: given[name] for name in _PARAMETERS_OF_W if name in given},
    )
    if np.array_equal(positions, np.arange(overlap.n_model)):
        part.data_checksum_ = model.data_checksum_  # X may be the counts of the fit
    part.set_output(transform=_get_output_config("transform", model)["dense"])
    return part, X


def with_zeros(X: Any, overlap: FeatureOverlap) -> Any:
    """Return counts of all of the model's features from those of the common ones."""
    X = checked_matrix(X)
    if not overlap.missing:
        return X
    common = sp.csr_array(X if sp.issparse(X) else np.asarray(X))
    arrays = common.data, overlap.model_positions[common.indices], common.indptr
    return sp.csr_array(arrays, shape=(common.shape[0], overlap.n_model))


def _checked_names(names: Any, argument: str, n_features: int, why_none: str) -> list[Hashable]:
    """Return one name per feature, or say which argument should have them."""
    if names is None:
        raise ValueError(f"{why_none} Pass {argument}.")
    found = listed(names, argument)
    if len(found) != n_features:
        raise ValueError(f"{argument} has {len(found):,} names for {n_features:,} features.")
    return found


def _reject_duplicates(names: list[Hashable], whose: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"{whose} are not unique: {_examples(twice)} occur more than once. Rename them (of an "
            "AnnData: adata.var_names_make_unique()), or add up those of the same feature."
        )


def _examples(names: Sequence[Hashable]) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:_EXAMPLES])
    return shown + (", ..." if len(names) > _EXAMPLES else "") or "(there is none)"
