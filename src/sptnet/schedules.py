"""Schedules of learning rates and of the teacher temperature, as functions of epoch or step."""

import math


def cosine_by_epoch(first: float, final_ratio: float, epoch: int, epochs: int) -> float:
    """Cosine decay from `first` to `first * final_ratio`, constant within an epoch."""
    last = first * final_ratio
    return last + (first - last) * 0.5 * (1 + math.cos(math.pi * epoch / epochs))


def warm_up_then_cosine(first: float, warm_up: int, step: int, steps: int) -> float:
    """Linear warm-up to `first` over `warm_up` steps, then cosine decay to zero; `step` counts steps of all phases."""
    if step < warm_up:
        return first * (step + 1) / warm_up
    return 0.5 * first * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def teacher_temperature(start: float, end: float, warm_up: int, epoch: int) -> float:
    """Linear change from `start` to `end` over `warm_up` epochs, then constant."""
    return end if epoch >= warm_up else start + (end - start) * epoch / max(1, warm_up - 1)


def steps_per_epoch(n_images: int, batch_size: int) -> int:
    """Number of whole batches in as many draws as there are images."""
    return n_images // batch_size
