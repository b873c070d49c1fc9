"""What the tests of pictures share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any


def assert_apart(figure: Any, texts: Iterable[Any]) -> None:
    """No two of these texts overlap on the picture, but for a pixel of rounding."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    drawn = [text for text in texts if text.get_visible() and text.get_text()]
    # An annotation's own extent would include its arrow.
    boxes = [Text.get_window_extent(text).padded(-0.5) for text in drawn]
    for (one, box), (other, next_box) in itertools.combinations(zip(drawn, boxes, strict=True), 2):
        assert not box.overlaps(next_box), (one.get_text(), other.get_text())
