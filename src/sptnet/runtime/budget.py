"""Limit of the memory that several threads use at once."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Budget:
    """Number of bytes shared by all threads of a process; a thread waits until its bytes are free.

    A request beyond the whole budget is granted too, alone: it waits until nothing else is reserved. Requests are
    served in the order of their arrival, so that a large one does not wait for ever behind many small ones.
    """

    def __init__(self, total: int):
        self.total = total
        self._reset()
        if hasattr(os, "register_at_fork"):
            # The threads that hold reservations do not exist in a forked process.
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self.used = 0
        self._turn = threading.Lock()
        self._freed = threading.Condition()

    @contextmanager
    def reserved(self, n_bytes: int) -> Iterator[None]:
        """Reserve bytes for the context. Must not be nested in one thread, which could wait for itself."""
        with self._turn, self._freed:
            self._freed.wait_for(lambda: self.used == 0 or self.used + n_bytes <= self.total)
            self.used += n_bytes
        try:
            yield
        finally:
            with self._freed:
                self.used -= n_bytes
                self._freed.notify_all()
