"""Fitted models as pandas DataFrames with names. This needs the extra ``dataframes`` (pandas).

W is an array by default. After ``set_output(transform="pandas")``, as in scikit-learn, it is a
DataFrame with the index of X and the columns ``klnmf0``, ``klnmf1``, ...
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.constraints.names import names_seen_in_fit
from klnmf.data.matrix_checks import checked_matrix
from klnmf.estimators.base import check_fitted
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.support.optional_packages import require
from klnmf.topics.checks import checked_names

__all__ = ["components_frame"]


def components_frame(
    model: KLNMF, feature_names: Sequence[str] | npt.NDArray[Any] | None = None
) -> Any:
    """Return the components of a fitted model as a DataFrame, components × features.

    Parameters
    ----------
    model : KLNMF
        A fitted model.
    feature_names : sequence of str, default=None
        Names of the features. None uses those seen in ``fit``, or else ``"feature 0"``,
        ``"feature 1"``, ...

    Returns
    -------
    pandas.DataFrame
        ``components_`` with the features as columns. The index has the names of the columns of W
        under ``set_output``. Columns are sparse if the model has ``sparse_output=True``.

    Examples
    --------
    >>> import pandas as pd
    >>> from klnmf import KLNMF
    >>> from klnmf.frames import components_frame
    >>> X = pd.DataFrame({"sea": [4, 2, 0], "ship": [2, 1, 0], "corn": [0, 0, 3]})
    >>> model = KLNMF(n_components=2, random_state=0).fit(X)
    >>> frame = components_frame(model)
    >>> list(frame.index), list(frame.columns)
    (['klnmf0', 'klnmf1'], ['sea', 'ship', 'corn'])
    >>> frame.T.nlargest(2, frame.idxmax()["sea"]).index.tolist()
    ['sea', 'ship']
    """
    check_fitted(model)
    pd = require("pandas", "A DataFrame", "dataframes")
    components = checked_matrix(model.components_, "components_")
    names = checked_names(
        names_seen_in_fit(model) if feature_names is None else feature_names, components.shape[1]
    )
    index = model.get_feature_names_out()
    if sp.issparse(components):
        return pd.DataFrame.sparse.from_spmatrix(components, index=index, columns=names)
    return pd.DataFrame(np.array(components), index=index, columns=names)


def table_frame(table: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Return columns of the same length as a DataFrame."""
    return require("pandas", "A DataFrame", "dataframes").DataFrame(dict(table))
