"""Time limit of a stage: learning rates anneal over the last tenth of the time, then the stage ends.

The limit becomes a number of steps once, when nine tenths of the time are used. From then on the stage counts steps
again, so that it can be resumed, and repeated from the settings that record them.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

ANNEALED_SHARE = 0.1  # of the time
PACE_STEPS = 64  # latest steps, which predict the pace of the last ones


@dataclass(frozen=True)
class Ending:
    """End of a stage in steps: from step `anneal_from` on, learning rates fall linearly to zero at `steps`."""

    anneal_from: int
    steps: int

    def factor(self, step: int) -> float:
        """Factor on the scheduled learning rate of a step."""
        if step < self.anneal_from:
            return 1.0
        return max(0.0, (self.steps - step) / (self.steps - self.anneal_from))


class Deadline:
    """Seconds that a stage may take, including those before it was resumed."""

    def __init__(self, seconds: float, used: float = 0.0, clock: Callable[[], float] = time.perf_counter):
        self.seconds, self._clock = seconds, clock
        self._began = clock() - used
        self._times: deque[float] = deque([clock()], maxlen=PACE_STEPS + 1)

    @property
    def used(self) -> float:
        """Seconds used so far."""
        return self._clock() - self._began

    def after_step(self, done: int, planned: int) -> Ending | None:
        """Return the ending once nine tenths of the time are used; `planned` is the number of steps of the schedule."""
        self._times.append(self._clock())
        if self.used < (1 - ANNEALED_SHARE) * self.seconds:
            return None
        pace = (self._times[-1] - self._times[0]) / (len(self._times) - 1)
        more = max(1, int((self.seconds - self.used) / max(pace, 1e-9)))
        return Ending(done, done + more) if done + more < planned else None
