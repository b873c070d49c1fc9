"""The top features of components, as lists and as text."""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import entr
from scipy.stats import rankdata

from klnmf.support.array_types import FloatArray
from klnmf.support.number_checks import checked_whole
from klnmf.support.printable_text import printable
from klnmf.topics.checks import (
    IndexArray,
    Names,
    checked_choice,
    checked_components,
    checked_names,
    dense,
    rows_scaled_to_one,
    scaled_to_one,
)
from klnmf.topics.mixture import component_shares

# Characters of the name of a component in a table.
LONGEST_TITLE = 30
_LINE_LENGTH = 88
_FEATURES_IN_NAME = 3
_LONGEST_IN_NAME = 24  # characters of a feature
_LAMBDA = 0.6  # of relevance
Ranking = Literal["lift", "weight", "frex", "relevance", "kl"]
# What ranks features wherever nothing else is asked for. Tables, names, coherence, plots and
# reports show the same features because all of them take it from here, and because it depends on
# the components alone, not on W (docs/performance.md compares the rankings).
RANKING: Ranking = "lift"


def top_features(
    components: Any,
    feature_names: Names | None = None,
    n_top: int = 10,
    by: Ranking = RANKING,
    *,
    W: Any = None,
) -> list[list[tuple[str, float]]]:
    """List the top features of each component with their scores.

    With p_jk = h_jk / Σ_j h_jk, the share of feature j in component k, and p̄_j = Σ_k π_k p_jk, its
    overall share, the score is

    - ``"lift"``: (p_jk + 1/m_k) / (p̄_j + 1/m_k), where m_k = exp(−Σ_j p_jk log p_jk) is the
      effective number of features of component k. It is above 1 for features that are typical of
      the component. Without 1/m_k, features that hardly occur would have the largest values. All
      components count the same in p̄;
    - ``"weight"``: p_jk. The scores of all features of a component add up to 1;
    - ``"frex"``: 2 / (1 / E_jk + 1 / F_jk), frequent and exclusive at once [2]_. F_jk and E_jk are
      the shares of component k's features (those with p_jk > 0) whose p_jk, and whose exclusivity
      p_jk / Σ_l p_jl, is no larger than that of feature j. Both lie in (0, 1]. In a large
      vocabulary it shows rarer features than the others do;
    - ``"relevance"``: λ log p_jk + (1 − λ) log(p_jk / p̄_j), between weight (λ = 1) and the plain
      lift (λ = 0), with the λ = 0.6 that worked best for readers in [1]_;
    - ``"kl"``: p_jk log(p_jk / p̄_j), the feature's part of the Kullback-Leibler divergence of the
      component from the overall shares. It is small for rare features, even if exclusive.

    For ``"relevance"`` and ``"kl"``, π_k is the share of component k in the total mass
    (`component_shares`) if W is given. Otherwise it is the same for all components that are not
    empty. Rescaling a component and W changes none of the scores.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    feature_names : sequence of str, optional
        Names of the features. By default ``"feature 0"``, ``"feature 1"``, ...
    n_top : int, default=10
        Number of features per component. Features of weight 0 are not listed, so a component may
        have fewer.
    by : {"lift", "weight", "frex", "relevance", "kl"}, default="lift"
        Score to rank by. Ties go to the larger weight, then to the earlier feature. By weight,
        what is frequent everywhere leads every component: "lord" in the Bible, ribosomal genes in
        cells.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples, for π. Relevance and ``"kl"`` of a feature are infinite if
        it occurs only in components that no sample uses.

    Returns
    -------
    topics : list of list of (str, float)
        Features and scores of each component, highest score first.

    References
    ----------
    .. [1] C. Sievert and K. Shirley, LDAvis: a method for visualizing and interpreting topics,
       Workshop on Interactive Language Learning, Visualization, and Interfaces, 2014.
    .. [2] J. Bischof and E. Airoldi, Summarizing topical content with word frequency and
       exclusivity, ICML 2012.

    Examples
    --------
    >>> from klnmf.topics import top_features
    >>> components = [[6.0, 2.0, 0.0], [0.0, 1.0, 1.0]]
    >>> names = ["sea", "ship", "field"]
    >>> [[name for name, _ in topic] for topic in top_features(components, names, n_top=1)]
    [['sea'], ['field']]
    >>> top_features(components, names, n_top=2, by="weight")
    [[('sea', 0.75), ('ship', 0.25)], [('ship', 0.5), ('field', 0.5)]]
    """
    leading = leading_features(components, n_top, by, W=W)
    names = checked_names(feature_names, leading.n_features)
    return [
        [(names[j], float(score)) for j, score in zip(features, scores, strict=True)]
        for features, scores in zip(leading.features, leading.scores, strict=True)
    ]


