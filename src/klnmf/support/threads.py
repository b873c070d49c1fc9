"""Independent pieces of work, several at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_in_threads(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    n_jobs: int,
    on_result: Callable[[Item, Result], None],
) -> None:
    """Call ``on_result(item, work(item))`` for each item, in the order in which they finish.

    ``on_result`` is called in the calling thread. After an error no further item is begun.

    >>> squares = {}
    >>> run_in_threads(lambda number: number**2, [1, 2, 3], 2, squares.__setitem__)
    >>> sorted(squares.items())
    [(1, 1), (2, 4), (3, 9)]
    """
    if min(n_jobs, len(items)) <= 1:
        for item in items:
            on_result(item, work(item))
        return
    with ThreadPoolExecutor(n_jobs) as pool:
        futures = {pool.submit(work, item): item for item in items}
        try:
            for future in as_completed(futures):
                on_result(futures[future], future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
