"""The bar of a fit."""

from __future__ import annotations

import re

import pytest

from klnmf.support.progress import PredictedEnd, ProgressBar


def test_a_bar_is_closed_whatever_happened() -> None:
    bar = ProgressBar(True, 1e-3, 3)
    assert not bar._bar.disable
    with pytest.raises(KeyError), bar:
        bar.update({})
    assert bar._bar.disable  # so tqdm leaves a bar that is closed


def test_the_end_is_where_the_gap_will_be_small_enough() -> None:
    end = PredictedEnd(1e-4, 500)
    found = [end.after(i, 0.9**i) for i in range(1, 60)]
    assert found[:2] == [None, None]
    assert all(abs(total - 87) <= 1 for total in found[2:])  # 0.9⁸⁷ is 1e-4


@pytest.mark.parametrize("gaps", [[0.5] * 9, [0.1, 0.2, 0.4], [float("nan")] * 9, [0.0, 0.0, 0.0]])
def test_an_end_that_cannot_be_told_is_not_told(gaps: list[float]) -> None:
    end = PredictedEnd(1e-4, 500)
    assert {end.after(i, gap) for i, gap in enumerate(gaps, 1)} == {None}


def test_without_a_tolerance_the_end_is_the_last_iteration() -> None:
    without_tolerance = PredictedEnd(0.0, 500)
    assert {without_tolerance.after(i, 0.5**i) for i in range(1, 9)} == {500}


def test_the_bar_ends_there() -> None:
    with ProgressBar(True, 1e-3, 500) as bar:
        for i in range(1, 6):
            bar.update({"objective": 1.0, "optimality_gap": 0.5**i})
        assert bar._bar.total == 10


def test_time_is_left_where_the_end_is_known() -> None:
    """The time to ``max_iter``, which few fits reach, would be many times too long."""
    with ProgressBar(True, 1e-3, 500) as bar:
        shown = []
        for gap in (0.5, 0.25, 0.125, 0.5, 0.6):
            bar.update({"objective": 1.0, "optimality_gap": gap})
            shown.append(str(bar._bar))
    assert re.fullmatch(r"klnmf: 1/500 \[00:00, objective 1, gap 5.0e-01\]", shown[0])
    has_time_left = [re.search(r"%.*\d\d:\d\d<", text) is not None for text in shown]
    assert has_time_left == [False, False, True, False, False]
