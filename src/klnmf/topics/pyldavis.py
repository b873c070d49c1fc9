"""A fitted model as the arguments of pyLDAvis."""

from typing import Any

import numpy as np

from klnmf.data.validation import check_counts
from klnmf.topics.checks import Names, checked_names, dense, sums
from klnmf.topics.mixture import plsi_probabilities


def pyldavis_arguments(
    W: Any, components: Any, X: Any, feature_names: Names | None = None
) -> dict[str, Any]:
    """Return the arguments of ``pyLDAvis.prepare``, which shows topics in a browser.

    pyLDAvis refuses rows that do not add up to 1, and words without counts. So empty documents,
    topics that no document uses, and words that do not occur in X or in no topic are left out.

    Parameters
    ----------
    W : array-like or sparse matrix of shape (n_samples, n_components)
        Representation of the samples.
    components : array-like or sparse matrix of shape (n_components, n_features)
        Components, such as ``components_`` of a fitted model.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The counts.
    feature_names : sequence of str, optional
        Names of the features.

    Returns
    -------
    dict
        ``topic_term_dists``, ``doc_topic_dists``, ``doc_lengths``, ``vocab``, ``term_frequency``,
        and ``sort_topics=False`` and ``start_index=0``, so that topic k of the page is component k
        if no topic is left out.

    Examples
    --------
    >>> from klnmf.topics import pyldavis_arguments
    >>> X = [[4, 2, 0], [0, 0, 3]]
    >>> W, components = [[6.0, 0.0], [0.0, 3.0]], [[0.6, 0.4, 0.0], [0.0, 0.0, 1.0]]
    >>> arguments = pyldavis_arguments(W, components, X, ["sea", "ship", "corn"])
    >>> arguments["doc_lengths"].tolist(), arguments["term_frequency"].tolist()
    ([6.0, 3.0], [4.0, 2.0, 3.0])

    With pyLDAvis, which is not a part of klnmf::

        import pyLDAvis

        pyLDAvis.save_html(pyLDAvis.prepare(**arguments), "topics.html")
    """
    X = check_counts(X, name="pyldavis_arguments")
    probabilities = plsi_probabilities(W, components)
    words, topics = map(dense, probabilities[:2])
    if X.shape != (len(topics), words.shape[1]):
        raise ValueError(
            f"X must have shape {(len(topics), words.shape[1])}, as W and components do; got shape "
            f"{X.shape}."
        )
    names = checked_names(feature_names, words.shape[1])
    used = probabilities.component > 0.0
    rows = (sums(X, axis=1) > 0.0) & (topics[:, used].sum(axis=1) > 0.0)
    columns = (sums(X[rows], axis=0) > 0.0) & (words[used].sum(axis=0) > 0.0)
    if not (rows.any() and columns.any()):
        raise ValueError("There is nothing to show: no document has both counts and topics.")
    words, topics = words[used][:, columns], topics[rows][:, used]
    return {
        "topic_term_dists": words / words.sum(axis=1, keepdims=True),
        "doc_topic_dists": topics / topics.sum(axis=1, keepdims=True),
        "doc_lengths": sums(X[rows][:, columns], axis=1),
        "vocab": [names[j] for j in np.flatnonzero(columns)],
        "term_frequency": sums(X[rows][:, columns], axis=0),
        "sort_topics": False,
        "start_index": 0,
    }
