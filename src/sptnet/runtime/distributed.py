"""Several processes as one: who does which share of the work, and how the shares come together again.

Started by torchrun, every process reads its place from the environment; alone, the world has one process and nothing
here does anything. A step's batch is the global one: each process computes the projections and logits of its share,
all processes gather all rows and compute the same loss from them. A process's share of the gradient is then exact, and
the sum over processes is the gradient of one process with the whole batch.
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
# Others wait while the first process reads or clusters a large pile. A process that is gone is noticed without a limit.
LONGEST_WAIT = timedelta(hours=12)


class SaidElsewhere(SptnetError):
    """The first process has failed and says why; this one ends with it in silence."""

    said_elsewhere = True


@dataclass(frozen=True)
class World(Rank):
    """All processes of a job, as one of them sees them."""

    def gather(self, rows: Float[Tensor, "share dim"], n: int) -> Float[Tensor, "n dim"]:
        """All n rows from the shares of all processes; gradients reach this process's own rows."""
        if self.size == 1:
            return rows
        gathered: Tensor = _Gather.apply(rows, n, self)
        return gathered

    def gather_views(self, rows: Float[Tensor, "2*share dim"], n: int) -> Float[Tensor, "2*n dim"]:
        """The same for rows that are view one of the share, then view two: view one of all comes first again."""
        if self.size == 1:
            return rows
        return torch.cat([self.gather(view, n) for view in rows.chunk(2)])

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Every process gets the sum of all shares of the gradient, in one message."""
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
        """What the first process makes of the work, for all of them; its failure is everybody's."""
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
            raise SaidElsewhere(result[1])
        answer: T = result[0]
        return answer

    def do_first(self, work: Callable[[], object]) -> None:
        """The first process does the work; the others wait for it."""

        def done() -> None:
            work()

        self.from_first(done)

    def local_rank_zero_first(self, work: Callable[[], T]) -> T:
        """The first process of each machine does the work before the others do: it finds the ground untouched."""
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
    """What the backends raise when another process is gone, in words."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise Failure(
            f"another process of this job is lost ({str(error).splitlines()[0]}). The last checkpoint is kept: start "
            "the same number of processes or another one with --resume."
        ) from error


@cache
def world() -> World:
    """The world that torchrun made, joined at the first call; otherwise one process alone."""
    here = World(**vars(rank_from_environment(os.environ)))
    if here.size > 1 and not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(here.local_rank)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=LONGEST_WAIT)
        atexit.register(_leave)
    return here


def _leave() -> None:
    """End the backend's threads while Python still runs: one that needs it after its end would abort the process."""
    if dist.is_initialized():
        dist.destroy_process_group()
