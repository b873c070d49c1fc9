"""The driver's side: rounds of messages to all workers, and what to do when one is lost.

Versions of factors never change, and a journal says how they were made. From time to time every
worker copies its parts of all versions to another one. When a worker is lost, the copies are
brought together, and the rounds since then are repeated: same inputs, same result.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar

from klnmf.backends.base import ClusterLostError
from klnmf.backends.dask.cluster import (
    MOST_LOSSES,
    Cluster,
    WorkerLostError,
    too_many_losses,
)
from klnmf.backends.dask.kernels import Operation
from klnmf.backends.dask.partition import Layout, Partition, homes_for, keepers_for
from klnmf.data.sparse_data import CountData

Result = TypeVar("Result")

# Seconds between two checks whether a lost worker has come back.
SECONDS_BETWEEN_WELCOMES = 2.0
# Seconds to wait after a loss, times the losses in a row before it; 1 s at most.
SECONDS_BETWEEN_LOSSES = 0.1
# Copies are made when the time since the last ones is this many times what those took.
COPIES_EVERY = 40.0
SECONDS_BEFORE_COPIES = 0.5


class Parts(Protocol):
    """X in parts."""

    def partitions(self, shares: list[float]) -> tuple[Partition, Partition]:
        """Cut both modes into parts of these shares of the work."""

    def place(self, mode: int, part: int, address: str) -> Any:
        """Return a future of a part that is, or will be, on that worker."""

    def release(self) -> None:
        """Let go of what is on workers."""

    def seen_from_driver(self, session: Session) -> CountData:
        """Return what solvers see of X."""


class Entry(NamedTuple):
    """A round: an operation, and the versions that are not needed after it."""

    operation: Operation
    drops: list[int]


class Session:
    """One fit on a cluster."""

    def __init__(self, cluster: Cluster, data: Parts) -> None:
        from klnmf.backends.dask.worker import on_worker  # needs distributed

        self._on_worker = on_worker
        self._cluster, self._client, self._data = cluster, cluster.client, data
        self.name = f"klnmf-{uuid.uuid4().hex[:12]}"
        self._alive: set[int] = set()  # versions
        self._losses_in_a_row = 0
        self._dropped: deque[int] = deque()
        self._journal: list[Entry] = []
        self._round = 0
        self._copied: set[int] = set()  # versions of which there are copies
        self._copied_until = 0  # entries of the journal that the copies stand for
        self._last_look = 0.0
        self._last_copies, self._seconds_of_copies = time.monotonic(), 0.0
        self._futures: dict[tuple[int, int], Any] = {}
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Cut X for the present workers, and give each its part."""
        threads = self._cluster.wait_for_workers(1)
        self._n_workers = len(threads)
        self.partitions = self._data.partitions([float(n) for n in threads.values()])
        self._layout = Layout(self.partitions, tuple(threads), ((), ()), ())
        try:
            self._move_to(list(threads), {})
        except WorkerLostError as error:
            self._recover(error)

    # ---- rounds ----------------------------------------------------------------------------------

    def drop(self, version: int) -> None:
        """Mark a version as no longer needed; from any thread, at any time."""
        self._dropped.append(version)

    def ask(self, operation: Operation) -> dict[int, Any]:
        """Do an operation on all workers; return their answers by part."""
        dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
        self._alive.difference_update(dropped)
        # Copied versions stay until there are newer copies.
        self._dropped.extend(version for version in dropped if version in self._copied)
        entry = Entry(operation, [v for v in dropped if v not in self._copied])
        results = self._until_done(lambda: self._do(entry))
        if operation.out is not None:
            self._alive.add(operation.out)
        if operation.out is not None or entry.drops:
            self._journal.append(entry)
        self._losses_in_a_row = 0
        self._welcome_workers()
        self._copy_if_due()
        return results

    def _until_done(self, action: Callable[[], Result]) -> Result:
        while True:
            try:
                return action()
            except WorkerLostError as error:
                self._recover(error)

    def _do(self, entry: Entry) -> dict[int, Any]:
        self._round += 1
        operation, given = entry.operation, entry.operation.by_part
        args: dict[str | None, tuple[Any, ...]] = {None: (self._round, operation, entry.drops)}
        if given is not None:  # each worker gets its own rows only
            args = {}
            for home in self._layout.homes:
                own = {part: given[part] for part in self._layout.parts_at(home)}
                args[home] = (self._round, replace(operation, by_part=own), entry.drops)
        answers = self._send("answer", args)
        return dict(sorted(item for answer in answers for item in answer.items()))

    def _send(self, method: str, args: dict[str | None, tuple[Any, ...]]) -> list[Any]:
        """Call a method on the workers of the layout, as `_run` does, and return all answers."""
        found = self._run(method, args)
        wanted = dict.fromkeys(self._layout.homes)
        answers = [found.get(address, f"{address} is gone") for address in wanted]
        problems = [answer for answer in answers if isinstance(answer, str | Exception)]
        for problem in problems:
            if isinstance(problem, Exception) and not isinstance(problem, OSError):
                raise problem  # an error in a worker, not a lost worker
        if problems:
            raise WorkerLostError("; ".join(map(str, problems)))
        return answers

    def _run(self, method: str, args: dict[str | None, tuple[Any, ...]]) -> dict[str, Any]:
        """Call a method with these arguments on the worker of each address; None is all workers.

        Return by address the answer, an error, or a text that says that a worker was lost. Ask all
        of them where possible: for one that is gone, Dask would wait.
        """

        def run_all() -> Any:
            runs = [
                self._client.run(
                    self._on_worker,
                    self.name,
                    method,
                    of_worker,
                    workers=None if address is None else [address],
                    on_error="return",
                )
                for address, of_worker in args.items()
            ]
            return asyncio.gather(*runs)

        asked = [address for address in args if address is not None]
        found: list[dict[str, Any]] = self._cluster.awaited(run_all, asked)
        return {address: answer for answers in found for address, answer in answers.items()}

    def futures_of(self, version: int) -> list[Any]:
        """Return the parts of a version as futures that outlive the session."""
        return self._until_done(lambda: self._futures_of(version))

    def _futures_of(self, version: int) -> list[Any]:
        from klnmf.backends.dask.worker import PartMissingError, held_part

        homes = self._layout.homes
        futures = [
            self._cluster.submit(held_part, self.name, home, version, part)
            for part, home in enumerate(homes)
        ]
        try:
            self._cluster.wait(futures, homes)
        except PartMissingError as error:
            raise WorkerLostError(str(error)) from error
        return futures

    # ---- losses ----------------------------------------------------------------------------------

    def _count_loss(self, error: Exception) -> None:
        self._losses_in_a_row += 1
        if self._losses_in_a_row > MOST_LOSSES:
            raise too_many_losses(error) from error
        # A worker that is closing is on the list for a while.
        time.sleep(min(SECONDS_BETWEEN_LOSSES * (self._losses_in_a_row - 1), 1.0))

    def _recover(self, error: Exception) -> None:
        """Bring all versions back to what they were before the round that failed."""
        while True:
            self._count_loss(error)
            try:
                threads = self._cluster.wait_for_workers(self._n_workers)
                holders = {
                    address: held
                    for address, held in self._run("inventory", {None: ()}).items()
                    if isinstance(held, frozenset)
                }
                if set(holders) >= set(self._layout.homes):
                    self._futures.clear()  # all workers are there, so a part of X was lost
                sources = self._sources(holders)
                entries = self._journal[self._copied_until :]
                if sources is None:  # from the beginning
                    sources, self._copied, self._copied_until = {}, set(), 0
                    entries = self._journal
                self._move_to(list(threads), sources)
                for entry in entries:
                    self._do(entry)
                return
            except WorkerLostError as another:
                error = another

    def _sources(self, holders: dict[str, Any]) -> dict[int, str] | None:
        """By part, a worker that holds the copied versions; None if a part is lost everywhere."""
        sources = {}
        for part in range(len(self._layout.homes)):
            wanted = {(version, part) for version in self._copied}
            having = [address for address, held in holders.items() if wanted <= held]
            if not having:
                return None
            sources[part] = having[0]
        return sources

    def _move_to(self, workers: list[str], sources: dict[int, str]) -> None:
        """Give every part a worker, with X and the copied versions, which ``sources`` have."""
        old = self._layout
        homes = homes_for(old.homes, workers)
        for mode, (part, home) in itertools.product((0, 1), enumerate(homes)):
            before = self._futures.get((mode, part))
            if before is None or before.status != "finished" or home != old.homes[part]:
                self._futures[mode, part] = self._data.place(mode, part, home)
        self._cluster.wait(list(self._futures.values()), homes)
        keys = tuple(
            tuple(self._futures[mode, part].key for part in range(len(homes))) for mode in (0, 1)
        )
        self._layout = Layout(self.partitions, homes, (keys[0], keys[1]), keepers_for(homes))
        self._send("reset", {None: (self._layout, sorted(self._copied), sources)})

    def _welcome_workers(self) -> None:
        """Give parts to workers that have come back, if others have several."""
        homes = set(self._layout.homes)
        now = time.monotonic()
        if len(homes) >= self._n_workers or now - self._last_look < SECONDS_BETWEEN_WELCOMES:
            return
        self._last_look = now
        threads = self._cluster.threads()
        if len(threads) <= len(homes) or not homes <= set(threads):
            return
        sources = dict(enumerate(self._layout.homes))
        self._copied, self._copied_until = set(self._alive), len(self._journal)
        try:
            self._move_to(list(threads), sources)
        except WorkerLostError as error:
            self._recover(error)

    # ---- copies ----------------------------------------------------------------------------------

    def _copy_if_due(self) -> None:
        now = time.monotonic()
        waited = now - self._last_copies
        has_keepers = any(keeper is not None for keeper in self._layout.keepers)
        if not has_keepers or waited < max(
            SECONDS_BEFORE_COPIES, COPIES_EVERY * self._seconds_of_copies
        ):
            return
        try:
            self._send("keep", {None: (sorted(self._alive - self._copied),)})
        except WorkerLostError as error:
            self._recover(error)
            return
        self._copied, self._copied_until = set(self._alive), len(self._journal)
        self._last_copies = time.monotonic()
        self._seconds_of_copies = self._last_copies - now

    # ---- end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Free what the workers hold for this fit."""
        self._futures.clear()
        self._data.release()
        if self._client.status != "running":
            return  # no worker holds anything any more
        # The client may not have noticed yet that its scheduler is gone.
        with contextlib.suppress(ClusterLostError, WorkerLostError):
            self._run("close", {None: ()})
