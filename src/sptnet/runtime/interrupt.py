"""Reliable stops: Ctrl-C, the SIGTERM of a batch system and the SIGHUP of a closed terminal.

Python drops an exception that a signal handler raises inside a destructor or the clean-up after a fork, and training
with worker processes runs such code every epoch. The handler therefore also notes the signal, and the training loop
checks the note at every step.

Workers that end with the same signal make torch raise an error wherever the program is, also where it is about to say
what is kept. From the first signal on, the end of a worker is therefore no error.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a program to stop."""
SAME_STOP = 1.0
"""Seconds within which a second signal is the same stop: batch systems and `timeout` signal a process directly and
through its group."""
# Parts of the messages about a loader worker and about another rank that has ended.
_LOST = ("DataLoader worker", "another process of this job is lost")


class Interrupted(KeyboardInterrupt):
    """A signal asked the program to stop; the message says what is kept."""

    def __init__(self, kept: str = "", number: int = signal.SIGINT):
        super().__init__(kept)
        self.kept, self.number = kept, number


def signal_of(interrupt: KeyboardInterrupt) -> int:
    """Return the number of the signal; Python's own KeyboardInterrupt comes from SIGINT."""
    return interrupt.number if isinstance(interrupt, Interrupted) else signal.SIGINT


class _Note:
    """The first stop signal that has arrived."""

    def __init__(self, second_ends: bool):
        self.second_ends = second_ends
        self.number: int | None = None
        self.at = 0.0
        self.awaited: Exception | None = None
        """Error after which a signal has been waited for."""
        self.of_children: Callable[..., object] | None = None
        """Handler of SIGCHLD that is set aside."""

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the signal and raise `Interrupted`, or end the process at a second signal."""
        if self.number is None or not self.second_ends:
            self.number, self.at = number, time.monotonic()
            self._leave_children_alone()
            raise Interrupted(number=number)
        # torchrun passes on every signal that its processes have got already, and ends them itself if they hang.
        if time.monotonic() - self.at > SAME_STOP and "TORCHELASTIC_RUN_ID" not in os.environ:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def check(self) -> None:
        """Raise if a signal has been noted."""
        if self.number is not None:
            raise Interrupted(number=self.number)

    def await_signal(self, error: Exception) -> None:
        """Give the signal that may be behind an error the time to arrive, once per error."""
        if self.number is None and self.awaited is not error:
            self.awaited = error
            time.sleep(SAME_STOP)

    def _leave_children_alone(self) -> None:
        """Set torch's handler of SIGCHLD aside, which raises an error for each worker that has ended."""
        handler = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
        if callable(handler):
            self.of_children = handler
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def restore(self) -> None:
        """Put the handler of SIGCHLD back."""
        if self.of_children is not None:
            signal.signal(signal.SIGCHLD, self.of_children)
            self.of_children = None


_active: _Note | None = None


@contextmanager
def noted_interrupts(
    numbers: Sequence[int] = (signal.SIGINT,), second_ends: bool = False
) -> Iterator[Callable[[], None]]:
    """Raise `Interrupted` at these signals; yield a function that raises it again if it was dropped.

    An inner context uses the handlers of the outer one. Signals that the calling program handles or ignores, such as
    SIGHUP under nohup, stay as they are. With `second_ends`, a second signal ends the process at once.
    """
    global _active
    in_main = threading.current_thread() is threading.main_thread()  # others may not set a handler
    note = _active if _active is not None and in_main else _Note(second_ends)
    before = {n: signal.getsignal(n) for n in numbers} if in_main and note is not _active else {}
    before = {n: old for n, old in before.items() if old in (signal.SIG_DFL, signal.default_int_handler)}
    outer = _active
    for number in before:
        signal.signal(number, note.handle)
    if before:
        _active = note
    try:
        yield note.check
    except Exception as error:
        # Signals reach workers and other ranks too: their end may be noticed before a dropped interrupt is, or even
        # before the signal arrives here.
        if (before or note is outer) and any(words in str(error) for words in _LOST):
            note.await_signal(error)
        if note.number is not None:
            raise Interrupted(number=note.number) from None
        raise
    finally:
        _active = outer
        for number, old in before.items():
            signal.signal(number, old)
        if before:
            note.restore()
