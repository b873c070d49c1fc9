"""Progress as plain lines, for logs: more often at first, then every ten seconds."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

SECONDS_BETWEEN_LINES = 10.0


class LinesNowAndThen:
    """A callback that writes a line about a record every so often, for logs."""

    def __init__(self, line: Callable[[dict[str, Any]], str]) -> None:
        self._line = line
        self._next = 0.0

    def __call__(self, record: dict[str, Any]) -> None:
        """Write a line if it is time for one."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + SECONDS_BETWEEN_LINES
            print(self._line(record), file=sys.stderr, flush=True)


def how_to_tell(args: argparse.Namespace, line: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    """Return ``progress`` and ``callback`` of long work: a bar on terminals, lines elsewhere."""
    on_terminal = sys.stderr.isatty()
    callback = None if on_terminal or args.quiet else LinesNowAndThen(line)
    return {"progress": on_terminal and not args.quiet, "callback": callback}


class ProgressLines:
    """A callback of ``KLNMF`` that writes a line now and then.

    Parameters
    ----------
    max_iter : int
        Iterations at most, for an estimate of the time left.
    """

    def __init__(self, max_iter: int) -> None:
        self._max_iter = max_iter
        self._next = 0.0
        self._first: tuple[float, int] | None = None

    def __call__(self, record: dict[str, Any]) -> bool:
        """Write a line if it is time for one; the fit goes on."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, record["iteration"])
        if now >= self._next:
            self._next = now + SECONDS_BETWEEN_LINES
            print(self.line(record, now), file=sys.stderr, flush=True)
        return False

    def line(self, record: dict[str, Any], now: float) -> str:
        """Say what is known by now."""
        started, first = self._first or (now, record["iteration"])
        text = (
            f"iteration {record['iteration']}, {record['seconds']:.1f} s: objective "
            f"{record['objective']:.6g}, KKT residual {record['kkt_residual']:.1e}"
        )
        done = record["iteration"] - first
        if done > 0:
            left = (now - started) / done * max(self._max_iter - record["iteration"], 0)
            text += f", {left:.0f} s left at most"
        return text
