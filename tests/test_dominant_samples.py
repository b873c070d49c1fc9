"""A sample that holds much of all counts: it gets one component at most, and fits warn of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from klnmf import KLNMF, DominantSamplesWarning, MiniBatchKLNMF, TopicModel, capped_weights
from klnmf.cli import main
from klnmf.data.dominant_samples import dominant_rows
from klnmf.data.sparse_data import InMemoryData
from klnmf.model_selection import consensus
from klnmf.simulate import simulate_counts
from klnmf.solvers.initialization import sample_start
from klnmf.solvers.swaps import draw_sample, propose_addition

N_FEATURES, N_TOPICS = 300, 8
OTHERS = sp.csr_array(
    simulate_counts(400, N_FEATURES, N_TOPICS, counts_per_sample=100, random_state=0).X
)


def with_dominant(share: float, n_words: int = 100, place: int = 400) -> sp.csr_array:
    """The others and a row of few features that holds this share of all counts."""
    generator = np.random.default_rng(0)
    row = np.zeros((1, N_FEATURES))
    words = generator.choice(N_FEATURES, n_words, replace=False)
    counts = share / (1 - share) * OTHERS.sum() * generator.dirichlet(np.ones(n_words))
    row[0, words] = np.round(counts)
    return sp.csr_array(sp.vstack([OTHERS[:place], row, OTHERS[place:]]))


DOMINATED = with_dominant(0.9)


def fitted(X: sp.csr_array, n_components: int = N_TOPICS + 1, **options: Any) -> tuple[KLNMF, Any]:
    model = KLNMF(n_components, n_threads=1, **options)
    return model, model.fit_transform(X)


@pytest.mark.parametrize("seed", range(3))
def test_it_takes_one_component_and_the_others_are_those_without_it(seed: int) -> None:
    model, W = fitted(DOMINATED, random_state=seed)
    assert np.sum(W[-1] > 0.5 * W.sum(axis=0)) == 1
    assert model.divergence_ < fitted(OTHERS, N_TOPICS, random_state=seed)[0].divergence_


def test_swaps_merge_its_copies_wherever_a_fit_starts() -> None:
    X = with_dominant(0.9, n_words=30)
    for seed in range(3):
        model, W = fitted(X, init="random", random_state=seed)
        assert np.sum(W[-1] > 0.98 * W.sum(axis=0)) == 1
        # With two copies it is 14 % above the fit without the sample, or more.
        best = fitted(OTHERS, N_TOPICS, random_state=seed)[0].divergence_
        assert model.divergence_ < 1.06 * best


def test_the_start_gives_it_the_last_component_and_no_part_in_the_others() -> None:
    data = InMemoryData(sp.csr_array(DOMINATED.astype(np.float64)))
    _, H = sample_start(data, 5, np.random.default_rng(0))
    its_own = DOMINATED[[-1]].toarray()[0] > 0
    in_others = OTHERS.sum(axis=0)[its_own].sum() / OTHERS.sum()
    shares = H[its_own].sum(axis=0)
    assert shares[-1] > 0.5 + 0.4 * in_others
    assert (shares[:-1] < in_others + 0.2).all()
    np.testing.assert_array_equal((H > 0).all(axis=1), DOMINATED.sum(axis=0) > 0)


def test_samples_of_rows_have_it_and_new_components_are_not_drawn_to_it() -> None:
    view = InMemoryData(sp.csr_array(sp.vstack([DOMINATED, *[OTHERS] * 8]))).view(0)
    for seed in range(5):
        sample = draw_sample(view, 4, np.random.default_rng(seed))
        assert len(sample.rows) < view.n_rows / 2
        assert sample.rows[sample.is_dominant].tolist() == [400]
    # A row that is explained, beside others that are not.
    X = sample.X.as_csr().astype(np.float64)
    own = X[sample.is_dominant].toarray()[0]
    others = X[~sample.is_dominant].sum(axis=0) + 1.0
    W = np.zeros((X.shape[0], 2))
    W[sample.is_dominant, 0] = own.sum()
    W[~sample.is_dominant, 1] = X[~sample.is_dominant].sum(axis=1)
    H = np.column_stack([own / own.sum(), others / others.sum()])
    new = propose_addition(sample.X, W, H, np.random.default_rng(0), 3, sample.is_dominant)
    assert new is not None
    overlap = [float(np.minimum(new, profile).sum()) for profile in H.T]
    assert overlap[0] < overlap[1]


@given(sums=st.lists(st.floats(0, 1e15), min_size=1, max_size=60), n_components=st.integers(1, 20))
def test_dominant_rows_are_few_and_the_same_in_any_unit(
    sums: list[float], n_components: int
) -> None:
    row_sums = np.array(sums)
    rows = dominant_rows(row_sums, n_components)
    assert len(rows) < n_components
    assert len(rows) <= np.count_nonzero(row_sums) / 5
    assert (row_sums[rows] * n_components > row_sums.sum() * (1 - 1e-12)).all()
    np.testing.assert_array_equal(rows, dominant_rows(row_sums * 4.0, n_components))


# ---- the warning ---------------------------------------------------------------------------------


def test_a_fit_says_which_sample_it_is_how_much_it_holds_and_what_to_do() -> None:
    X = with_dominant(0.4, place=7)
    with pytest.warns(DominantSamplesWarning) as caught:
        KLNMF(3, max_iter=1, tol=1.0).fit(X)
    assert str(caught[0].message) == (
        "Much of all counts is in 1 of 401 samples: 40 % in row 7. With n_components=3, a "
        "component has 33 % on average, so such a sample can take one for itself. If that is not "
        "wanted, split it into parts, or limit its influence with sample_weight (see "
        "klnmf.capped_weights)."
    )
    named = pd.DataFrame(X.toarray(), index=[f"letter {i}" for i in range(401)])
    with pytest.warns(DominantSamplesWarning, match=r"40 % in row 7 \('letter 7'\)"):
        KLNMF(3, max_iter=1, tol=1.0).fit(named.rename(columns=str))
    with pytest.warns(DominantSamplesWarning, match="row 7"):
        MiniBatchKLNMF(3).fit(X)
    with pytest.warns(DominantSamplesWarning, match="row 7"):
        consensus(X, 3, n_runs=2, n_null_runs=0, density_threshold=2.0)


@pytest.mark.filterwarnings("error::klnmf.DominantSamplesWarning")
def test_there_is_no_warning_where_no_sample_can_take_a_component() -> None:
    X = with_dominant(0.4)
    KLNMF(2, random_state=0).fit(X)  # a component has 50 % on average
    KLNMF(3, random_state=0).fit(X, sample_weight=capped_weights(X))
    # Six samples: 40 % of all counts are less than five times the mean.
    KLNMF(3, random_state=0).fit(np.vstack([np.full((5, 8), 3), np.full((1, 8), 10)]))


def test_a_topic_model_names_the_document_and_its_own_arguments() -> None:
    generator = np.random.default_rng(0)
    words = [f"word{k}" for k in range(60)]
    texts = [" ".join(generator.choice(words, 20)) for _ in range(80)] + ["word1 word2 " * 1000]
    for seeds in (None, {"first": ["word3", "word4"]}):
        with pytest.warns(DominantSamplesWarning) as caught:
            TopicModel(4, seed_words=seeds, random_state=0).fit(texts)
        (message,) = [str(w.message) for w in caught if w.category is DominantSamplesWarning]
        assert "56 % in row 80 ('document 80'). With n_topics=4, " in message
        assert message.endswith("split it into parts.")  # there are no weights to pass


def test_the_command_names_the_sample_and_its_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "counts.csv"
    names = [f"letter {i}" for i in range(401)]
    pd.DataFrame(with_dominant(0.4).toarray(), index=names).to_csv(table)
    model = str(tmp_path / "model.klnmf")
    for command in (["fit", "--max-iter", "1"], ["consensus", "--runs", "4", "--null-runs", "0"]):
        main([command[0], str(table), "-r", "3", "-o", model, *command[1:]])
        said = capsys.readouterr().err
        assert said.count("Much of all counts") == 1
        assert "40 % in row 400 ('letter 400'). With --n-components 3" in said
        assert "with --sample-weight (see klnmf.capped_weights)" in said
        Path(model).unlink()
