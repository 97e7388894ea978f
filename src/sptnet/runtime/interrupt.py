"""Ctrl-C that cannot get lost.

Python drops an exception that a signal handler raises while a destructor or a fork's clean-up is running, and a
training with worker processes runs such code at every epoch. So the handler also leaves a note, which the training loop
reads at every step.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], None]]:
    """Yields a check that raises KeyboardInterrupt if one came earlier and was dropped."""
    came = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        came.set()
        raise KeyboardInterrupt

    def check() -> None:
        if came.is_set():
            raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield check  # Python lets only the main thread set handlers; another program's handler is its own affair
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
