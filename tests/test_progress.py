"""The bar of a fit."""

from __future__ import annotations

import pytest

from klnmf.support.progress import ProgressBar


def test_a_bar_is_closed_whatever_happened() -> None:
    bar = ProgressBar(True, 3)
    assert not bar._bar.disable
    with pytest.raises(KeyError), bar:
        bar.update({})
    assert bar._bar.disable  # so tqdm leaves a bar that is closed
