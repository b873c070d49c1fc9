"""Plots and tables of the components of a tensor."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt

from event_files import model_of_sales
from klnmf import KLNMF, PoissonCP, SparseTensor
from klnmf.plots import plot_components, plot_history
from klnmf.simulate import simulate_tensor
from klnmf.topics import format_components, top_features
from klnmf.topics.modes import names_by_labels


@pytest.fixture(autouse=True)
def no_window() -> Iterator[None]:
    mpl.use("Agg")
    yield
    plt.close("all")


def test_bars_and_lines() -> None:
    model = model_of_sales()
    axes = plot_components(model, component_names=["Food", "Office"])
    assert axes.shape == (2, 3)
    assert axes[0, 0].get_title(loc="left") == "0  Food: customer"
    assert axes[0, 2].get_title(loc="left") == "date"
    assert axes[0, 2].get_title(loc="right") == "59.5%"
    expected = top_features(model.factors_[1].T, model.labels_[1], 6)[0]
    shown = [label.get_text() for label in axes[0, 1].get_yticklabels()]
    assert shown == [label for label, _ in expected]
    _, line = axes[1, 2].get_lines()
    np.testing.assert_allclose(line.get_ydata(), model.factors_[2][:, 1], rtol=1e-6)
    assert len(axes[1, 0].patches) > 0
    axes[0, 0].figure.draw_without_rendering()
    ticks = [tick.get_text() for tick in axes[0, 2].get_xticklabels()]
    assert ticks[0] == model.labels_[2][0]
    assert ticks[-1] == model.labels_[2][-1]


def test_choices() -> None:
    model = model_of_sales()
    assert plot_components(model, select=[1]).shape == (1, 3)
    axes = plot_components(model, n_top=1)
    assert len(axes[0, 1].get_lines()) == 0
    assert len(axes[0, 1].patches) == 1
    given = plt.subplots(2, 3)[1]
    assert plot_components(model, axes=given)[1, 2] is given[1, 2]
    plot_history(model)


def test_errors() -> None:
    model = model_of_sales()
    with pytest.raises(TypeError, match="model must be a fitted PoissonCP"):
        plot_components(PoissonCP(2))
    with pytest.raises(TypeError, match="model must be a fitted PoissonCP"):
        format_components(KLNMF(2))
    with pytest.raises(ValueError, match="places"):
        plot_components(model, axes=plt.subplots(1, 2)[1])


def test_labels_go_below_a_long_course() -> None:
    X = simulate_tensor((20, 10, 54), 2, n_counts=2_000, random_state=0).X
    weeks = np.arange("2023-01-02", "2024-01-15", 7, dtype="M8[D]")[:54]
    labels = [None, None, weeks]
    X = SparseTensor(X.coords, X.values, X.shape, labels=labels)
    lines = format_components(PoissonCP(2, random_state=0).fit(X), 3).split("\n")
    assert max(map(len, lines)) <= 88
    assert sum("most in 2023-" in line for line in lines) == 2


def test_table_of_components() -> None:
    text = format_components(model_of_sales(), 1, component_names=["Food", "Office\x1b"])
    lines = text.splitlines()
    assert lines[1].split() == ["0", "59.5%", "Food"]
    assert len(lines) == 9
    assert "\x1b" not in text
    assert set(names_by_labels(model_of_sales())[1].split(", ")) == {"ink", "pen"}
