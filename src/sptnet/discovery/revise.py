"""Revise a plan while it is carried out: this machine may be slower or faster than it was when it was measured.

Lengths are planned anew before the first training step only, and are written to the settings, so that a resumed run is
the same bit for bit. From then on the time limit is kept by `training/deadline.py`.
"""

from collections.abc import Collection
from dataclasses import replace

from sptnet.config import Config
from sptnet.discovery.lengths import by_section, length_settings
from sptnet.discovery.plan import Plan, PlanStep, StageLength
from sptnet.runtime.progress import duration

LEAST_SLOWDOWN, MOST_SLOWDOWN = 0.5, 4.0
LEAST_SECONDS = 10.0  # shorter steps are mostly overhead and say little about the speed
WORTH_REVISING = 1.25  # factor on a length
WORTH_TELLING, LEAST_TOLD = 1.25, 20.0  # factor on the expected time, and seconds


def slowdown(expected: float, took: float) -> float:
    """Return how many times longer the steps took than expected, within limits."""
    return min(MOST_SLOWDOWN, max(LEAST_SLOWDOWN, took / max(expected, 1.0)))


def revised_plan(plan: Plan, left: float, slower: float) -> Plan:
    """Return the plan with other lengths and times of its training stages.

    `left` are the seconds there are for training, `slower` is the slowdown so far. Planned lengths change if they do
    not fit, or if more would be of use and fits; given lengths stay, and end when the time is over.
    """
    lengths = plan.lengths
    expected = slower * sum(length.seconds for length in lengths.values())
    if plan.minutes is None or not expected:
        return plan
    room = max(left, 1.0)
    revised = {stage: _revised(length, room / expected) for stage, length in lengths.items()}
    total = slower * sum(length.seconds for length in revised.values())
    share = slower * min(1.0, room / total)
    steps = []
    for step in plan.steps:
        if step.stage is None:
            steps.append(step)
            continue
        length = revised[step.stage]
        what = step.what.replace(f"{lengths[step.stage].epochs} epochs", f"{length.epochs} epochs")
        steps.append(PlanStep(what, share * length.seconds, step.stage, length))
    return replace(plan, steps=tuple(steps))


def _revised(length: StageLength, factor: float) -> StageLength:
    """Return a length that is `factor` times as long, at most as long as is of use; small changes are not made."""
    if length.most is None:
        return length
    epochs = min(length.most, max(1, int(factor * length.epochs)))
    if max(epochs / length.epochs, length.epochs / epochs) < WORTH_REVISING:
        return length
    return replace(length, epochs=epochs, seconds=length.seconds * epochs / length.epochs)


def with_lengths(config: Config, plan: Plan, batches: int, given: Collection[str]) -> Config:
    """Return the settings with the epochs of the plan and what follows from them; `batches` are the steps per epoch."""
    epochs = {stage: length.epochs for stage, length in plan.lengths.items()}
    if all(getattr(config, stage).epochs == n for stage, n in epochs.items()):
        return config
    return config.changed(**by_section(length_settings(config, epochs, batches, given)))


def correction(before: float, now: float) -> str | None:
    """Return a message if the expected seconds of the rest have changed enough to be told."""
    if max(before, now) < WORTH_TELLING * min(before, now) or abs(before - now) < LEAST_TOLD:
        return None
    pace = "slower" if now > before else "faster"
    return f"this machine is {pace} than when it was measured: about {duration(now)} left, not {duration(before)}"
