"""Independent pieces of work in threads."""

from __future__ import annotations

import threading

import pytest

from klnmf.support.threads import run_in_threads


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_results_come_to_the_calling_thread(n_jobs: int) -> None:
    found: dict[int, int] = {}

    def note(item: int, result: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        found[item] = result

    run_in_threads(lambda item: item**2, range(10), n_jobs, note)
    assert found == {item: item**2 for item in range(10)}


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_nothing_is_begun_after_an_error(n_jobs: int) -> None:
    begun: list[int] = []

    def note(item: int, result: None) -> None:
        raise KeyError(item)

    with pytest.raises(KeyError):
        run_in_threads(lambda item: _slowly(begun, item), range(100), n_jobs, note)
    assert len(begun) < 100


def _slowly(begun: list[int], item: int) -> None:
    begun.append(item)
    threading.Event().wait(0.01)
