"""Ctrl-C that waits for the end of something that should not be left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Hold one Ctrl-C back until the block is over; a second one comes through at once.

    Where Ctrl-C does not raise KeyboardInterrupt here anyway (in another thread than the main one,
    or with a handler of the user's own), nothing is held.

    Examples
    --------
    >>> with held_interrupts():
    ...     total = sum(range(10))
    >>> total
    45
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    was_pressed = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal was_pressed
        if was_pressed:
            raise KeyboardInterrupt
        was_pressed = True

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if was_pressed:
        raise KeyboardInterrupt
