"""Components and proportions with the samples integrated out."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from benchmarks import growing
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import lfilter

from klnmf import KLNMF, EmptySamplesWarning, RunOptions, _core
from klnmf.simulate import simulate_counts
from klnmf.uncertainty import Dispersion, Posterior, posterior, posterior_chain

# Most tests are content with few sweeps.
pytestmark = pytest.mark.filterwarnings("ignore:The sweeps are too few")

X = simulate_counts(80, 30, 3, counts_per_sample=150, random_state=0).X


@pytest.fixture(scope="module", name="model")
def fitted_model() -> KLNMF:
    return KLNMF(3, random_state=0).fit(X)


@pytest.fixture(scope="module", name="result")
def integrated(model: KLNMF) -> Posterior:
    return posterior(model, X, n_sweeps=150, random_state=0, n_threads=1)


def arrays_of(result: Posterior) -> list[np.ndarray]:
    parts = (result.components, result.proportions, result.sizes)
    return [array for part in parts for array in dataclasses.astuple(part)]


def assert_same_bits(first: Posterior, second: Posterior) -> None:
    for one, other in zip(arrays_of(first), arrays_of(second), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (first.drift, first.effective_draws) == (second.drift, second.effective_draws)


# ---- draws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [0.05, 0.7, 1.0, 2.0, 3.0, 3.5, 9.0, 250.0])
def test_gamma_draws_have_their_distribution(shape: float) -> None:
    draws = np.zeros(20_000)
    _core.gamma_draws(shape, 3, draws)
    assert stats.kstest(draws, "gamma", (shape,)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("n", "p"), [(5, 0.3), (17, 0.02), (100, 0.97), (3000, 0.4), (10**6, 1e-5)]
)
def test_binomial_draws_have_their_distribution(n: int, p: float) -> None:
    draws = np.zeros(20_000, dtype=np.int64)
    _core.binomial_draws(n, p, 4, draws)
    values, seen = np.unique(draws, return_counts=True)
    expected = len(draws) * stats.binom.pmf(values, n, p)
    often = expected >= 5.0
    rest = len(draws) - expected[often].sum()
    observed = np.append(seen[often], seen[~often].sum())
    wanted = np.append(expected[often], rest)
    kept = wanted > 1e-6
    assert observed[~kept].sum() == 0
    assert stats.chisquare(observed[kept], wanted[kept], sum_check=False).pvalue > 1e-3


# ---- results -------------------------------------------------------------------------------------


@settings(max_examples=5, deadline=None)
@given(n_threads=st.integers(2, 9), seed=st.integers(0, 2**31 - 1))
def test_the_number_of_threads_changes_no_bit(model: KLNMF, n_threads: int, seed: int) -> None:
    one = posterior(model, X, n_sweeps=30, random_state=seed, n_threads=1)
    other = posterior(model, X, n_sweeps=30, random_state=seed, n_threads=n_threads)
    assert_same_bits(one, other)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_sums_over_sweeps_are_those_of_numpy(n_threads: int) -> None:
    m, r, generator = 300, 3, np.random.default_rng(0)
    moments, reference = generator.random((2 * m, r)), generator.random((m, r))
    mean, off = moments[:m], moments[:m] - reference
    products = np.hstack([off, (off[:, :, None] * off[:, None, :]).reshape(m, -1)])
    nothing = np.zeros((0, 0))
    for halves, traced in [(np.ones((m, r)), np.ones((m, r + r * r))), (nothing, nothing)]:
        components, batch = np.ones((2 * m, r)), np.ones((m, r))
        sums = (components, batch, halves, reference, traced)
        _core.keep_moments(moments, *sums, n_threads)
        np.testing.assert_allclose(components, 1.0 + moments)
        np.testing.assert_allclose(batch, 1.0 + mean)
        np.testing.assert_allclose(halves, 1.0 + mean if halves.size else halves)
        np.testing.assert_allclose(traced, 1.0 + products if traced.size else traced)


def test_intervals_hold_their_estimates(result: Posterior) -> None:
    for part in (result.components, result.proportions, result.sizes):
        assert (part.lower <= part.estimate).all()
        assert (part.estimate <= part.upper).all()
        np.testing.assert_allclose(part.estimate.sum(axis=1), 1.0)
        assert (part.lower[~part.is_interior & (part.estimate < 0.5)] == 0.0).all()


def test_the_model_goes_on(result: Posterior, model: KLNMF, tmp_path: Any) -> None:
    found = result.model_
    np.testing.assert_allclose(found.components_, result.components.estimate, rtol=1e-6)
    found.save(tmp_path / "x.klnmf")
    loaded = KLNMF.load(tmp_path / "x.klnmf")
    np.testing.assert_array_equal(loaded.transform(X), found.transform(X))
    assert found.data_checksum_ == model.data_checksum_


def test_components_are_better_where_they_share_a_background() -> None:
    generator = np.random.default_rng(0)
    H = generator.dirichlet(np.full(40, 0.3), size=3) + 0.3 / 40
    H /= H.sum(axis=1, keepdims=True)
    P = generator.dirichlet(np.full(3, 0.5), size=600)
    counts = generator.poisson(400 * P @ H)
    start = KLNMF(3, random_state=0).fit(counts, H=H)
    found = posterior(start, counts, n_sweeps=450, random_state=0)
    fitted = start.components_ / start.components_.sum(axis=1, keepdims=True)
    assert abs(found.components.estimate - H).sum() < 0.6 * abs(fitted - H).sum()


def test_a_chain_that_was_cut_goes_on_to_the_same_bits(
    model: KLNMF, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from klnmf.backends.gibbs import Sweeps

    whole = posterior(model, X, n_sweeps=60, random_state=0)
    run = RunOptions(checkpoint=tmp_path / "a.checkpoint", checkpoint_every=0.0)
    sweep = Sweeps.sweep

    def cut(self: Sweeps, number: int, *rest: Any) -> Any:
        if number == 41:
            raise KeyboardInterrupt
        return sweep(self, number, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Sweeps, "sweep", cut)
        with pytest.raises(KeyboardInterrupt):
            posterior(model, X, n_sweeps=60, random_state=0, run=run)
    numbers = []

    def seen(self: Sweeps, number: int, *rest: Any) -> Any:
        numbers.append(number)
        return sweep(self, number, *rest)

    monkeypatch.setattr(Sweeps, "sweep", seen)
    assert_same_bits(whole, posterior(model, X, n_sweeps=60, random_state=0, run=run))
    assert numbers[0] == 41
    with pytest.raises(ValueError, match="n_sweeps"):
        posterior(model, X, n_sweeps=90, random_state=0, run=run)


@pytest.mark.parametrize("at", [2, 15])
def test_a_burn_in_on_some_rows_that_was_cut_goes_on_to_the_same_bits(
    model: KLNMF, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    from klnmf.backends.gibbs import Sweeps

    for name in ("FEWEST_ROWS", "COUNTS_PER_ENTRY"):
        monkeypatch.setattr(posterior_chain, name, 10 if name == "FEWEST_ROWS" else 0)
    whole = posterior(model, X, n_sweeps=60, random_state=0)
    run = RunOptions(checkpoint=tmp_path / "a.checkpoint", checkpoint_every=0.0)
    sweep = Sweeps.sweep

    def cut(self: Sweeps, number: int, *rest: Any) -> Any:
        if number == at:
            raise KeyboardInterrupt
        return sweep(self, number, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Sweeps, "sweep", cut)
        with pytest.raises(KeyboardInterrupt):
            posterior(model, X, n_sweeps=60, random_state=0, run=run)
    assert_same_bits(whole, posterior(model, X, n_sweeps=60, random_state=0, run=run))


def test_an_error_within_a_sweep_leaves_the_checkpoint_of_the_last(
    model: KLNMF, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from klnmf.backends.gibbs import Sweeps

    whole = posterior(model, X, n_sweeps=60, random_state=0)
    run = RunOptions(checkpoint=tmp_path / "a.checkpoint", checkpoint_every=0.0)
    taken = Sweeps._taken
    calls = []

    def fails(self: Sweeps, of_threads: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 80:
            raise MemoryError
        return taken(self, of_threads)

    with monkeypatch.context() as patch:
        patch.setattr(Sweeps, "_taken", fails)
        with pytest.raises(MemoryError):
            posterior(model, X, n_sweeps=60, random_state=0, run=run)
    assert_same_bits(whole, posterior(model, X, n_sweeps=60, random_state=0, run=run))


def test_no_counts_are_refused() -> None:
    nothing = np.zeros((4, 3))
    with pytest.warns(EmptySamplesWarning):
        empty = KLNMF(2, random_state=0).fit(nothing)
    with pytest.raises(ValueError, match="X has no counts"):
        posterior(empty, nothing, random_state=0)


def test_noise_belongs_to_the_checkpoint(model: KLNMF, tmp_path: Any) -> None:
    run = RunOptions(checkpoint=tmp_path / "a.checkpoint")
    posterior(model, X, n_sweeps=30, random_state=0, run=run)
    with pytest.raises(ValueError, match="noise"):
        posterior(model, X, n_sweeps=30, random_state=0, noise="poisson", run=run)


def test_components_without_features_are_refused(model: KLNMF) -> None:
    empty = KLNMF(3, fixed_components=np.zeros((1, X.shape[1])), random_state=0).fit(X)
    with pytest.raises(ValueError, match="Component 0 has no feature"):
        posterior(empty, X, n_sweeps=30, random_state=0)


def test_too_many_counts_of_a_feature_are_refused_in_float32() -> None:
    large = np.array([[2.0**31, 1], [1, 2]], dtype=np.float32)
    with pytest.raises(ValueError, match="at most 2,147,483,647 counts of one feature"):
        posterior(KLNMF(1, random_state=0).fit(large), large, n_sweeps=30, random_state=0)


def test_the_representation_explains_the_totals_of_the_fit(model: KLNMF) -> None:
    some = posterior(model, X, n_sweeps=30, random_state=0, samples=[4, 2])
    W = some.representation()
    totals = np.asarray(model.transform(X) @ model.components_).sum(axis=1)[[4, 2]]
    np.testing.assert_allclose((W @ some.model_.components_).sum(axis=1), totals, rtol=1e-3)


def test_small_shares_are_drawn_in_any_place() -> None:
    n, r, share = 400_000, 8, 5e-7  # 40 counts a row, which are drawn one by one
    for place in (0, r - 1):
        W = np.ones((n, r))
        W[:, place] = share * (r - 1)
        of_features = np.zeros((1, r), dtype=np.int32)
        rows = (np.arange(n + 1), np.zeros(n, np.int32), np.full(n, 40, np.int32))
        prior = (np.ones((1, r)), np.ones((1, r)), np.zeros(1), None)
        sums = (of_features, np.zeros((1, r + 2), dtype=np.int64))
        _core.sweep_rows(*rows, *prior, 1, 0, 1, W, np.zeros((0, r)), *sums)
        # 8 are expected; below 1 they would be 0.03 % of all seeds.
        assert 1 <= of_features[0, place] <= 20


def test_what_is_known_of_components_stays(model: KLNMF) -> None:
    known = model.components_[:1] * 3
    barred = np.zeros((3, 30), dtype=bool)
    barred[2, :5] = True
    partial = KLNMF(3, fixed_components=known, zero_components=barred, random_state=0).fit(X)
    found = posterior(partial, X, n_sweeps=60, random_state=0)
    np.testing.assert_array_equal(found.model_.components_[0], partial.components_[0])
    assert (found.components.upper[2, :5] == 0.0).all()
    np.testing.assert_allclose(found.components.estimate.sum(axis=1), 1.0, rtol=1e-6)
    fixed = found.components.estimate[0]
    np.testing.assert_array_equal(found.components.lower[0], fixed)
    np.testing.assert_array_equal(found.components.upper[0], fixed)
    assert (found.components.upper[1] > found.components.lower[1]).all()


def test_a_count_is_split_by_the_shares_of_its_components() -> None:
    """Counts of one cell, many and few, against the multinomial distribution."""
    H = np.array([[0.5, 0.1, 0.3, 0.0, 0.2, 0.2, 0.1, 0.4, 0.3, 0.6]])
    W = np.arange(1.0, 11.0)
    shares = W * H[0] / (W * H[0]).sum()
    for count in (3, 5000):
        n, r = 400, 10
        of_features = np.zeros((1, r), dtype=np.int32)
        _core.sweep_rows(
            np.arange(n + 1),
            np.zeros(n, dtype=np.int32),
            np.full(n, count, dtype=np.int32),
            H,
            np.ones((2, r)),
            np.log([0.5, 0.5]),
            None,
            7,
            count,
            1,
            np.tile(W, (n, 1)),
            np.zeros((0, r)),
            of_features,
            np.zeros((1, 2 * (r + 2)), dtype=np.int64),
        )
        assert of_features.sum() == n * count
        assert of_features[0, 3] == 0
        used = shares > 0.0
        expected = n * count * shares[used]
        assert stats.chisquare(of_features[0, used], expected).pvalue > 1e-3


def over_dispersed(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    H = generator.dirichlet(np.full(30, 0.3), size=3)
    rates = 300 * generator.dirichlet(np.full(3, 0.4), size=250) @ H
    return generator.poisson(rates * generator.gamma(2.0, 0.5, size=rates.shape)), H


def test_counts_that_vary_more_have_wider_intervals_that_hold() -> None:
    counts, H = over_dispersed(1)
    model = KLNMF(3, random_state=0).fit(counts, H=H)
    found = posterior(model, counts, n_sweeps=600, random_state=0)
    poisson = posterior(model, counts, n_sweeps=600, random_state=0, noise="poisson")
    assert 0.3 < found.dispersion.common < 0.7
    inside = found.components.is_interior
    covered = [
        np.mean(((part.lower <= H) & (part.upper >= H))[inside])
        for part in (found.components, poisson.components)
    ]
    assert covered[0] > 0.85 > covered[1]
    other = posterior(model, counts, n_sweeps=30, random_state=0, n_threads=1)
    assert_same_bits(other, posterior(model, counts, n_sweeps=30, random_state=0, n_threads=3))


def test_missing_cells_are_not_zeros(model: KLNMF) -> None:
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[:60, :10] = True  # of most samples
    seen = np.where(hidden, 0, X.toarray())
    start = KLNMF(3, random_state=0)
    whole = posterior(model, X, n_sweeps=300, random_state=0, noise="poisson")

    def differences(**missing: Any) -> np.ndarray:
        start.fit(seen, H=model.components_, **missing)
        found = posterior(start, seen, n_sweeps=300, random_state=0, noise="poisson", **missing)
        return abs(found.components.estimate - whole.components.estimate).sum(axis=1) / 2

    assert differences(missing=hidden).max() < min(0.12, differences().max() / 2)


def test_few_sweeps_are_said(model: KLNMF, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klnmf.uncertainty.posterior_result.LARGEST_DRIFT", 0.01)
    with pytest.warns(UserWarning, match=r"Pass n_sweeps=60 or more"):
        found = posterior(model, X, n_sweeps=30, random_state=2)
    assert "Warning: The sweeps are too few" in repr(found)
    assert found.drift > 0.01


def test_burn_in_begins_on_some_rows_where_these_are_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from klnmf.backends.gibbs import Sweeps

    generator = np.random.default_rng(0)
    H = generator.dirichlet(np.ones(5), size=2)
    counts = generator.poisson(200 * generator.dirichlet(np.ones(2), size=3100) @ H)
    sizes, begin = [], Sweeps.__init__

    def seen(self: Sweeps, part: Any, *rest: Any) -> None:
        sizes.append(part.shape[0])
        begin(self, part, *rest)

    monkeypatch.setattr(Sweeps, "__init__", seen)
    posterior(KLNMF(2, random_state=0).fit(counts), counts, n_sweeps=30, random_state=0)
    assert sizes == [1000, 3100]


@pytest.mark.parametrize("noise", ["estimated", "poisson"])
@pytest.mark.parametrize("scale", [1, 100_000])
def test_unusual_counts_have_results(noise: Any, scale: int) -> None:
    counts = scale * X.toarray()
    counts[3] = counts[:, 5] = 0
    for rank in (1, 4):
        with pytest.warns(EmptySamplesWarning):
            start = KLNMF(rank, random_state=0).fit(counts)
        found = posterior(start, counts, n_sweeps=30, random_state=0, noise=noise)
        assert np.isnan(found.proportions.lower[3]).all()
        assert np.isfinite(found.components.upper).all()
        assert np.isfinite(np.delete(found.proportions.upper, 3, axis=0)).all()
        np.testing.assert_allclose(found.components.estimate.sum(axis=1), 1.0)


def test_a_component_may_be_without_counts_for_a_sweep() -> None:
    counts = np.eye(3, 4)
    found = posterior(KLNMF(2, random_state=0).fit(counts), counts, n_sweeps=60, random_state=0)
    np.testing.assert_allclose(found.components.estimate.sum(axis=1), 1.0)
    assert np.isfinite(found.sizes.upper).all()


def test_a_penalty_that_leaves_one_component_is_no_obstacle() -> None:
    counts = over_dispersed(2)[0]
    start = KLNMF(3, l1_W=1e3, l1_H=1e3, random_state=0).fit(counts)
    assert (start.components_.sum(axis=1) > 0.0).sum() == 1
    found = posterior(start, counts, n_sweeps=60, random_state=0)
    assert (found.sizes.estimate > 0.02).all()
    assert found.model_.get_params()["l1_W"] == 0.0


def test_few_effective_draws_widen_the_intervals_of_components_and_sizes(
    model: KLNMF, result: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By at most (1 + 1/3) / (1 - 1/3) = 2 times the variance, for three draws."""
    variances = {}
    for draws in (3.0, 1e9):
        monkeypatch.setattr(posterior_chain, "effective_draws", lambda work, draws=draws: draws)
        found = posterior(model, X, n_sweeps=150, random_state=0, n_threads=1)
        np.testing.assert_array_equal(found.components.estimate, result.components.estimate)
        parts = (found.components, found.sizes)
        variances[draws] = [part.standard_error**2 for part in parts]
    for few, many in zip(variances[3.0], variances[1e9], strict=True):
        ratios = few / many
        assert ratios.min() >= 1.0
        assert ratios.max() <= 2.0
        assert ratios.mean() > 1.05


