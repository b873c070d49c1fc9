"""Numbers behind the report, and the two ways to run a fit again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf import KLNMF, RunOptions
from klnmf.report import measures
from klnmf.report.reproduce import python_snippet
from klnmf.simulate import simulate_counts
from klnmf.topics import plsi_probabilities


def test_typical_samples_are_not_the_shortest_ones() -> None:
    W = np.array([[0.1, 0.0], [50.0, 2.0], [30.0, 0.0], [1.0, 40.0]])
    probabilities = plsi_probabilities(W, np.ones((2, 3)))
    assert probabilities.component_given_sample[0].tolist() == [1.0, 0.0]
    found = measures.typical_samples(probabilities, 3)
    assert found[0].tolist() == [1, 2, 3]  # not the first, which holds next to nothing
    assert found[1].tolist() == [3, 1]  # none with a share of 0


def test_snippet_fits_the_same_model_again() -> None:
    model = KLNMF(3, random_state=np.int64(4), dtype=np.float32, l1_W=0.5, l1_H=0.5)
    namespace: dict[str, Any] = {"X": np.eye(4)}
    snippet = python_snippet(model, {"weighting": "tf\nidf"})
    assert "# weighting = 'tf\\nidf'" in snippet
    exec(snippet, namespace)
    assert namespace["model"].get_params() == model.get_params()
    assert namespace["W"].shape == (4, 3)


def test_snippet_says_what_it_cannot_hold() -> None:
    model = KLNMF(2, random_state=np.random.RandomState(0), run=RunOptions(callback=print))
    snippet = python_snippet(model, {})
    assert "# random_state was a RandomState" in snippet
    assert "A callback was set" in snippet
    compile(snippet, "snippet", "exec")


def test_snippet_says_what_was_known(tmp_path: Path) -> None:
    """What `fit` was told besides X is named, so that running it again is the same fit."""
    X, _, H = simulate_counts(30, 12, 3, counts_per_sample=80, random_state=0)
    told: dict[str, Any] = {"missing": sp.csr_array(np.eye(30, 12)), "exposure": np.arange(1, 31)}
    model = KLNMF(3, random_state=0, fixed_components=H.T[:1]).fit(X, **told)
    model.save(tmp_path / "m.klnmf")
    for known in (model, KLNMF.load(tmp_path / "m.klnmf")):
        snippet = python_snippet(known, {})
        put_in = {"fixed_components": known.components_[:1], **told}
        for name in put_in:
            line = f"{name} = ...  # put in {name} of the fit: this page has no copy\n"
            assert line in snippet
            snippet = snippet.replace(line, "")
        namespace = {"X": X, **put_in}
        exec(snippet, namespace)
        np.testing.assert_array_equal(namespace["model"].components_, model.components_)


def test_names_from_a_file_are_no_code() -> None:
    model = KLNMF(3)
    model.constraint_names_ = ["missing", "X); print(1", "a\nrm -r"]
    assert "print(1" not in python_snippet(model, {})
