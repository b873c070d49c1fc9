"""`consensus` of a tensor: planted factors, the null, checkpoints, files and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from klnmf import PoissonCP, RunOptions, SparseTensor
from klnmf.model_selection import consensus
from klnmf.model_selection.consensus_result import Consensus
from klnmf.simulate import simulate_tensor
from klnmf.topics import match_components

PLANTED = simulate_tensor((40, 25, 8), 3, n_counts=12_000, random_state=0)
X = SparseTensor(
    PLANTED.X.coords,
    PLANTED.X.values,
    PLANTED.X.shape,
    mode_names=["who", "what", "when"],
    labels=[
        [f"{name}{i}" for i in range(n)] for name, n in zip("abc", PLANTED.X.shape, strict=True)
    ],
)


def agreed(tensor: SparseTensor = X, n_runs: int = 6, **arguments: Any) -> Consensus:
    return consensus(tensor, 3, n_runs, random_state=0, n_jobs=1, **arguments)


@pytest.fixture(scope="module", name="found")
def consensus_of_planted() -> Consensus:
    return agreed()


def test_runs_agree_on_planted_factors(found: Consensus) -> None:
    assert [factor.shape for factor in found.factors] == [(n, 3) for n in X.shape]
    for factor, planted in zip(found.factors, PLANTED.factors, strict=True):
        np.testing.assert_allclose(factor.sum(axis=0), 1.0)
        assert match_components(factor.T, planted.T).similarity.min() > 0.98
    assert found.run_share.tolist() == [1.0] * 3
    assert found.silhouette.min() > 0.95
    assert found.stability.min() > 0.99
    np.testing.assert_allclose(found.W.sum(), X.total, rtol=1e-4)
    assert "leading what" in str(found)
    assert "leading when" in str(found)


def test_every_mode_of_a_spectrum_has_the_same_length(found: Consensus) -> None:
    for part in np.split(found.spectra, [25], axis=1):
        np.testing.assert_allclose(np.linalg.norm(part, axis=1), np.sqrt(0.5), rtol=1e-5)


def test_the_null_has_no_structure(found: Consensus) -> None:
    assert found.null is not None
    assert found.null.dispersion < 0.02
    assert found.silhouette.min() > found.null.silhouette.max()
    varied = simulate_tensor((30, 20, 8), 3, n_counts=9000, dispersion=0.5, random_state=1).X
    null = agreed(varied, n_runs=4, n_null_runs=2).null
    assert null is not None
    assert null.dispersion == pytest.approx(0.5, rel=0.3)


def test_the_model_transforms_and_is_refined(found: Consensus) -> None:
    model = found.to_model()
    assert isinstance(model, PoissonCP)
    assert abs(model.transform(X) - found.W).max() < 0.05
    assert model.labels_[1][0] == "b0"
    refined = PoissonCP(3).fit(X, start=[found.W, *found.factors[1:]])
    both = agreed(refit="both", n_null_runs=0)
    assert refined.divergence_ == pytest.approx(both.divergence, rel=1e-3)
    assert both.divergence <= found.divergence


def test_it_is_saved_and_loaded(found: Consensus, tmp_path: Path) -> None:
    weights = (np.ones(40), None, np.full(8, 2.0))
    replace(found, mode_weights=weights).save(tmp_path / "c.klnmf")
    loaded = Consensus.load(tmp_path / "c.klnmf")
    assert str(loaded) == str(found)
    assert loaded.mode_weights[1] is None
    assert loaded.mode_weights[2].tolist() == [2.0] * 8
    for own, other in zip(loaded.factors, found.factors, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12)


def test_interrupted_runs_are_resumed(found: Consensus, tmp_path: Path) -> None:
    options = RunOptions(checkpoint=tmp_path / "runs.checkpoint", progress=False)
    agreed(n_runs=3, n_null_runs=2, run=options)
    resumed = agreed(run=options)
    np.testing.assert_array_equal(resumed.spectra, found.spectra)
    np.testing.assert_array_equal(resumed.components, found.components)


def test_weights_exposures_and_missing_cells() -> None:
    generator = np.random.default_rng(0)
    cells = np.stack([generator.integers(0, n, 300) for n in X.shape])
    given = {
        "weights": [None, generator.uniform(0.5, 2.0, 25), None],
        "exposure": generator.uniform(0.5, 2.0, 40),
        "missing": SparseTensor(cells, shape=X.shape),
    }
    found = agreed(n_runs=3, n_null_runs=2, **given)
    for factor, planted in zip(found.factors[1:], PLANTED.factors[1:], strict=True):
        assert match_components(factor.T, planted.T).similarity.min() > 0.97
    assert found.constraint_names == ("weights[1]", "exposure", "missing")


def test_two_modes_are_a_matrix() -> None:
    pair = simulate_tensor((40, 25), 2, n_counts=8000, random_state=0).X
    found = agreed(pair, n_runs=3, n_null_runs=2)
    matrix = consensus(pair.flattened(0)[0], 3, 3, n_null_runs=2, random_state=0, n_jobs=1)
    np.testing.assert_allclose(found.components, matrix.components, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"fixed": [None, np.ones((25, 1)), None]}, ValueError, "does not take fixed"),
        ({"zeros": [None, np.ones((25, 3)), None]}, ValueError, "does not take zeros"),
        ({"l1": 0.1}, ValueError, "does not take l1"),
        ({"sample_weight": np.ones(40)}, TypeError, "sample_weight"),
        ({"feature_names": ["x"] * 25}, ValueError, "labels"),
        ({"init": "nndsvd"}, ValueError, "init must be"),
    ],
)
def test_what_it_cannot_do_is_named(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        agreed(**arguments)
