"""Numbers behind the report, and the two ways to run a fit again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF, RunOptions
from klnmf.cli.numbers import NUMBERS
from klnmf.report import measures
from klnmf.report.reproduce import IN_FILES, command_line, python_snippet
from klnmf.simulate import simulate_counts
from klnmf.topics import plsi_probabilities


def test_typical_samples_are_not_the_shortest_ones() -> None:
    W = np.array([[0.1, 0.0], [50.0, 2.0], [30.0, 0.0], [1.0, 40.0]])
    probabilities = plsi_probabilities(W, np.ones((2, 3)))
    assert probabilities.component_given_sample[0].tolist() == [1.0, 0.0]
    found = measures.typical_samples(probabilities, 3)
    assert found[0].tolist() == [1, 2, 3]  # not the first, which holds next to nothing
    assert found[1].tolist() == [3, 1]  # none with a share of 0


def test_places_on_the_map_show_the_distances() -> None:
    words = np.array([[1.0, 0, 0, 0], [0.9, 0.1, 0, 0], [0, 0, 1.0, 0], [0, 0, 0.9, 0.1]])
    places = measures.topic_positions(words)
    assert np.abs(places).max() == pytest.approx(1.0)
    near = np.linalg.norm(places[0] - places[1]), np.linalg.norm(places[2] - places[3])
    far = np.linalg.norm(places[0] - places[2])
    assert max(near) < 0.5 * far
    assert measures.topic_positions(np.ones((1, 3)) / 3).tolist() == [[0.0, 0.0]]


def test_measures_follow_their_definitions() -> None:
    components = np.array([[2.0, 2.0, 0.0], [0.0, 1.0, 3.0], [0.0, 0.0, 0.0]])
    found = plsi_probabilities(np.array([[1.0, 1.0, 5.0], [0.0, 0.0, 1.0]]), components)
    assert measures.effective_words(found)[[0, 2]].tolist() == pytest.approx([2.0, 0.0])
    # Of the first topic half is a word of its own, half one that is 2/3 its own.
    assert measures.exclusivity(found)[0] == pytest.approx(0.5 + 0.5 * 2 / 3)


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
    assert "random_state=None,  # was a RandomState" in snippet
    assert "a callback was set" in snippet
    compile(snippet, "snippet", "exec")


def test_command_line_quotes_what_the_shell_would_read() -> None:
    command = command_line(KLNMF(3, tol=1e-4, dtype=np.float64), {"input": "a b; rm *.npz"})
    assert command.startswith("klnmf fit 'a b; rm *.npz' --n-components 3 --solver srcd ")
    assert " --tol 0.0001 " in command
    assert command.endswith(" --dtype float64")
    assert "random-state" not in command  # not set


def test_snippet_and_command_say_what_was_known(tmp_path: Path) -> None:
    """What `fit` was told besides X is named, so that running it again is the same fit."""
    X, _, H = simulate_counts(30, 12, 3, counts_per_sample=80, random_state=0)
    told: dict[str, Any] = {"missing": sp.csr_array(np.eye(30, 12)), "exposure": np.arange(1, 31)}
    model = KLNMF(3, random_state=0, fixed_components=H.T[:1]).fit(X, **told)
    model.save(tmp_path / "m.klnmf")
    for known in (model, KLNMF.load(tmp_path / "m.klnmf")):
        snippet = python_snippet(known, {})
        last = "W = model.fit_transform(X, exposure=exposure, missing=missing)  # not saved with"
        assert snippet.splitlines()[-1].startswith(last)
        namespace = {"X": X, "fixed_components": known.components_[:1], **told}
        exec(snippet, namespace)
        np.testing.assert_array_equal(namespace["model"].components_, model.components_)
        command = command_line(known, {"input": "counts.npz"})
        assert command == (
            "# not available on the command line: fixed_components, missing can only be passed in "
            "Python"
        )
    weighted = KLNMF(3, random_state=0).fit(X, exposure=told["exposure"])
    remark, command = command_line(weighted, {"input": "counts.npz"}).splitlines()
    assert remark == "# exposure.txt: exposure of the fit, one number per line"
    assert command.endswith(" --exposure exposure.txt")
    assert set(IN_FILES) == set(NUMBERS)


def test_no_command_carries_fixed_components() -> None:
    model = KLNMF(3, fixed_components=[[1.0, 0.0, 1.0]])
    assert command_line(model, {}).startswith(
        "# not available on the command line: fixed_components"
    )
    assert python_snippet(model, {}).endswith("W = model.fit_transform(X)")


def test_names_from_a_file_are_no_code() -> None:
    model = KLNMF(3)
    model.constraint_names_ = ["missing", "X); print(1", "a\nrm -r"]
    assert "print(1" not in python_snippet(model, {})
    assert "\n" not in command_line(model, {})
