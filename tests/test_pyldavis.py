"""What is handed to pyLDAvis, and that pyLDAvis takes it where it is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from klnmf.topics import component_shares, pyldavis_arguments
from report_models import random_factors

NAMES = [f"word{j}" for j in range(40)]


def with_gaps() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W, components and counts with an empty document, topic and word, and an unused topic."""
    W, components = random_factors(30, 40, 5)
    W, components = W + 0.01, components + 0.01
    X = np.random.default_rng(0).poisson(W @ components * 20) + 1
    X[3], W[3] = 0, 0.0
    W[4] = 0.0  # counts, but no topic
    W[:, 1] = 0.0  # used by no document
    W[:, 2], components[2] = 1.0, 0.0
    X[:, 7] = 0
    components[:, 8] = 0.0
    return W, components, X


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_add_up_to_one_and_nothing_is_empty(form: type) -> None:
    W, components, X = with_gaps()
    found = pyldavis_arguments(form(W), form(components), form(X), NAMES)
    assert found["topic_term_dists"].shape == (3, 38)
    assert found["doc_topic_dists"].shape == (28, 3)
    assert set(NAMES) - set(found["vocab"]) == {"word7", "word8"}
    for rows in (found["topic_term_dists"], found["doc_topic_dists"]):
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, atol=1e-12)
    kept = np.delete(np.delete(X, [3, 4], axis=0), [7, 8], axis=1)
    np.testing.assert_array_equal(found["doc_lengths"], kept.sum(axis=1))
    np.testing.assert_array_equal(found["term_frequency"], kept.sum(axis=0))
    assert (found["term_frequency"] > 0).all()
    assert (component_shares(components, W)[[0, 3, 4]] > 0).all()
    expected = components[3, found_columns(found)] / components[3].sum()
    np.testing.assert_allclose(found["topic_term_dists"][1], expected / expected.sum())


def found_columns(found: dict[str, list[str]]) -> list[int]:
    return [NAMES.index(name) for name in found["vocab"]]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"X must have shape \(2, 3\).*got shape \(2, 2\)"):
        pyldavis_arguments(np.ones((2, 1)), np.ones((1, 3)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="no document has both counts and topics"):
        pyldavis_arguments(np.zeros((2, 1)), np.ones((1, 3)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="feature_names has 1 names for 3 features"):
        pyldavis_arguments(np.ones((2, 1)), np.ones((1, 3)), np.ones((2, 3)), ["a"])


@pytest.mark.filterwarnings("ignore")  # of pyLDAvis and its dependencies
def test_pyldavis_takes_them(tmp_path: Path) -> None:
    pyldavis = pytest.importorskip("pyLDAvis")
    prepared = pyldavis.prepare(**pyldavis_arguments(*with_gaps(), NAMES), n_jobs=1)
    assert sorted(prepared.topic_coordinates["topics"]) == [0, 1, 2]
    pyldavis.save_html(prepared, str(tmp_path / "page.html"))
    assert "word0" in (tmp_path / "page.html").read_text(encoding="utf-8")
