"""The driver's side: rounds of messages to all workers, and what to do when one is lost.

Versions of factors never change, and a journal says how they were made. From time to time every
worker copies its parts of all versions to another one. When a worker is lost, the copies are
brought together, and the rounds since then are repeated: same inputs, same result.
"""

import asyncio
import contextlib
import itertools
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from klnmf.backends.base import ClusterLostError
from klnmf.backends.dask.cluster import (
    MOST_LOSSES,
    Cluster,
    WorkerLostError,
    too_many_losses,
)
from klnmf.backends.dask.operations import (
    MAKERS,
    Answer,
    Close,
    Keep,
    Layout,
    Message,
    Operation,
    Ping,
    Put,
    Reset,
    Round,
    Wants,
)
from klnmf.backends.dask.partition import Partition
from klnmf.backends.dask.placement import homes_for, keepers_for

Result = TypeVar("Result")

# Seconds between two checks whether a lost worker has come back.
SECONDS_BETWEEN_WELCOMES = 2.0
# Seconds to wait after a loss, times the losses in a row before it; 1 s at most.
SECONDS_BETWEEN_LOSSES = 0.1
# Copies are made when the time since the last ones is this many times what those took.
COPIES_EVERY = 40.0
SECONDS_BEFORE_COPIES = 0.5


class PlacedParts(Protocol):
    """X in parts: brings them to workers."""

    def partitions(self, shares: list[float]) -> tuple[Partition, Partition]:
        """Cut both modes into parts of these shares of the work."""

    def place(self, mode: int, part: int, address: str) -> Any:
        """Return a future of a part that is, or will be, on that worker."""

    def release(self) -> None:
        """Release the data on workers."""


class Entry(NamedTuple):
    """What a round did to the versions."""

    operations: list[Operation]
    drops: list[int]


