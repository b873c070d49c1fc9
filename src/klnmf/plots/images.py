"""Components of image data as images."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.plots.style import panel_titles, panels_or_new, selected_components
from klnmf.support.descriptions import described, listed
from klnmf.support.number_checks import checked_whole
from klnmf.topics.checks import Names, checked_components, dense

_INCHES = 0.95  # the longer side of an image


def plot_components_as_images(
    components: Any,
    shape: tuple[int, int],
    *,
    select: Sequence[int] | None = None,
    component_names: Names | None = None,
    n_columns: int = 10,
    cmap: Any = "gray_r",
    axes: npt.ArrayLike | None = None,
) -> npt.NDArray[np.object_]:
    """Plot each component as an image whose pixels are the features.

    White is 0. Each image is scaled by its largest pixel, because the scale of a component has no
    meaning without W.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    shape : (int, int)
        Height and width of an image. Features are its pixels, row by row.
    select : sequence of int, optional
        Components to plot, in this order. By default, all of them.
    component_names : sequence of str, optional
        Names of the components, instead of their numbers alone.
    n_columns : int, default=10
        Images per row of a new figure.
    cmap : str, default="gray_r"
        Name of a matplotlib colour map.
    axes : array of matplotlib Axes, optional
        One per component plotted, in any shape. By default, those of a new figure.

    Returns
    -------
    ndarray of matplotlib Axes, shape (n_drawn,)
        ``axes[0].figure`` is the figure.

    Examples
    --------
    >>> from klnmf.plots import plot_components_as_images
    >>> axes = plot_components_as_images([[1.0, 0.0, 0.0, 1.0, 0.0, 0.0]], shape=(2, 3))
    >>> axes[0].images[0].get_array().tolist()
    [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    H = checked_components(components)
    sizes = listed(shape, "shape", "two whole numbers, rows and columns of pixels")
    if len(sizes) != 2:
        raise ValueError(f"shape must be rows and columns of pixels; got {described(sizes)}.")
    height, width = (checked_whole("shape", size) for size in sizes)
    if height * width != H.shape[1]:
        raise ValueError(
            f"shape {(height, width)} has {height * width} pixels, but the components have "
            f"{H.shape[1]} features."
        )
    n_columns = checked_whole("n_columns", n_columns)
    if not (isinstance(cmap, str) or callable(cmap)):
        raise TypeError(f"cmap must be the name of a matplotlib colormap; got {described(cmap)}.")
    drawn = selected_components(select, H.shape[0])
    titles = panel_titles(H.shape[0], component_names)
    inch = _INCHES / max(height, width)
    size = max(inch * width, 0.85) + 0.1, inch * height + 0.25  # the title takes 0.85
    panels = panels_or_new(axes, len(drawn), n_columns, size)
    images = dense(H[drawn]).reshape(-1, height, width)
    for component, ax, image in zip(drawn, panels, images, strict=True):
        largest = float(image.max()) or 1.0
        ax.imshow(image, cmap=cmap, vmin=0.0, vmax=largest, interpolation="nearest")
        ax.set_title(titles[component], fontsize=7, pad=2.0)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_color("0.8")
    return panels