def format_topics(
    components: Any,
    feature_names: Names | None = None,
    n_top: int = 10,
    by: Ranking = RANKING,
    *,
    W: Any = None,
    component_names: Names | None = None,
) -> str:
    """Return a table of the components as text, largest share of the total mass first.

    Parameters
    ----------
    components, feature_names, n_top, by
        As in `top_features`.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples, for the shares (see `component_shares`) and the ranking.
    component_names : sequence of str, optional
        Names to show beside the numbers of the components.

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
    topics = top_features(components, feature_names, n_top, by, W=W)
    shares = component_shares(components, W)
    heading, titles = "component  share  ", [""] * len(shares)
    if component_names is not None:
        titles = ["name", *checked_names(component_names, len(shares), "component")]
        titles = [printable(title)[:LONGEST_TITLE] for title in titles]
        longest = max(map(len, titles))
        named, *titles = (f"{title:<{longest}}  " for title in titles)
        heading += named
    lines = [f"{heading}top features"]
    for component in np.argsort(-shares, kind="stable"):
        start = f"{component:>9}  {shares[component]:>5.1%}  {titles[component]}"
        lines += lines_of(start, topics[component])
    return "\n".join(lines)


def lines_of(start: str, top: list[tuple[str, float]]) -> list[str]:
    """Return the names of a list of `top_features` in lines, the first of which has this start."""
    return textwrap.wrap(
        ", ".join(printable(name) for name, _ in top) or "(empty)",
        width=max(_LINE_LENGTH, len(start) + 1),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def name_components(components: Any, feature_names: Names) -> list[str]:
    """Name components by their three top features, as plots, reports and `klnmf.TopicModel` do.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components.
    feature_names : sequence of str
        Names of the features. Long ones are cut.

    Returns
    -------
    list of str
        Different names: those that repeat get a number.

    Examples
    --------
    >>> from klnmf.topics import name_components
    >>> name_components([[3, 2, 0], [0, 0, 1], [2, 3, 0], [0, 0, 2]], ["sea", "ship", "corn"])
    ['sea, ship', 'corn', 'ship, sea', 'corn (2)']
    """
    names, taken = [], set[str]()
    for features in top_features(components, feature_names, _FEATURES_IN_NAME):
        leading = ", ".join(_cut(feature) for feature, _ in features) or "(empty)"
        numbered = (f"{leading} ({number})" for number in count(2))
        names.append(next(name for name in chain([leading], numbered) if name not in taken))
        taken.add(names[-1])
    return names


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_IN_NAME else name[: _LONGEST_IN_NAME - 1] + "…"


@dataclass(frozen=True)
class LeadingFeatures:
    """Positions of each component's top features, best first, with scores and weights."""

    features: list[IndexArray]
    scores: list[FloatArray]
    weights: list[FloatArray]  # p_jk, whatever the ranking
    n_features: int


def leading_features(
    components: Any,
    n_top: int,
    by: Ranking = RANKING,
    *,
    W: Any = None,
) -> LeadingFeatures:
    """Rank the features of each component as `top_features` does, by position."""
    checked_choice(by, "by", get_args(Ranking))
    n_top = checked_whole("n_top", n_top)
    H = dense(checked_components(components))
    shares = rows_scaled_to_one(H)
    scored: dict[Ranking, Score] = {
        "weight": lambda weights, _: weights,
        "lift": _lift,
        "relevance": _relevance,
        "frex": _frex,
        "kl": lambda weights, overall: weights * _log_ratio(weights, overall),
    }
    if by == "frex":  # all components count the same; p / p = 1 exactly if only one has it
        mixture = np.ones(len(H))
    elif W is not None and by != "lift":
        mixture = component_shares(H, W)
    else:
        mixture = scaled_to_one(np.asarray(H.any(axis=1), dtype=np.float64))
    overall = mixture @ shares

    leading = LeadingFeatures([], [], [], H.shape[1])
    for row in shares:
        columns = np.flatnonzero(row)
        weights = row[columns]
        score = scored[by](weights, overall[columns])
        order = np.lexsort((-weights, -score))[:n_top]  # the last key comes first; stable
        leading.features.append(columns[order])
        leading.scores.append(score[order])
        leading.weights.append(weights[order])
    return leading


# Takes the shares of a component's features and their overall shares.
Score = Callable[[FloatArray, FloatArray], FloatArray]


def _log_ratio(weights: FloatArray, overall: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):  # infinite if no component in use has the feature
        return np.asarray(np.log(weights) - np.log(overall))


def _lift(weights: FloatArray, overall: FloatArray) -> FloatArray:
    """See `top_features`; exp(Σ p log p) is one over the effective number of features."""
    floor = np.exp(-entr(weights).sum())
    return np.asarray((weights + floor) / (overall + floor))


def _relevance(weights: FloatArray, overall: FloatArray) -> FloatArray:
    return np.asarray(_LAMBDA * np.log(weights) + (1.0 - _LAMBDA) * _log_ratio(weights, overall))


def _frex(weights: FloatArray, overall: FloatArray) -> FloatArray:
    frequency = rankdata(weights, method="max") / max(1, weights.size)
    # Rounded, so that rescaling a component does not break ties.
    exclusivity = rankdata(np.round(weights / overall, 12), method="max") / max(1, weights.size)
    return np.asarray(1.0 / (0.5 / exclusivity + 0.5 / frequency))
