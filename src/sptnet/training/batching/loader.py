"""Load the batches of a stage with worker processes that live as long as the stage."""

from collections.abc import Generator, Iterator
from itertools import islice

import torch
from torch.utils.data import DataLoader, Dataset

from sptnet.data.loader import ignore_broken_pipes
from sptnet.training.batching.batches import Batch, StageBatches


class EpochLoader:
    """One loader for all remaining epochs: it starts once and works ahead into the next epoch.

    If the stage adds images to its batches, which are others in every epoch, it ends with the epoch.
    """

    def __init__(self, batches: StageBatches, workers: int, pin: bool):
        self.batches, self.workers, self.pin = batches, workers, pin
        self._stream: Generator[Batch] | None = None
        self._next = 0

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Batches of an epoch; the loader restarts unless it is the next one."""
        end = epoch + 1 if self.batches.extra is not None else max(epoch + 1, self.batches.epochs)
        first, last = epoch * self.batches.batches, end * self.batches.batches
        if self._stream is None or self._next != first:
            self._stream = iterate_batches(self.batches, self.workers, self.pin, range(first, last))
            self._next = first
        for batch in islice(self._stream, self.batches.batches):
            self._next += 1
            yield batch
        if self._next == last:
            self.close()

    def close(self) -> None:
        """End the worker processes."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def iterate_batches(batches: Dataset[Batch], workers: int, pin: bool, numbers: range | None = None) -> Generator[Batch]:
    """Load the batches with these numbers, or all; closing the generator ends its processes."""
    loader: DataLoader[Batch] = DataLoader(
        batches,
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        pin_memory=pin,
        generator=torch.Generator(),
        worker_init_fn=ignore_broken_pipes,
    )
    yield from loader
