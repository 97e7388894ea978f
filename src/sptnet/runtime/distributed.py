"""Training on several processes with exact gradients.

Under torchrun each process reads its rank from the environment; otherwise the world size is 1 and every function here
returns its input. A batch is global: each process computes the projections and logits of its share, then all processes
gather all rows and compute the same loss. Gradients reach a process's own rows only, so their sum over the processes
is the gradient of a single process with the whole batch.
"""

import atexit
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from sptnet.errors import Failure, SptnetError
from sptnet.runtime.torchrun import Rank, rank_from_environment

T = TypeVar("T")
# Other ranks wait while rank 0 reads or clusters a large data set. A lost process is noticed without a time limit.
LONGEST_WAIT = timedelta(hours=12)


class FailedOnRankZero(SptnetError):
    """Raised on the other ranks when rank 0 has failed; only rank 0 prints the reason."""

    reported_elsewhere = True


@dataclass(frozen=True)
class World(Rank):
    """The processes of a job and the communication between them."""

    def gather(self, rows: Float[Tensor, "share dim"], n: int) -> Float[Tensor, "n dim"]:
        """Gather the shares of all processes; gradients reach this process's own rows."""
        if self.size == 1:
            return rows
        gathered: Tensor = _Gather.apply(rows, n, self)
        return gathered

    def gather_views(self, rows: Float[Tensor, "2*share dim"], n: int) -> Float[Tensor, "2*n dim"]:
        """Gather rows that hold the first views, then the second views; the result has the same order."""
        if self.size == 1:
            return rows
        return torch.cat([self.gather(view, n) for view in rows.chunk(2)])

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace the gradients by their sum over all processes, in one message."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if not gradients:
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        with _lost_processes():
            dist.all_reduce(flat)
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def from_first(self, work: Callable[[], T]) -> T:
        """Run `work` on rank 0 and return its result on all ranks; an exception ends all ranks."""
        if self.size == 1:
            return work()
        result: list[Any] = [None, None]
        error: BaseException | None = None
        if self.is_first:
            try:
                result[0] = work()
            except Exception as caught:
                error, result[1] = caught, str(caught)
        with _lost_processes():
            dist.broadcast_object_list(result, src=0)
        if error is not None:
            raise error
        if result[1] is not None:
            raise FailedOnRankZero(result[1])
        value: T = result[0]
        return value

    def do_first(self, work: Callable[[], object]) -> None:
        """Run `work` on rank 0 while the other ranks wait; its result need not be picklable."""

        def without_result() -> None:
            work()

        self.from_first(without_result)

    def local_rank_zero_first(self, work: Callable[[], T]) -> T:
        """Run `work` on local rank 0 first, then on the other ranks."""
        if self.size == 1:
            return work()
        result = [work()] if self.local_rank == 0 else []
        with _lost_processes():
            dist.barrier()
        return result[0] if result else work()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, n: int, world: World) -> Tensor:
        ctx.share = world.share(n)
        sizes = [World(rank, world.size).share(n) for rank in range(world.size)]
        counts = [part.stop - part.start for part in sizes]
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        with _lost_processes():
            dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][ctx.share], None, None


@contextmanager
def _lost_processes() -> Iterator[None]:
    """Turn the errors that a backend raises after losing a process into a `Failure`."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise Failure(
            f"another process of this job is lost ({str(error).splitlines()[0]}). The last checkpoint is kept: start "
            "the same number of processes or another one with `resume=True`."
        ) from error


@cache
def world() -> World:
    """Return the world of this process; under torchrun the first call joins the process group."""
    joined = World(**vars(rank_from_environment(os.environ)))
    if joined.size > 1 and not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(joined.local_rank)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=LONGEST_WAIT)
        atexit.register(_leave)
    return joined


def _leave() -> None:
    """Stop the backend's threads before the interpreter shuts down; a thread that outlives it aborts the process."""
    if dist.is_initialized():
        dist.destroy_process_group()
