"""Ctrl-C that waits until work in progress is complete."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Delay the first Ctrl-C until the end of the block; a second one takes effect at once.

    This does nothing outside the main thread, or if the user has installed a signal handler.

    >>> with held_interrupts():
    ...     sum(range(10))
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
