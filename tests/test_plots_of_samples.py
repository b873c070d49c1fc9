"""Pictures of proportions and similarities: what is drawn, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from plot_checks import assert_apart

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.colors import to_hex, to_rgb  # noqa: E402

from klnmf.plots import (  # noqa: E402
    plot_component_similarity,
    plot_structure,
    plot_top_features,
)
from klnmf.plots.style import AREA_COLOURS, REST_COLOURS  # noqa: E402
from klnmf.topics import (  # noqa: E402
    component_similarity,
    match_components,
    plsi_probabilities,
)

Array = np.ndarray


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def random_model(n: int, r: int, m: int = 30, seed: int = 0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    return generator.gamma(0.3, size=(n, r)), generator.gamma(0.3, size=(r, m))


def heights_of(ax: plt.Axes) -> Array:
    """Heights of the stacked steps, samples × components, from left to right and bottom up."""
    layers = [patch.get_data() for patch in ax.patches]
    filled = ~np.isnan(layers[0].values)
    bottoms, tops = (
        np.column_stack([getattr(layer, end)[filled] for layer in layers])
        for end in ("baseline", "values")
    )
    np.testing.assert_allclose(bottoms[:, 1:], tops[:, :-1], atol=1e-12)
    np.testing.assert_allclose(bottoms[:, 0], 0.0, atol=1e-12)
    np.testing.assert_allclose(tops[:, -1], 1.0)
    return tops - bottoms


# ---- structure -----------------------------------------------------------------------------------


def test_stacks_are_the_proportions_in_groups_and_in_order() -> None:
    W = np.array([[3.0, 1.0], [1.0, 0.0], [1.0, 9.0], [4.0, 1.0], [0.0, 0.0], [1.0, 1.5]])
    labels = ["b", "a", "b", "b", "b", "b"]
    components = np.array([[1.0, 0.0], [1.0, 1.0]])  # the second counts double
    ax = plot_structure(W, components, labels)
    P = plsi_probabilities(W, components).component_given_sample
    # Component 0 has the larger mean over the groups. In "b" the largest component is twice 0 and
    # twice 1: by number, then by falling share; sample 4 is empty.
    drawn = heights_of(ax)
    np.testing.assert_allclose(drawn, P[[3, 0, 2, 5, 1]], atol=1e-12)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["b", "a"]
    assert [to_hex(patch.get_facecolor()) for patch in ax.patches[:2]] == [
        colour.lower() for colour in AREA_COLOURS[:2]
    ]
    values, edges, _ = ax.patches[0].get_data()
    assert np.isnan(values).tolist() == [False] * 4 + [True, False]  # a gap between the groups
    gap = edges[5] - 4.0
    assert 0.0 < gap < 1.0
    np.testing.assert_allclose(edges, [0, 1, 2, 3, 4, 4 + gap, 5 + gap])
    np.testing.assert_allclose(ax.get_xticks(), [2.0, 4.5 + gap])
    assert ax.get_title(loc="right") == "1 sample without counts left out"


def test_pixels_have_the_colours_of_the_proportions() -> None:
    W = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]] * 20)
    ax = plot_structure(W, np.eye(3), select=[0, 1, 2])
    figure = ax.figure
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[::-1, :, :3]  # from the bottom up

    def colour_at(sample: float, height: float) -> str:
        x, y = ax.transData.transform((sample, height))
        return to_hex(pixels[int(y), int(x)] / 255.0)

    for sample, height, component in ((5, 0.3, 0), (5, 0.95, 0), (35, 0.3, 0), (35, 0.7, 1)):
        assert colour_at(sample, height) == AREA_COLOURS[component].lower()
    # The third is 0 everywhere and nowhere to be seen: nothing has an outline.
    assert {patch.get_linewidth() for patch in ax.patches} == {0.0}
    square = ax.get_window_extent()
    inside = pixels[
        int(square.y0) + 2 : int(square.y1) - 2, int(square.x0) + 2 : int(square.x1) - 2
    ]
    third = np.round(255 * np.array(to_rgb(AREA_COLOURS[2])))
    assert not (inside == third).all(axis=2).any()


def test_components_past_nine_are_grey_and_on_top() -> None:
    W, components = random_model(40, 12)
    ax = plot_structure(W, components, feature_names=[f"w{j}" for j in range(30)])
    P = plsi_probabilities(W, components).component_given_sample
    by_mean = np.argsort(-P.mean(axis=0))
    drawn = heights_of(ax)
    np.testing.assert_allclose(np.sort(drawn, axis=0), np.sort(P[:, by_mean], axis=0), atol=1e-12)
    colours = [to_hex(patch.get_facecolor()) for patch in ax.patches]
    assert colours[:9] == [colour.lower() for colour in AREA_COLOURS]
    assert set(colours[9:]) == set(REST_COLOURS)
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend[0] == "3 other components"
    assert [entry.split()[0] for entry in legend[:0:-1]] == [str(k) for k in by_mean[:9]]
    handles = [to_hex(handle.get_facecolor()) for handle in ax.get_legend().legend_handles]
    assert handles[:0:-1] == colours[:9]


def test_chosen_components_have_the_colours_from_the_bottom() -> None:
    W, components = random_model(20, 5)
    ax = plot_structure(W, components, select=[4, 1])
    P = plsi_probabilities(W, components).component_given_sample
    drawn = heights_of(ax)
    np.testing.assert_allclose(np.sort(drawn[:, :2], axis=0), np.sort(P[:, [4, 1]], axis=0))
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["3 other components", "1", "4"]
    for select in ([1, 1], list(range(10))):
        with pytest.raises(ValueError, match="at most 9 components, each once"):
            plot_structure(*random_model(20, 12), select=select)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_many_samples_are_drawn_from_and_it_is_said(convert: object) -> None:
    W, components = random_model(1000, 3)
    labels = np.array(["many"] * 899 + ["few"] * 100 + ["one"])
    representation = convert(W)  # type: ignore[operator]
    ax = plot_structure(representation, components, labels, max_samples=100)
    gaps = np.flatnonzero(np.isnan(ax.patches[0].get_data().values))
    assert gaps.tolist() == [88, 99]  # 88 samples, 10, and 1
    assert len(heights_of(ax)) == 99
    assert ax.get_title(loc="right") == "99 of 1,000 samples, chosen at random"
    again = plot_structure(W, components, labels, max_samples=100)
    np.testing.assert_allclose(heights_of(again), heights_of(ax), atol=1e-12)
    assert plot_structure(W, components, labels).get_title(loc="right") == ""


@pytest.mark.parametrize("n_groups", [2, 30, 300])
def test_names_of_groups_do_not_overlap(n_groups: int) -> None:
    W, components = random_model(900, 3)
    sizes = np.sort(np.random.default_rng(0).integers(n_groups, size=900 - n_groups))
    labels = [f"group {g}" for g in [*range(n_groups), *sizes]]
    ax = plot_structure(W, components, labels)
    assert_apart(ax.figure, ax.get_xticklabels())
    named = len(ax.get_xticks())
    missing = f"{n_groups - named} of {n_groups} groups are too small for their name"
    assert (missing in ax.get_xlabel()) == (named < n_groups)
    assert named == n_groups or n_groups == 300
    values, edges, _ = ax.patches[0].get_data()  # each name is below the middle of its group
    gaps = np.flatnonzero(np.isnan(values))
    starts, stops = [0.0, *edges[gaps + 1]], [*edges[gaps], edges[-1]]
    middles = (np.array(starts) + np.array(stops)) / 2.0
    assert set(np.round(ax.get_xticks(), 6)) <= set(middles.round(6))


def test_samples_without_a_label_are_left_out_and_numbers_are_in_order() -> None:
    W, components = random_model(6, 2)
    ax = plot_structure(W, components, [10, 9, None, 9, float("nan"), 10])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["9", "10"]
    assert len(heights_of(ax)) == 4
    assert ax.get_title(loc="right") == "2 samples without a label left out"


def test_structure_refuses_what_it_cannot_draw() -> None:
    W, components = random_model(5, 2)
    with pytest.raises(ValueError, match="max_samples must be a whole number of at least 1; got 0"):
        plot_structure(W, components, max_samples=0)
    with pytest.raises(ValueError, match="W holds no sample with a positive entry"):
        plot_structure(np.zeros((3, 2)), components)
    with pytest.raises(ValueError, match=r"one entry per sample \(5\)"):
        plot_structure(W, components, labels=["a"])


# ---- heat maps -----------------------------------------------------------------------------------


def shown_order(labels: list[plt.Text]) -> list[int]:
    return [int(label.get_text().split()[0]) for label in labels]


def test_similar_components_stand_side_by_side() -> None:
    base = np.random.default_rng(3).gamma(0.2, size=(3, 40))
    components = np.vstack([base, base + 0.01])[[0, 1, 2, 3, 4, 5]]
    ax = plot_component_similarity(components)
    rows, columns = (shown_order(axis.get_ticklabels()) for axis in (ax.yaxis, ax.xaxis))
    assert rows == columns
    for pair in ({0, 3}, {1, 4}, {2, 5}):
        places = sorted(rows.index(k) for k in pair)
        assert places[1] - places[0] == 1
    expected = component_similarity(components)[np.ix_(rows, columns)]
    np.testing.assert_allclose(ax.images[0].get_array(), expected)
    assert ax.images[0].get_clim() == (0.0, 1.0)
    assert len(ax.texts) == 36
    assert ax.texts[1].get_text() == f"{expected[0, 1]:.2f}".lstrip("0")
    assert ax.texts[0].get_text() == "1.00"


@pytest.mark.parametrize(("n_first", "n_second"), [(5, 8), (8, 5)])
def test_matched_components_stand_on_the_diagonal(n_first: int, n_second: int) -> None:
    first, second = (
        np.random.default_rng(s).gamma(0.3, size=(n, 20)) for s, n in ((0, n_first), (1, n_second))
    )
    second[:3] = first[[4, 0, 2]]
    ax = plot_component_similarity(first, second, feature_names=[f"w{j}" for j in range(20)])
    rows, columns = (shown_order(axis.get_ticklabels()) for axis in (ax.yaxis, ax.xaxis))
    match = match_components(first, second)
    assert rows[:5] == match.first.tolist()
    assert columns[:5] == match.second.tolist()
    assert sorted(rows) == list(range(n_first))
    assert sorted(columns) == list(range(n_second))
    np.testing.assert_allclose(np.diagonal(ax.images[0].get_array()), match.similarity)


@pytest.mark.parametrize("r", [2, 50])
def test_names_of_heat_maps_do_not_overlap(r: int) -> None:
    _, components = random_model(200, r)
    ax = plot_component_similarity(
        components, feature_names=[f"a rather long name {j}" for j in range(30)]
    )
    assert_apart(ax.figure, ax.get_yticklabels())
    assert_apart(ax.figure, ax.get_xticklabels())
    assert len(ax.get_yticks()) == r
    assert (len(ax.texts) > 0) == (r == 2)


def test_heat_maps_fit_into_small_axes() -> None:
    _, components = random_model(50, 60)
    figure, left = plt.subplots(figsize=(3, 2.5), layout="constrained")
    assert plot_component_similarity(components, ax=left) is left
    assert plt.get_fignums() == [figure.number]
    assert_apart(figure, left.get_yticklabels())
    assert_apart(figure, left.get_xticklabels())
    # Every so many are named: the places of the labels are those of their rows.
    places = left.get_xticks()
    assert 1 < len(places) < 60
    order = shown_order(left.xaxis.get_ticklabels())
    expected = component_similarity(components)[np.ix_(order, order)]
    drawn = np.asarray(left.images[0].get_array())[np.ix_(places, places)]
    np.testing.assert_allclose(drawn, expected)


PLOTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "similarity": lambda W, H, names: plot_component_similarity(H, component_names=names),
    "structure": lambda W, H, names: plot_structure(W, H, component_names=names),
    "features": lambda W, H, names: plot_top_features(H, component_names=names)[0],
}


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_names_of_components_are_shown_everywhere(plot: Callable[[Any, Any, Any], Any]) -> None:
    W, H = np.random.default_rng(0).random((20, 2)), np.eye(2, 4)
    ax = plot(W, H, ["sea", "land"])
    assert "0  sea" in [text.get_text() for text in ax.figure.findobj(plt.Text)]
    with pytest.raises(ValueError, match="component_names has 1 names for 2 components"):
        plot(W, H, ["sea"])
