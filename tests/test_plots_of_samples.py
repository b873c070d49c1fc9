"""Pictures of proportions, similarities and the map: what is drawn, and where."""

from __future__ import annotations

import itertools
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
    plot_component_sizes,
    plot_components_as_images,
    plot_components_by_label,
    plot_intertopic_map,
    plot_structure,
    plot_top_features,
)
from klnmf.plots.style import AREA_COLOURS, REST_COLOURS  # noqa: E402
from klnmf.topics import (  # noqa: E402
    component_shares,
    component_similarity,
    intertopic_coordinates,
    match_components,
    mean_shares,
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
    assert ax.get_title(loc="right") == "1 empty sample left out"


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


def test_embedding_finds_a_gradient_that_was_shuffled() -> None:
    position = np.linspace(0.0, 1.0, 60)
    centres = np.linspace(0.0, 1.0, 4)
    W = np.exp(-(((position[:, None] - centres) / 0.2) ** 2))
    shuffled = W[np.random.default_rng(0).permutation(60)]
    ax = plot_structure(shuffled, np.eye(4), order="embedding", select=[0, 1, 2, 3])
    P = plsi_probabilities(W, np.eye(4)).component_given_sample
    off = [np.abs(heights_of(ax) - along).max() for along in (P, P[::-1])]
    assert min(off) < 1e-12


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_many_samples_are_drawn_from_and_it_is_said(convert: object) -> None:
    W, components = random_model(1000, 3)
    labels = np.array(["many"] * 899 + ["few"] * 100 + ["one"])
    representation = convert(W)  # type: ignore[operator]
    ax = plot_structure(representation, components, labels, max_samples=100)
    gaps = np.flatnonzero(np.isnan(ax.patches[0].get_data().values))
    assert gaps.tolist() == [89, 100]  # 89 samples, 10, and 1
    assert len(heights_of(ax)) == 100
    assert ax.get_title(loc="right") == "100 of 1,000 samples, chosen at random"
    again = plot_structure(W, components, labels, max_samples=100)
    np.testing.assert_allclose(heights_of(again), heights_of(ax), atol=1e-12)
    other = plot_structure(W, components, labels, max_samples=100, random_state=1)
    assert not np.allclose(heights_of(other), heights_of(ax))
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
    if ax.get_lines():  # each name is joined to the middle of its group
        [line] = ax.get_lines()
        ends = np.asarray(line.get_xdata()).reshape(named, 3)
        np.testing.assert_array_equal(ends[:, 1], ax.get_xticks())
        values, edges, _ = ax.patches[0].get_data()
        gaps = np.flatnonzero(np.isnan(values))
        starts, stops = [0.0, *edges[gaps + 1]], [*edges[gaps], edges[-1]]
        middles = (np.array(starts) + np.array(stops)) / 2.0
        assert set(ends[:, 0].round(6)) <= set(middles.round(6))


def test_structure_refuses_what_it_cannot_draw() -> None:
    W, components = random_model(5, 2)
    with pytest.raises(ValueError, match="order must be 'main' or 'embedding'; got 'size'"):
        plot_structure(W, components, order="size")  # type: ignore[arg-type]
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
    ax = plot_component_similarity(components, similarity="hellinger")
    rows, columns = (shown_order(axis.get_ticklabels()) for axis in (ax.yaxis, ax.xaxis))
    assert rows == columns
    for pair in ({0, 3}, {1, 4}, {2, 5}):
        places = sorted(rows.index(k) for k in pair)
        assert places[1] - places[0] == 1
    expected = component_similarity(components, similarity="hellinger")[np.ix_(rows, columns)]
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


def test_other_features_are_matched_by_name() -> None:
    ax = plot_component_similarity(
        [[1.0, 2.0], [1.0, 0.0]],
        [[0.0, 0.0, 3.0], [2.0, 5.0, 1.0]],
        feature_names=["sea", "ship"],
        other_feature_names=["ship", "corn", "sea"],
    )
    assert shown_order(ax.xaxis.get_ticklabels()) == [1, 0]
    np.testing.assert_allclose(np.diagonal(ax.images[0].get_array()), 1.0)


def test_labels_against_components_are_mean_proportions() -> None:
    W, components = random_model(30, 4)
    labels = np.array(["north", "south", "east"])[np.arange(30) % 3]
    ax = plot_components_by_label(W, components, labels)
    means = mean_shares(W, components, labels).shares
    rows = shown_order(ax.yaxis.get_ticklabels())
    np.testing.assert_allclose(ax.images[0].get_array(), means.T[rows])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["north", "south", "east"]
    peaks = means.argmax(axis=0)[rows]
    assert (np.diff(peaks) >= 0).all()
    assert [text.get_text() for text in ax.texts[:3]] == [
        f"{100 * x:.0f}" for x in means[:, rows[0]]
    ]
    assert ax.images[0].get_clim() == (0.0, means.max())


@pytest.mark.parametrize("r", [2, 50])
def test_names_of_heat_maps_do_not_overlap(r: int) -> None:
    W, components = random_model(200, r)
    names = [f"a rather long name {j}" for j in range(30)]
    labels = [f"label {i % 14}" for i in range(200)]
    for ax in (
        plot_components_by_label(W, components, labels, names),
        plot_component_similarity(components, feature_names=names),
    ):
        assert_apart(ax.figure, ax.get_yticklabels())
        assert_apart(ax.figure, ax.get_xticklabels())
        assert len(ax.get_yticks()) == r
        assert (len(ax.texts) > 0) == (r == 2 and len(ax.get_xticks()) == 2)


def test_heat_maps_fit_into_small_axes() -> None:
    W, components = random_model(50, 60)
    figure, (left, right) = plt.subplots(1, 2, figsize=(6, 2.5), layout="constrained")
    assert plot_component_similarity(components, ax=left) is left
    assert plot_components_by_label(W, components, np.arange(50) % 3, ax=right) is right
    assert plt.get_fignums() == [figure.number]
    for ax in (left, right):
        assert_apart(figure, ax.get_yticklabels())
        assert_apart(figure, ax.get_xticklabels())
    # Every so many are named: the places of the labels are those of their rows.
    places = left.get_xticks()
    assert 1 < len(places) < 60
    order = shown_order(left.xaxis.get_ticklabels())
    expected = component_similarity(components)[np.ix_(order, order)]
    drawn = np.asarray(left.images[0].get_array())[np.ix_(places, places)]
    np.testing.assert_allclose(drawn, expected)


# ---- map -----------------------------------------------------------------------------------------


def test_circles_are_at_their_coordinates_and_areas_are_shares() -> None:
    components = np.eye(4)  # far enough apart
    components[2] = 0.0
    W = np.array([[3.0, 1.0, 1.0, 2.0]])
    ax = plot_intertopic_map(components, W)
    placed = [0, 3, 1]  # the largest first
    circles = ax.collections[0]
    expected = intertopic_coordinates(components)[placed]
    np.testing.assert_allclose(circles.get_offsets(), expected, atol=1e-12)
    assert ax.get_title(loc="left") == "Map of the components (1 empty, left out)"
    assert [(int(text.get_text()), *text.xy) for text in ax.texts] == [
        (k, *place) for k, place in zip(placed, circles.get_offsets(), strict=True)
    ]
    assert "Jensen-Shannon distance (50% of the squared distances)" in ax.get_xlabel()
    x, y = ax.transData.transform([[0.0, 0.0], [1.0, 1.0]]).T
    assert x[1] - x[0] == pytest.approx(y[1] - y[0], rel=0.01)  # one unit on both axes
    W, components = random_model(40, 12)
    areas = plot_intertopic_map(components, W).collections[0].get_sizes()
    shares = np.sort(component_shares(components, W))[::-1]
    np.testing.assert_allclose(areas / areas.sum(), shares, rtol=1e-6)
    assert len(set(plot_intertopic_map(components).collections[0].get_sizes())) == 1


@pytest.mark.parametrize("r", [1, 2, 50])
def test_circles_hold_their_names_and_do_not_overlap(r: int) -> None:
    W, components = random_model(40, r, m=400)
    components[r // 2 :] = components[r // 2] + 0.01 * components[r // 2 :]  # half of them crowd
    names = [f"word{j}" * (1 + j % 3) for j in range(400)]
    ax = plot_intertopic_map(components, W, names)
    ax.figure.draw_without_rendering()
    frame = ax.get_window_extent()
    circles = ax.collections[0]
    centres = ax.transData.transform(circles.get_offsets())
    radius = np.sqrt(circles.get_sizes()) / 2.0 * ax.figure.dpi / 72.0
    low, high = centres - radius[:, None], centres + radius[:, None]
    assert (low >= [frame.x0, frame.y0]).all()
    assert (high <= [frame.x1, frame.y1]).all()
    for (one, a), (other, b) in itertools.combinations(zip(centres, radius, strict=True), 2):
        assert np.hypot(*(one - other)) > a + b - 0.5
    for text, centre, reach in zip(ax.texts, centres, radius, strict=True):
        box = text.get_window_extent()
        assert box.width / 2 < reach + 1
        assert np.abs([box.x0 + box.width / 2, box.y0 + box.height / 2] - centre).max() < 3
    assert any("word" in text.get_text() for text in ax.texts)


def test_names_and_a_chosen_component_on_the_map() -> None:
    components = np.eye(3)
    ax = plot_intertopic_map(components, component_names=["sea", "land", "the air"], select=1)
    assert [text.get_text().split("\n")[1] for text in ax.texts] == ["sea", "land", "the air"]
    assert [text.get_fontweight() for text in ax.texts] == ["normal", "bold", "normal"]
    colours = ax.collections[0].get_facecolors()
    assert (colours[1] != colours[0]).any()
    with pytest.raises(ValueError, match="select must be a component that is not empty; got 3"):
        plot_intertopic_map(components, select=3)


PLOTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "similarity": lambda W, H, names: plot_component_similarity(H, component_names=names),
    "by label": lambda W, H, names: plot_components_by_label(
        W, H, [1, 2] * 10, component_names=names
    ),
    "structure": lambda W, H, names: plot_structure(W, H, component_names=names),
    "sizes": lambda W, H, names: plot_component_sizes(H, component_names=names),
    "features": lambda W, H, names: plot_top_features(H, component_names=names)[0],
    "images": lambda W, H, names: plot_components_as_images(H, (2, 2), component_names=names)[0],
}


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_names_of_components_are_shown_everywhere(plot: Callable[[Any, Any, Any], Any]) -> None:
    W, H = np.random.default_rng(0).random((20, 2)), np.eye(2, 4)
    ax = plot(W, H, ["sea", "land"])
    assert "0  sea" in [text.get_text() for text in ax.figure.findobj(plt.Text)]
    with pytest.raises(ValueError, match="component_names has 1 names for 2 components"):
        plot(W, H, ["sea"])


def test_a_map_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="all components are empty"):
        plot_intertopic_map(np.zeros((2, 3)))
