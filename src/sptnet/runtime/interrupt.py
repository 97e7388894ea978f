"""Reliable Ctrl-C during training.

Python drops an exception that a signal handler raises inside a destructor or the clean-up after a fork, and training
with worker processes runs such code every epoch. The handler therefore also sets a flag, which the training loop checks
at every step.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], None]]:
    """Yield a function that raises KeyboardInterrupt if an earlier one was dropped."""
    interrupted = threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    def check() -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield check  # only the main thread may set a handler, and a handler of the calling program is kept
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield check
    except Exception:
        # Ctrl-C reaches the worker processes too: their death may be noticed before a dropped interrupt is.
        if interrupted.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
