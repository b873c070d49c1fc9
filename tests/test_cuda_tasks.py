"""How rows are cut into tasks and chunks for a GPU; needs none."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from klnmf.backends.cuda.rows import ALIGNED, Tasks, row_starts

LENGTHS = st.lists(st.integers(0, 200), min_size=1, max_size=30)


@given(LENGTHS, st.integers(64, 500))
def test_chunks_hold_every_task_once_and_nonzeros_that_follow_each_other(
    lengths: list[int], most: int
) -> None:
    tasks = Tasks.of(np.array(lengths), 64)
    chunks = tasks.chunks(most)
    assert sorted(np.concatenate(chunks).tolist()) == list(range(len(tasks.row)))
    place = 0
    for chunk in chunks:
        begin, end = tasks.begin[chunk].min(), tasks.end[chunk].max()
        assert begin >= place
        assert begin % ALIGNED == 0
        assert end - begin <= most
        assert (np.diff(chunk) > 0).all()  # in the order of the tasks
        place = end


@given(LENGTHS)
def test_tasks_cover_the_nonzeros_of_their_rows_once(lengths: list[int]) -> None:
    tasks, starts = Tasks.of(np.array(lengths), 64), row_starts(np.array(lengths))
    assert (tasks.end - tasks.begin <= 64).all()
    for row, length in enumerate(lengths):
        own = tasks.row == row
        places = [np.arange(*ends) for ends in zip(tasks.begin[own], tasks.end[own], strict=True)]
        expected = np.arange(starts[row], starts[row] + length)
        assert sorted(np.concatenate(places).tolist()) == expected.tolist()