@pytest.mark.parametrize("kept", [0.0, 0.9])
def test_correlation_times_are_those_of_an_autoregression(kept: float) -> None:
    noise = np.random.default_rng(0).standard_normal(20_000)
    series = lfilter([1.0], [1.0, -kept], noise)
    expected = (1.0 + kept) / (1.0 - kept)
    assert posterior_chain.correlation_time(series) == pytest.approx(expected, rel=0.25)


def test_the_benchmark_judges_both_methods() -> None:
    small = growing.Design(n=60, m=20, r=2, depth=100)
    found = growing.measured((small, 0, ("posterior", "bootstrap"), 60, 2))
    assert found["posterior"]["TV"] < 0.3
    assert found["bootstrap"]["components"][1] > 5


@pytest.mark.parametrize("name", ["sample_weight", "fixed_W"])
def test_constraints_that_have_no_probability_are_refused(model: KLNMF, name: str) -> None:
    with pytest.raises(ValueError, match=f"posterior does not take {name}: .*Fit a model without"):
        posterior(model, X, **{name: np.ones(80)})


def test_unknown_arguments_are_told_what_there_is(model: KLNMF) -> None:
    with pytest.raises(TypeError, match=r"By name it takes exposure, missing, run\.$"):
        posterior(model, X, W=np.ones((80, 3)))


