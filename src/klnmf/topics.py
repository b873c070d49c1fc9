"""The features that tell what a component is about, as lists and as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

FloatArray = npt.NDArray[np.float64]
Ranking = Literal["weight", "lift"]


def top_features(
    components: Any,
    feature_names: Sequence[str] | npt.NDArray[np.str_] | None = None,
    n_top: int = 10,
    by: Ranking = "weight",
) -> list[list[tuple[str, float]]]:
    """List the leading features of each component with their scores.

    With p_jk = h_jk / Σ_j h_jk, the share of component k's mass that feature j holds, the score is

    - ``"weight"``: p_jk, so that the scores of a component add up to 1;
    - ``"lift"``: (p_jk + 1/m) / (p̄_j + 1/m), where p̄_j is the mean of p_jk over the nonzero
      components and m the number of features. It is above 1 where the feature stands out. The
      added uniform share 1/m holds rare features near 1, whose plain ratio would be the largest.

    Neither changes when a component is rescaled against W.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    feature_names : sequence of str, optional
        Names of the features; by default ``"feature 0"``, ``"feature 1"``, ...
    n_top : int, default=10
        Number of features per component. Features of weight 0 are never listed, so a component
        may have fewer, and a component of zeros has none.
    by : {"weight", "lift"}, default="weight"
        Score to rank by. Ties go to the earlier feature.

    Returns
    -------
    topics : list of list of (str, float)
        For each component its features and scores, in falling order.

    Examples
    --------
    >>> from klnmf.topics import top_features
    >>> components = [[6.0, 2.0, 0.0], [0.0, 1.0, 1.0]]
    >>> top_features(components, ["sea", "ship", "field"], n_top=2)
    [[('sea', 0.75), ('ship', 0.25)], [('ship', 0.5), ('field', 0.5)]]
    """
    if by not in ("weight", "lift"):
        raise ValueError(f"by must be 'weight' or 'lift'; got {by!r}.")
    if n_top < 1:
        raise ValueError(f"n_top must be at least 1; got {n_top}.")
    rows, n_features = _checked_rows(components)
    names = _checked_names(feature_names, n_features)
    shares = [(columns, _normalised(values)) for columns, values in rows]
    mean_share = np.zeros(n_features)
    if by == "lift":
        for columns, share in shares:
            mean_share[columns] += share
        mean_share /= max(1, sum(columns.size > 0 for columns, _ in shares))

    topics = []
    for columns, share in shares:
        score = share
        if by == "lift":
            uniform = 1.0 / n_features
            score = (share + uniform) / (mean_share[columns] + uniform)
        order = np.argsort(-score, kind="stable")[:n_top]
        topics.append([(names[columns[i]], float(score[i])) for i in order])
    return topics


def component_shares(components: Any, W: Any = None) -> FloatArray:
    """Share of the total mass that each component holds; the shares add up to 1.

    The mass of component k is Σ_ij w_ik h_jk = (Σ_i w_ik)(Σ_j h_jk). Without W the first sum is
    taken as 1, which is right only when the columns of W have the same sum.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples.

    Returns
    -------
    shares : ndarray of shape (n_components,)
        Shares in the order of the components.

    Examples
    --------
    >>> from klnmf.topics import component_shares
    >>> component_shares([[1.0, 2.0], [0.5, 0.5]], W=[[1.0, 0.0], [0.0, 1.0]]).tolist()
    [0.75, 0.25]
    """
    rows, _ = _checked_rows(components)
    mass = np.array([values.sum() for _, values in rows])
    if W is not None:
        weights = W if sp.issparse(W) else np.asarray(W, dtype=np.float64)
        if weights.ndim != 2 or weights.shape[1] != mass.size:
            raise ValueError(
                f"W must have one column per component ({mass.size}); got shape {weights.shape}."
            )
        mass *= np.asarray(weights.sum(axis=0), dtype=np.float64).ravel()
    return _normalised(mass)


def format_topics(
    components: Any,
    feature_names: Sequence[str] | npt.NDArray[np.str_] | None = None,
    n_top: int = 10,
    by: Ranking = "weight",
    *,
    W: Any = None,
    width: int = 88,
) -> str:
    """Return a table of the components, largest share of the total mass first.

    Parameters
    ----------
    components, feature_names, n_top, by
        As in `top_features`.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples, for the shares; see `component_shares`.
    width : int, default=88
        Longest line, in characters; longer lists go on in the next line.

    Returns
    -------
    table : str
        Lines separated by newlines, with a heading.

    Examples
    --------
    >>> from klnmf.topics import format_topics
    >>> print(format_topics([[1.0, 0.0, 1.0], [0.0, 6.0, 0.0]], ["sea", "corn", "ship"]))
    component  share  top features
            1  75.0%  corn
            0  25.0%  sea, ship
    """
    topics = top_features(components, feature_names, n_top=n_top, by=by)
    shares = component_shares(components, W)
    lines = ["component  share  top features"]
    for component in np.argsort(-shares, kind="stable"):
        start = f"{component:>9}  {shares[component]:>5.1%}  "
        words = ", ".join(name for name, _ in topics[component]) or "(empty)"
        lines += textwrap.wrap(
            words,
            width=max(width, len(start) + 1),
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def _checked_rows(components: Any) -> tuple[list[tuple[npt.NDArray[np.intp], FloatArray]], int]:
    """Positions and values of each component's positive entries, and the number of features."""
    if not hasattr(components, "tocsr"):
        components = np.asarray(components, dtype=np.float64)
    if components.ndim != 2 or components.shape[1] == 0:
        raise ValueError(
            "components must have two dimensions (n_components, n_features) and at least one "
            f"feature; got shape {components.shape}."
        )
    rows = list(_rows_of(components))
    for _, values in rows:
        # A NaN fails both comparisons, so it is refused too.
        if not (np.isfinite(values) & (values > 0.0)).all():
            raise ValueError("components must be nonnegative and finite.")
    return rows, int(components.shape[1])


def _rows_of(components: Any) -> Iterator[tuple[npt.NDArray[np.intp], FloatArray]]:
    """Yield (columns, values) of the nonzeros of each row, columns rising, dense or sparse."""
    if isinstance(components, np.ndarray):
        for row in components:
            columns = np.flatnonzero(row)
            yield columns, row[columns]
        return
    matrix = components.tocsr(copy=True)
    matrix.sum_duplicates()  # sorts the columns as well
    matrix.eliminate_zeros()
    for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        columns = matrix.indices[start:stop].astype(np.intp)
        yield columns, matrix.data[start:stop].astype(np.float64)


def _checked_names(
    feature_names: Sequence[str] | npt.NDArray[np.str_] | None, n_features: int
) -> list[str]:
    """Names as plain strings, one for each feature."""
    if feature_names is None:
        return [f"feature {j}" for j in range(n_features)]
    names = [str(name) for name in feature_names]
    if len(names) != n_features:
        raise ValueError(f"feature_names has {len(names)} names for {n_features} features.")
    return names


def _normalised(values: FloatArray) -> FloatArray:
    """Values divided by their sum; zeros stay zeros."""
    total = float(values.sum())
    return values / total if total > 0.0 else np.zeros_like(values)
