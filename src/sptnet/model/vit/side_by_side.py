"""A batch in shares that the threads of a CPU take through a row of steps, each thread its own.

Threads that share a product wait for the last of them at its end, many times a batch. Where images do not meet in any
step, each thread may as well take some of them all the way, and there is one wait. No sum changes its terms.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import torch
from jaxtyping import Float
from torch import Tensor

SHARE = 2**20  # numbers, about: enough for quick products, and few enough for what a step makes of them to stay small
FEW = 16  # images a thread, of which one more or less matters

Step = Callable[[Tensor], None]


def side_by_side(steps: Sequence[Step], x: Float[Tensor, "batch length dim"]) -> None:
    """Every step, one after the other, on all of `x`, which it writes over."""
    threads = torch.get_num_threads()
    if x.device.type == "cpu" and is_worth_it(x, threads):
        shares = min(len(x), threads * max(1, round(x.numel() / SHARE / threads)))
        _in_threads(steps, x.tensor_split(shares), threads)
    else:
        for step in steps:
            step(x)


def is_worth_it(x: Tensor, threads: int) -> bool:
    """Starting threads for little work costs more than it saves, and so does waiting for a thread with more images."""
    return threads > 1 and x.numel() >= SHARE and (len(x) % threads == 0 or len(x) >= FEW * threads)


def _in_threads(steps: Sequence[Step], shares: Sequence[Tensor], threads: int) -> None:
    grad, inference, stop = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), Event()

    def take(share: Tensor) -> None:
        torch.set_num_threads(1)
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            for step in steps:
                if not stop.is_set():
                    step(share)

    try:
        with ThreadPoolExecutor(threads) as pool:
            try:
                list(pool.map(take, shares))
            except BaseException:  # such as Ctrl-C: nobody waits for the steps that are left
                stop.set()
                raise
    finally:
        torch.set_num_threads(threads)  # torch gives the latest number to threads that are yet to come
