"""Which ranking of the features a reader would want: rankings compared on texts and cells.

    python -m benchmarks.rankings --data DIR

Half of the samples are fitted. For the ten leading features of each component, by each ranking,
prints

- the coherence (NPMI) of the features in the other half. Features that do not occur there are left
  out, which is kind to rankings by rare ones;
- how many of the component's own samples, those in which it is the largest, have a feature (%);
- in how many of all samples the rarest of the ten features is (median over the components);
- how many of the features are shown for one component only (%).

The corpora: the embedded Bible; docstrings of NumPy, SciPy, pandas and scikit-learn as installed;
20 Newsgroups without stop words; Reuters and TDT2; and cells (PBMC3k).
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import rankdata
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from benchmarks.common import add_data_argument, load_matrix
from klnmf import KLNMF
from klnmf.datasets import load_bible
from klnmf.topics import coherence
from klnmf.topics.features import leading_features

N_TOP = 10
FILES = ("20newsgroups_qwone", "reuters21578", "tdt2_top30", "pbmc3k")
SETS = ("bible", "docstrings", *FILES)
Lists = list[Any]  # columns of the leading features, for each component


def counts_of(name: str, folder: Path | None) -> tuple[sp.csr_array, Sequence[str]]:
    """Return counts and names of one data set, without features of fewer than 5 samples."""
    if name == "bible":
        bible = load_bible()
        return sp.csr_array(bible.data, dtype=np.float32), list(bible.feature_names)
    if name == "docstrings":
        word = r"(?u)\b[a-zA-Z]{3,}\b"
        counter = CountVectorizer(min_df=5, max_df=0.3, token_pattern=word, stop_words="english")
        X = counter.fit_transform(docstrings())
        return sp.csr_array(X, dtype=np.float32), list(counter.get_feature_names_out())
    X = load_matrix(folder, name)
    named = Path(folder or "") / f"{name}.vocab.txt"
    names = (
        np.array(named.read_text(encoding="utf-8").splitlines()[: X.shape[1]])
        if named.exists()
        else np.array([f"word {j}" for j in range(X.shape[1])])
    )
    occurs = np.bincount(X.indices, minlength=X.shape[1])
    kept = occurs >= 5
    if name.startswith("20news"):
        kept &= (occurs <= 0.3 * X.shape[0]) & ~np.isin(names, list(ENGLISH_STOP_WORDS))
    return sp.csr_array(X[:, kept]), list(names[kept])


def docstrings() -> list[str]:
    """Different docstrings of public functions and classes, of more than 300 characters."""
    found: dict[str, None] = {}
    for package in ("numpy", "scipy", "pandas", "sklearn"):
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}.", onerror=lambda _: None):
            if any(part in module.name for part in ("._", "test", "f2py", "distutils")):
                continue
            try:
                members = vars(importlib.import_module(module.name))
            except Exception:  # optional parts of these packages
                continue
            for name, value in members.items():
                is_code = inspect.isfunction(value) or inspect.isclass(value)
                text = inspect.getdoc(value) if is_code and not name.startswith("_") else None
                if text and len(text) > 300 and (value.__module__ or "").startswith(package):
                    found[text] = None
    return list(found)


def frex_of_heavy(share: float) -> Callable[[Any], Lists]:
    """FREX among the heaviest features that make up a share of each component."""

    def lists(components: Any) -> Lists:
        p = components / components.sum(axis=1, keepdims=True)
        found = []
        for row in p:
            order = np.argsort(-row, kind="stable")
            heavy = order[: np.searchsorted(np.cumsum(row[order]), share) + 1]
            frequency = rankdata(row[heavy], method="max")
            exclusivity = rankdata(np.round(row[heavy] / p[:, heavy].sum(axis=0), 12), method="max")
            score = -2.0 / (1.0 / frequency + 1.0 / exclusivity)
            found.append(heavy[np.lexsort((-row[heavy], score))[:N_TOP]])
        return found

    return lists


def by(ranking: Any) -> Callable[[Any], Lists]:
    """Return a ranking of the library."""
    return lambda components: leading_features(components, N_TOP, ranking).features


RANKINGS: dict[str, Callable[[Any], Lists]] = {
    "lift": by("lift"),
    "weight": by("weight"),
    "relevance, λ = 0.6": by("relevance"),
    "kl": by("kl"),
    "frex": by("frex"),
    "frex, heaviest 50 %": frex_of_heavy(0.5),
    "frex, heaviest 80 %": frex_of_heavy(0.8),
}


def measured(lists: Lists, components: Any, W: Any, X: Any, others: Any) -> tuple[float, ...]:
    """Return the four measures of the module's docstring."""
    shown = np.zeros(components.shape)
    for k, features in enumerate(lists):
        shown[k, features] = 1.0
    held_out = np.nanmean(coherence(shown, others, n_top=N_TOP, by="weight"))
    occurs = sp.csc_array(X > 0, dtype=np.float64)
    main = W.argmax(axis=1)
    own = [occurs[main == k][:, features].mean() for k, features in enumerate(lists)]
    rarest = np.median([occurs[:, features].sum(axis=0).min() for features in lists])
    alone = (shown.sum(axis=0) == 1).sum() / shown.sum()
    return float(held_out), 100 * float(np.nanmean(own)), float(rarest), 100 * float(alone)


def main() -> None:
    """Compare the rankings."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_data_argument(parser)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--r", type=int, default=20)
    parser.add_argument("--show", type=int, default=0, help="components whose features are printed")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # imports of all modules
    print("coherence / own samples with one / samples of the rarest / in one component only\n")
    for name in args.sets:
        X, names = counts_of(name, args.data)
        half = np.random.default_rng(0).random(X.shape[0]) < 0.5
        fitted, others = X[half], X[~half]
        model = KLNMF(args.r, random_state=0)
        W, components = model.fit_transform(fitted), model.components_.astype(np.float64)
        print(f"{name}: {fitted.shape[0]:,} of {X.shape[0]:,} samples, {X.shape[1]:,} features")
        for label, ranked in RANKINGS.items():
            lists = ranked(components)
            numbers = measured(lists, components, W, fitted, others)
            print(f"  {label:20s}", "{:6.3f} / {:3.0f} % / {:4.0f} / {:3.0f} %".format(*numbers))
            for k in range(args.show):
                print("     ", ", ".join(names[j] for j in lists[k]))


if __name__ == "__main__":
    main()