class Session:
    """One fit on a cluster."""

    def __init__(self, cluster: Cluster, data: PlacedParts) -> None:
        from klnmf.backends.dask.calls import on_worker  # needs distributed

        self._on_worker = on_worker
        self._cluster, self._client, self._data = cluster, cluster.client, data
        self.name = f"klnmf-{uuid.uuid4().hex[:12]}"
        self.modes: dict[int, int] = {}  # of the versions that are alive
        self.wants = Wants()
        self.n_rounds = self.bytes_moved = self.bytes_copied = 0  # moved: copies included
        self.seconds_in_kernels = 0.0  # of the slowest worker of each round
        self.n_losses = 0
        self._losses_in_a_row = 0
        self._dropped: deque[int] = deque()
        self._journal: list[Entry] = []
        self._round = 0
        self._copied: dict[int, int] = {}  # versions of which there are copies, with their modes
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
        self._layout = Layout(0, self.partitions, tuple(threads), ((), ()), ())
        try:
            self._move_to(list(threads), {}, {})
        except WorkerLostError as error:
            self._recover(error)

    # ---- rounds ----------------------------------------------------------------------------------

    def drop(self, version: int) -> None:
        """Mark a version as no longer needed; from any thread, at any time."""
        self._dropped.append(version)

    def ask(self, operations: list[Operation]) -> list[dict[int, Any]]:
        """Do the operations on all workers; return their answers by operation and part."""
        drops = []
        for _ in range(len(self._dropped)):
            version = self._dropped.popleft()
            self.modes.pop(version, None)
            drops.append(version)
        # Copied versions stay until there are newer copies.
        self._dropped.extend(version for version in drops if version in self._copied)
        drops = [version for version in drops if version not in self._copied]
        for operation in operations:
            if isinstance(operation, MAKERS) and operation.out not in drops:
                self.modes[operation.out] = operation.mode
        entry = Entry(list(operations), drops)
        results = self._until_done(lambda: self._do(entry))
        makers: list[Operation] = [op for op in operations if isinstance(op, MAKERS)]
        if makers or drops:
            self._journal.append(Entry(makers, drops))
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

    def _do(self, entry: Entry) -> list[dict[int, Any]]:
        self._round += 1
        answers = self._send(Round(self._round, entry.operations, entry.drops, self.wants))
        self.n_rounds += 1
        self.bytes_moved += sum(answer.bytes_received for answer in answers)
        self.seconds_in_kernels += max(answer.seconds for answer in answers)
        merged: list[dict[int, Any]] = []
        for number in range(len(entry.operations)):
            by_part: dict[int, Any] = {}
            for answer in answers:
                by_part.update(answer.by_operation[number])
            merged.append(dict(sorted(by_part.items())))
        return merged

    def _send(self, message: Message) -> list[Answer]:
        """Send a message to the workers of the layout, and return all answers."""
        wanted = dict.fromkeys(self._layout.homes)
        if isinstance(message, Round) and any(isinstance(op, Put) for op in message.operations):
            found = self._run_each(
                {address: self._own_part(message, address) for address in wanted}
            )
        else:
            found = self._run(message)
        problems = [
            found.get(address, f"{address} is gone")
            for address in wanted
            if not isinstance(found.get(address), Answer)
        ]
        for problem in problems:
            if isinstance(problem, Exception) and not isinstance(problem, OSError):
                raise problem  # an error in a worker, not a lost worker
        if problems:
            raise WorkerLostError("; ".join(map(str, problems)))
        return [found[address] for address in wanted]

    def _own_part(self, message: Round, address: str) -> Round:
        """Return the message with the rows for this worker only."""
        parts = self._layout.parts_at(address)
        operations = [
            operation.of_parts(parts) if isinstance(operation, Put) else operation
            for operation in message.operations
        ]
        return Round(message.number, operations, message.drops, message.wants)

    def _run(self, message: Message) -> dict[str, Any]:
        """Run a message on all workers; return by address its answer or an error."""
        # Not by address: Dask would wait for a worker that is gone.
        return self._answers([message])[0]

    def _run_each(self, messages: dict[str, Message]) -> dict[str, Any]:
        """Run a different message on each of these workers."""
        answers = self._answers(list(messages.values()), list(messages))
        return {address: found for answer in answers for address, found in answer.items()}

    def _answers(
        self, messages: list[Message], addresses: list[str] | None = None
    ) -> list[dict[str, Any]]:
        """Run each message on the worker of that address, or on all workers."""

        def run_all() -> Any:
            runs = [
                self._client.run(
                    self._on_worker,
                    self.name,
                    message,
                    workers=None if addresses is None else [addresses[number]],
                    on_error="return",
                )
                for number, message in enumerate(messages)
            ]
            return asyncio.gather(*runs)

        found: list[dict[str, Any]] = self._cluster.awaited(run_all, addresses or ())
        return found

    def futures_of(self, version: int) -> list[Any]:
        """Return the parts of a version as futures that outlive the session."""
        return self._until_done(lambda: self._futures_of(version))

    def _futures_of(self, version: int) -> list[Any]:
        from klnmf.backends.dask.calls import held_part
        from klnmf.backends.dask.worker import PartMissingError

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
        self.n_losses += 1
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
                    address: answer.held
                    for address, answer in self._run(Ping()).items()
                    if isinstance(answer, Answer) and answer.held is not None
                }
                if set(holders) >= set(self._layout.homes):
                    self._futures.clear()  # all workers are there, so a part of X was lost
                sources = self._sources(holders)
                entries = self._journal[self._copied_until :]
                if sources is None:  # from the beginning
                    sources, self._copied, self._copied_until = {}, {}, 0
                    entries = self._journal
                self._move_to(list(threads), self._copied, sources)
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

    def _move_to(
        self, workers: list[str], versions: dict[int, int], sources: dict[int, str]
    ) -> None:
        """Give every part a worker, with X, and send all of them the layout."""
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
        self._layout = Layout(
            old.generation + 1, self.partitions, homes, (keys[0], keys[1]), keepers_for(homes)
        )
        self._send(Reset(self._layout, dict(versions), dict(sources)))

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
        self._copied, self._copied_until = dict(self.modes), len(self._journal)
        try:
            self._move_to(list(threads), self._copied, sources)
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
        versions = dict(self.modes)
        new: list[Operation] = [
            Keep(mode, (version,))
            for version, mode in versions.items()
            if version not in self._copied
        ]
        moved = self.bytes_moved
        try:
            self._do(Entry(new, []))
            self.bytes_copied += self.bytes_moved - moved
        except WorkerLostError as error:
            self._recover(error)
            return
        self._copied, self._copied_until = versions, len(self._journal)
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
            self._run(Close())
