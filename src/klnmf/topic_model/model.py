"""`TopicModel`: parameters, fitted attributes and methods."""

import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from klnmf.data.validation import warn_of_empty_samples
from klnmf.estimators.arguments import explains_misplaced
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.saved.columns import EXCERPT
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.descriptions import described
from klnmf.support.number_checks import is_missing
from klnmf.texts.documents import excerpt_of
from klnmf.topic_model.corpus import OPTIONS, corpus_of, counted, vectorizer_to_fit
from klnmf.topic_model.document_checks import counted_documents, deviance_ratios
from klnmf.topic_model.files import load_topic_model, save_topic_model
from klnmf.topic_model.fitting import (
    check_parameters,
    facts_of_fit,
    fitted_nmf,
    groups_of_topics,
    merged_model,
)
from klnmf.topic_model.statements import code_of_fit, statement
from klnmf.topic_model.views import TopicViews
from klnmf.topics import coherence, name_components
from klnmf.topics.checks import dense
from klnmf.uncertainty import Posterior


class TopicModel(TopicViews, TransformerMixin, BaseEstimator):
    """Topics of a collection of texts: a `KLNMF` of the counts of scikit-learn's CountVectorizer.

    Parameters
    ----------
    n_topics : int, "auto" or sequence of int, default=20
        Number of topics. "auto" chooses it from 1 to 40 with
        `klnmf.model_selection.select_rank`, a sequence from its numbers; both take as long as many
        fits. The choice is the ``stable_rank`` of ``rank_selection_``, the number for reading: the
        largest one whose topics other documents would give too. Its ``best_rank``, which predicts
        best, may be far larger.
    stop_words : str, path or list, default=None
        Words to leave out: those of a language, such as "english" or "german" (others than English
        need the extra ``texts``), of a file with one word per line, or a list of words. Several
        languages are a list of them, or one str: "english,german".
    min_df : int or float, default=2
        Leave out words that are in fewer documents: a number, or a share if it is a float.
    max_df : int or float, default=0.5
        Leave out words that are in more documents.
    max_features : int, default=None
        Keep only so many words, the most frequent ones.
    ngram_range : tuple of two int, default=(1, 1)
        Count words alone, (1, 1), or also pairs of words, (1, 2).
    vectorizer : CountVectorizer, default=None
        A CountVectorizer with other settings, in place of the five parameters above.
    seed_words : dict of list of str, or list of list of str, default=None
        Words of topics that are wanted. These topics come first, under their names in the dict. A
        seed word is in its topic only, and its topic has no words that are rarer in the documents
        with its seeds than in all documents. The other topics are learned freely from the other
        words; there must be at least one.
    nmf : KLNMF, default=None
        A KLNMF with other settings. Its ``n_components`` is replaced.
    n_threads, random_state
        As in `KLNMF`; they replace those of ``nmf`` unless they are None.

    Attributes
    ----------
    nmf_ : KLNMF
        The fitted model: ``components_``, ``divergence_``, ``converged_``, ...
    vectorizer_ : CountVectorizer
        The fitted vectoriser.
    words_ : ndarray of str
        The vocabulary, in the order of the columns of ``nmf_.components_``.
    counts_ : CSR matrix of shape (n_documents, n_words), or None
        Counts of the words. None after `load`, because files do not hold them.
    W_ : ndarray of shape (n_documents, n_topics)
        Words of each document that come from each topic.
    shares_ : ndarray of shape (n_documents, n_topics)
        W_ divided by its row sums.
    topic_names_ : list of str
        Names of the topics: their leading words, or what `rename` and ``seed_words`` say.
    coherence_ : ndarray of shape (n_topics,)
        NPMI of the top ten words of each topic in these documents (`klnmf.topics.coherence`).
    document_names_, excerpts_ : list of str
        Names and beginnings of the documents.
    metadata_ : dict of list
        Columns with a value for each document.
    rank_selection_ : RankSelection or None
        How the number of topics was chosen.
    deviance_ratio_ : ndarray of shape (n_documents,), or None
        Deviance of each document, divided by what the model expects if counts are Poisson: about 1
        for most, and above 2 for those that the model explains badly. NaN for a document without
        words. None after `load`.
    fit_facts_ : dict
        Number of topics, iterations, optimality gap and convergence of the fit, before any merge;
        where its texts were read, which topics were merged then, and how many documents are
        missing, without words, copies, or explained badly.

    Examples
    --------
    >>> from klnmf import TopicModel
    >>> texts = ["a ship at sea", "the ship left harbour", "corn and rain", "rain on corn"]
    >>> model = TopicModel(2, random_state=0).fit(texts)
    >>> sorted(model.topic_names_)
    ['corn, rain', 'ship']
    >>> model.transform(["a ship in the rain"]).round(1).tolist()
    [[0.5, 0.5]]
    """

    @explains_misplaced
    def __init__(
        self,
        n_topics: int | str | Sequence[int] = 20,
        *,
        stop_words: Any = OPTIONS["stop_words"],
        min_df: float = OPTIONS["min_df"],
        max_df: float = OPTIONS["max_df"],
        max_features: int | None = OPTIONS["max_features"],
        ngram_range: tuple[int, int] = OPTIONS["ngram_range"],
        vectorizer: Any = None,
        seed_words: Any = None,
        nmf: KLNMF | None = None,
        n_threads: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_topics = n_topics
        self.stop_words = stop_words
        self.min_df = min_df
        self.max_df = max_df
        self.max_features = max_features
        self.ngram_range = ngram_range
        self.vectorizer = vectorizer
        self.seed_words = seed_words
        self.nmf = nmf
        self.n_threads = n_threads
        self.random_state = random_state

    # ---- fit and transform -----------------------------------------------------------------------

    def fit(
        self,
        texts: Any,
        y: Any = None,
        *,
        text: str | None = None,
        metadata: Any = None,
        encoding: str | None = None,
        skip_unreadable: bool = False,
    ) -> Self:
        """Learn the topics of texts.

        Parameters
        ----------
        texts : sequence of str or of Path, Series, DataFrame, str or Path
            The documents: texts; a DataFrame with its column ``text``; paths of text files; or the
            path of a folder, .csv, .jsonl or .parquet file. For more options of reading, pass the
            result of `klnmf.readers.read_documents`. Missing texts (None, NaN) count as empty; a
            warning says how many there are.
        y : Ignored
            For scikit-learn's pipelines.
        text : str, default=None
            Column or field of the texts, for DataFrames and files with several of them. The other
            columns are metadata.
        metadata : DataFrame, mapping of str to sequence, or sequence, default=None
            Values for each document: dates, authors, ratings. A sequence is the column "label".
        encoding : str, default=None
            Encoding of files; None is UTF-8.
        skip_unreadable : bool, default=False
            Whether to leave out files and records that cannot be decoded or parsed, with a warning
            that names them.

        Returns
        -------
        self
        """
        if isinstance(y, Mapping) or hasattr(y, "columns"):
            raise TypeError("Pass metadata by name: fit(texts, metadata=...).")
        check_parameters(self)
        options = {name: getattr(self, name) for name in OPTIONS}
        vectorizer = vectorizer_to_fit(self.vectorizer, options)
        corpus = corpus_of(
            texts, text, metadata, encoding=encoding, skip_unreadable=skip_unreadable
        )
        X = counted(vectorizer, corpus.texts)
        words = vectorizer.get_feature_names_out()
        documents = list(corpus.names or ())
        is_empty = np.diff(X.indptr) == 0
        warn_of_empty_samples(is_empty, np.array(documents, dtype=object), corpus.texts)
        nmf, W, self.rank_selection_, names = fitted_nmf(self, X, words, documents)
        excerpts = corpus.metadata.pop(EXCERPT, None) or map(excerpt_of, corpus.texts)
        self.excerpts_ = ["" if is_missing(excerpt) else excerpt for excerpt in excerpts]
        self.document_names_, self.metadata_ = documents, corpus.metadata
        self._set_fitted(nmf, vectorizer, W, X)
        self.deviance_ratio_ = deviance_ratios(X, dense(W), dense(nmf.components_), nmf.n_threads)
        counts = counted_documents(corpus.texts, X, self.deviance_ratio_)
        self.fit_facts_ = facts_of_fit(nmf)
        self.fit_facts_ |= {"source": corpus.source, "merges": [], "documents": counts}
        self._set_names([*names, *self.topic_names_[len(names) :]])
        return self

    def transform(
        self,
        texts: Any,
        *,
        text: str | None = None,
        encoding: str | None = None,
        skip_unreadable: bool = False,
    ) -> FloatArray:
        """Return the share of each topic in new texts.

        The words of a text are counted with the vocabulary of the fit, and its W is the best one
        for these topics. For W in counts, use ``nmf_.transform(vectorizer_.transform(texts))``.

        Parameters
        ----------
        texts, text, encoding, skip_unreadable
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_documents, n_topics)
            Rows that sum to 1, or zeros for a text without known words.
        """
        check_is_fitted(self, "nmf_")
        found = corpus_of(texts, text, encoding=encoding, skip_unreadable=skip_unreadable)
        return self._shares_in(found.texts)

    def fit_transform(self, texts: Any, y: Any = None, **options: Any) -> FloatArray:
        """Learn the topics of texts and return their shares in each text, ``shares_``.

        Parameters
        ----------
        texts, y, **options
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_documents, n_topics)
        """
        return self.fit(texts, y, **options).shares_

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the topics, which are the columns of `transform`."""
        check_is_fitted(self, "nmf_")
        return np.array(self.topic_names_, dtype=object)

    # ---- names and merges ------------------------------------------------------------------------

    def rename(self, names: Mapping[int | str, str]) -> Self:
        """Give topics names, as in ``rename({3: "The sea"})``.

        Parameters
        ----------
        names : mapping of int or str to str
            New names by the number or present name of the topics.

        Returns
        -------
        self
        """
        check_is_fitted(self, "nmf_")
        if not isinstance(names, Mapping):
            raise TypeError(f"rename takes a dict, as in {{3: 'The sea'}}; got {described(names)}.")
        new = list(self.topic_names_)
        for topic, name in names.items():
            new[self._number(topic)] = _one_line(name)
        self._set_names(new)
        return self

    def merge(self, topics: Sequence[Sequence[int | str]]) -> Self:
        """Merge topics, as in ``merge([[2, 5], [7, 8, 9]])``.

        The columns of W of merged topics are added, and their components averaged:
        h = Σ_k s_k h_k / Σ_k s_k, where s_k is the sum of column k of W. The new topic takes the
        place of the first of them, and the first name that you gave to one of them; without any it
        is named by its words. The numbers of later topics change.
        `transform` then uses the merged topics. The divergence is evaluated anew. It is higher
        than before, and the model is no longer a stationary point: ``nmf_.converged_`` is False.

        Parameters
        ----------
        topics : sequence of sequences of int or str
            Numbers or names of the topics to merge into one.

        Returns
        -------
        self
        """
        check_is_fitted(self, "nmf_")
        if isinstance(topics, str) or any(isinstance(g, str | Integral) for g in topics):
            raise TypeError(
                f"merge takes lists of topics, as in [[2, 5]]; got {described(topics)}."
            )
        merged = [[self._number(topic) for topic in group] for group in topics]
        groups = groups_of_topics(merged, len(self.topic_names_))
        old, by_words = self.topic_names_, self._names_by_words()
        nmf, W = merged_model(self.nmf_, self.W_, self.counts_, groups)
        self._set_fitted(nmf, self.vectorizer_, W, self.counts_)
        self.fit_facts_ |= {"merges": [*self.fit_facts_.get("merges", []), merged]}
        for place, group in enumerate(groups):
            given = [old[k] for k in group if old[k] != by_words[k]]
            if given:
                self.topic_names_[place] = given[0]
        return self

    def posterior(self, n_sweeps: int = 1500, **options: Any) -> Posterior:
        """Estimate the topics once more, with the documents' shares integrated out.

        Topics that share many words come out closer to the truth than in the fit, and their words
        and the documents' shares have intervals closer to their level
        (`klnmf.uncertainty.posterior`). This model stays as it is; pass the result to `report` to
        show the intervals.

        Parameters
        ----------
        n_sweeps, **options
            As in `klnmf.uncertainty.posterior`; by default, ``n_threads`` and ``random_state`` are
            those of the model.

        Returns
        -------
        Posterior
            ``components`` are the topics, in their order, and ``proportions`` the shares.
        """
        from klnmf.uncertainty import posterior

        check_is_fitted(self, "nmf_")
        if self.counts_ is None:
            raise ValueError(
                "posterior needs the counts of the words, which a file does not hold. Fit again, "
                "or call klnmf.uncertainty.posterior(model.nmf_, model.vectorizer_.transform("
                "texts)) with the texts of the fit."
            )
        return posterior(
            self.nmf_,
            self.counts_,
            n_sweeps=n_sweeps,
            feature_names=list(self.words_),
            **{"n_threads": self.n_threads, "random_state": self.random_state, **options},
        )

    # ---- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model, its names and its documents' shares and metadata, to one file.

        It is a model file (docs/format.md): `klnmf.load_model` and the commands ``klnmf topics``,
        ``transform`` and ``report`` read it too. The texts are not in it, but their beginnings are.

        Parameters
        ----------
        path : str or path
            File to write, usually with the ending ``.klnmf``.
        """
        check_is_fitted(self, "nmf_")
        save_topic_model(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a model that `save`, or ``klnmf fit`` with texts, wrote.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        TopicModel
        """
        model: Self = load_topic_model(cls, path)
        return model

    def report(
        self, path: str | os.PathLike[str], *, title: str | None = None, intervals: Any = None
    ) -> Path:
        """Write an HTML page about the topics and documents (`klnmf.report.write_report`).

        Parameters
        ----------
        path : str or path
            File to write, such as ``"report.html"``.
        title : str, default=None
            Title of the page.
        intervals : Posterior or Bootstrap, default=None
            What `posterior` returned, to be shown on the page.

        Returns
        -------
        pathlib.Path
        """
        from klnmf.report import write_report

        check_is_fitted(self, "nmf_")
        return write_report(
            path,
            self.nmf_,
            self.W_,
            self.counts_,
            feature_names=self.words_,
            sample_names=self.document_names_,
            documents=self.excerpts_,
            component_names=self.topic_names_,
            coherence=self.coherence_,
            metadata=self.metadata_,
            vocabulary="texts",
            title=title,
            parameters={"python": code_of_fit(self)},
            rank_selection=self.rank_selection_,
            intervals=intervals,
        )

    def summary(self) -> str:
        """Return what a paper says about the fit: data, words, topics, convergence, versions."""
        check_is_fitted(self, "nmf_")
        return statement(self)

    # ---- inside ----------------------------------------------------------------------------------

    def _set_fitted(self, nmf: KLNMF, vectorizer: Any, W: Any, counts: Any) -> None:
        """Set what follows from a model and its W."""
        self.nmf_, self.vectorizer_, self.W_, self.counts_ = nmf, vectorizer, W, counts
        self.words_ = vectorizer.get_feature_names_out()
        self.topic_names_ = self._names_by_words()
        self.coherence_: FloatArray = (
            np.full(len(self.topic_names_), np.nan)
            if counts is None
            else coherence(nmf.components_, counts, "npmi")
        )

    def _names_by_words(self) -> list[str]:
        return name_components(self.nmf_.components_, self.words_)

    def _set_names(self, names: Any) -> None:
        if len(names) != self.nmf_.n_components_ or not all(isinstance(n, str) for n in names):
            raise TypeError(f"The names of topics must be {self.nmf_.n_components_} str.")
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"Two topics would have the name {twice.pop()!r}.")
        self.topic_names_ = list(names)

    def __sklearn_tags__(self) -> Any:
        """Declare that the input is a sequence of texts."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


def _one_line(name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or len(name.splitlines()) > 1:
        raise ValueError(f"The name of a topic must be one line of text; got {described(name)}.")
    return name