def test_exposures_change_sizes_alone(model: KLNMF, result: Posterior) -> None:
    exposure = np.where(model.transform(X).argmax(axis=1) == 0, 0.1, 1.0)
    exposed = KLNMF(3, random_state=0).fit(X, H=model.components_, exposure=exposure)
    found = posterior(exposed, X, n_sweeps=150, random_state=0, exposure=exposure)
    np.testing.assert_allclose(found.components.estimate, result.components.estimate, atol=0.02)
    assert found.sizes.estimate[0, 0] > 1.5 * result.sizes.estimate[0, 0]


def test_a_variance_hardly_above_that_of_poisson_counts_is_theirs(
    model: KLNMF, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_feature = np.full(X.shape[1], 0.02)
    poisson = posterior(model, X, n_sweeps=40, noise="poisson", random_state=0)
    for factor, is_poisson in ((1.01, True), (1.05, False)):
        found = Dispersion(0.02, 0.001, by_feature, factor)
        name = "klnmf.uncertainty.integrated.estimated_dispersion"
        monkeypatch.setattr(name, lambda *_, found=found: found)
        result = posterior(model, X, n_sweeps=40, random_state=0)
        assert result.dispersion.is_poisson == is_poisson
        same = np.array_equal(result.components.estimate, poisson.components.estimate)
        assert same == is_poisson
