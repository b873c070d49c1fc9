"""What a fitted `TopicModel` says about its topics and documents."""

from collections.abc import Container, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from klnmf.estimators.kl_nmf import KLNMF
from klnmf.frames import table_frame
from klnmf.report.measures import typical_samples
from klnmf.saved.columns import EXCERPT
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.descriptions import described
from klnmf.support.number_checks import checked_whole
from klnmf.support.result_tables import Column, ResultTable, ShownBelowDiagram, badge
from klnmf.topics import mean_shares, plsi_probabilities, top_features
from klnmf.topics.checks import dense
from klnmf.topics.features import RANKING, Ranking
from klnmf.topics.mixture import component_shares


class TopicViews(ShownBelowDiagram):
    """Gives a fitted model its tables and charts."""

    nmf_: KLNMF
    vectorizer_: Any
    words_: Array
    counts_: Any
    W_: Any
    topic_names_: list[str]
    coherence_: FloatArray
    document_names_: list[str]
    excerpts_: list[str]
    deviance_ratio_: FloatArray | None
    metadata_: dict[str, list[Any]]
    fit_facts_: dict[str, Any]

    @property
    def shares_(self) -> FloatArray:
        """Share of each topic in each document of the fit."""
        check_is_fitted(self, "nmf_")
        return self.nmf_.proportions(self.W_)

    @property
    def topics(self) -> Any:
        """The topics as a DataFrame, one row each.

        ``share`` is the part of all words that come from the topic, ``n_documents`` the number of
        documents whose main topic it is; the words are those of `topic_words`.
        """
        check_is_fitted(self, "nmf_")
        names, W, components = self.topic_names_, dense(self.W_), dense(self.nmf_.components_)
        main = _main_topics(W * components.sum(axis=1))
        return table_frame(
            {
                "topic": np.arange(len(names)),
                "name": np.array(names, dtype=object),
                "share": component_shares(components, W),
                "n_documents": np.bincount(main[main >= 0], minlength=len(names)),
                "coherence": self.coherence_,
                "words": np.array(self._leading_words(), dtype=object),
            }
        )

    @property
    def documents(self) -> Any:
        """The documents as a DataFrame: metadata, main topic, and the share of each topic.

        A document without known words has the main topic −1.
        """
        shares = self.shares_
        main = _main_topics(shares)
        own = {
            "main_topic": main,
            "main_name": np.array([*self.topic_names_, None], dtype=object)[main],  # -1 is None
            "main_share": np.where(main < 0, np.nan, shares.max(axis=1, initial=0.0)),
        }
        found: dict[str, Any] = {"document": np.array(self.document_names_, dtype=object)}
        found |= {_unless_taken(k, (*found, *own)): v for k, v in self.metadata_.items()} | own
        for name, column in zip(self.topic_names_, shares.T, strict=True):
            found[name if name not in found else f"{name} (topic)"] = column
        return table_frame(found)

    def topic_words(
        self, topic: int | str | None = None, n: int = 10, by: Ranking = RANKING
    ) -> list[Any]:
        """Return the leading words of a topic with their scores, or those of all topics.

        Parameters
        ----------
        topic : int or str, default=None
            Number or name of a topic; None is all topics.
        n : int, default=10
            Number of words.
        by : {"lift", "weight", "frex", "relevance", "kl"}, default="lift"
            How words are ranked, see `klnmf.topics.top_features`.

        Returns
        -------
        list of (str, float), or list of such lists
        """
        check_is_fitted(self, "nmf_")
        leading = top_features(self.nmf_.components_, self.words_, n, by, W=self.W_)
        return leading if topic is None else leading[self._number(topic)]

    def typical_documents(self, topic: int | str, n: int = 5) -> Any:
        """Return the documents that show best what a topic is about, with excerpts.

        They have the largest share · t / (t + t̄), where t is the number of words of the document
        and t̄ the mean of these: documents of a few words come last. Of copies, the first is shown.

        Parameters
        ----------
        topic : int or str
            Number or name of a topic.
        n : int, default=5
            Number of documents.

        Returns
        -------
        pandas.DataFrame
        """
        check_is_fitted(self, "nmf_")
        k, n = self._number(topic), checked_whole("n", n)
        mixture = plsi_probabilities(dense(self.W_), dense(self.nmf_.components_))
        best = typical_samples(mixture, n, self.excerpts_)[k]
        return self._rows(best, share=np.asarray(mixture.component_given_sample)[best, k])

    def similar_documents(
        self, document: int | str | None = None, n: int = 5, *, text: str | None = None
    ) -> Any:
        """Return the documents whose topics are most like those of a document or of a new text.

        The distance is Hellinger's, √(½ Σ_k (√p_k − √q_k)²) for shares p and q: 0 for the same
        shares, 1 if no topic is in both.

        Parameters
        ----------
        document : int or str, default=None
            Number or name of a document of the fit.
        n : int, default=5
            Number of documents.
        text : str, default=None
            A new text, instead of a document.

        Returns
        -------
        pandas.DataFrame
        """
        shares = self.shares_
        n = checked_whole("n", n)
        if (document is None) == (text is None):
            raise ValueError("Pass either a document of the fit (number or name) or text=...")
        place = None if document is None else self._document(document)
        one = self._shares_in([text])[0] if place is None else shares[place]
        if not one.any():
            what = "The text" if place is None else self.document_names_[place]
            raise ValueError(
                f"{what} has no words of the vocabulary, so no document can be compared with it."
            )
        distances = np.sqrt(0.5 * ((np.sqrt(shares) - np.sqrt(one)) ** 2).sum(axis=1))
        distances[~shares.any(axis=1)] = np.inf
        if place is not None:
            distances[place] = np.inf
        nearest = np.argsort(distances, kind="stable")[:n]
        nearest = nearest[np.isfinite(distances[nearest])]
        return self._rows(nearest, distance=distances[nearest])

    def over(self, column: Any, every: Any = None, *, level: float = 0.95) -> Any:
        """Return the mean share of each topic over time, or by any column of the metadata.

        Parameters
        ----------
        column : str or sequence
            Name of a column of ``metadata_``, or a value for each document.
        every : {"decade", "year", "quarter", "month", "week", "day"}, default=None
            Periods of dates. None takes each value as a group.
        level : float, default=0.95
            Level of the intervals of the means, see `klnmf.topics.mean_shares`.

        Returns
        -------
        pandas.DataFrame
            One row for each group and topic: the group, topic, share, lower and upper end of the
            interval, n_documents.
        """
        means = self._means(column, every, level)
        names = {"component": "topic", "n_samples": "n_documents"}
        frame = means.to_frame(self.topic_names_).rename(columns=names)
        if not isinstance(column, str):
            return frame
        return frame.rename(columns={"group": _unless_taken(column, frame.columns)})

    def plot_over(
        self,
        column: Any,
        every: Any = None,
        *,
        topics: Sequence[int | str] | None = None,
        level: float = 0.95,
        ax: Any = None,
    ) -> Any:
        """Plot what `over` returns, with its intervals.

        Parameters
        ----------
        column, every, level
            As in `over`.
        topics : sequence of int or str, default=None
            Topics to show; None shows those of `klnmf.plots.plot_mean_shares`.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        matplotlib Axes
        """
        from klnmf.plots import plot_mean_shares

        means = self._means(column, every, level)
        select = None if topics is None else [self._number(topic) for topic in topics]
        return plot_mean_shares(means, self.topic_names_, select=select, ax=ax)

    def _fitted_in_html(self) -> str:
        if not hasattr(self, "nmf_"):
            return ""
        shares = component_shares(self.nmf_.components_, self.W_)
        leading = self._leading_words()
        state = "converged" if self.fit_facts_["converged"] else "not converged"
        columns = [
            Column("topic", [str(k) for k in range(len(leading))]),
            Column("name", self.topic_names_, is_text=True),
            Column("share", [f"{share:.1%}" for share in shares]),
            Column("words", leading, is_text=True),
        ]
        what = f"{len(self.document_names_):,} documents, {len(self.words_):,} words"
        table = ResultTable(columns, heading=what).html()
        return badge(state, is_good=self.fit_facts_["converged"]) + table

    # ---- inside ----------------------------------------------------------------------------------

    def _shares_in(self, texts: Sequence[Any]) -> FloatArray:
        return self.nmf_.proportions(self.nmf_.transform(self.vectorizer_.transform(texts)))

    def _means(self, column: Any, every: Any, level: float) -> Any:
        check_is_fitted(self, "nmf_")
        values = column
        if isinstance(column, str):
            if column not in self.metadata_:
                there = ", ".join(map(repr, self.metadata_)) or "none"
                raise ValueError(f"There is no column {column!r} of metadata; there are: {there}.")
            values = self.metadata_[column]
        return mean_shares(self.W_, self.nmf_.components_, values, every=every, level=level)

    def _leading_words(self) -> list[str]:
        return [", ".join(word for word, _ in words) for words in self.topic_words()]

    def _rows(self, chosen: npt.NDArray[np.intp], **numbers: Any) -> Any:
        """Return a table of some documents, with these numbers, excerpts and metadata."""
        found: dict[str, Any] = {
            "document": np.array([self.document_names_[i] for i in chosen], dtype=object),
            **numbers,
        }
        columns = {EXCERPT: self.excerpts_, **self.metadata_}
        return table_frame(
            found | {_unless_taken(k, found): [v[i] for i in chosen] for k, v in columns.items()}
        )

    def _number(self, topic: Any) -> int:
        """Return the number of a topic, given by number or name."""
        return _place(topic, self.topic_names_, "topic", ".")

    def _document(self, document: Any) -> int:
        """Return the position of a document, given by number or name."""
        hint = " (the index of a DataFrame). For a new text, pass text=..."
        return _place(document, self.document_names_, "document", hint)


def _place(given: Any, names: list[str], what: str, hint: str) -> int:
    """Return the position of a topic or document, given by number or name."""
    if isinstance(given, Integral) and -len(names) <= int(given) < len(names):
        return int(given) % len(names)
    if names.count(given) > 1:
        raise ValueError(f"Several {what}s are called {given!r}: pass the number of one.")
    if given in names:
        return names.index(given)
    raise ValueError(
        f"There is no {what} {described(given)}: {what}s are numbers from 0 to {len(names) - 1:,}, "
        f"or names such as {names[0]!r}{hint}"
    )


def _unless_taken(name: str, taken: Container[str]) -> str:
    """Return the name of a column of metadata, marked if a column of ours has it."""
    return f"{name} (metadata)" if name in taken else name


def _main_topics(shares: FloatArray) -> npt.NDArray[np.intp]:
    """Topic with the largest share in each document; −1 for a document without known words."""
    return np.where(shares.any(axis=1), shares.argmax(axis=1), -1)
