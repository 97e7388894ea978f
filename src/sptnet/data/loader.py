"""Load views with worker processes; the order does not depend on the number of workers."""

import sys
from collections.abc import Iterator
from types import TracebackType

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import DataLoader

from sptnet.data.store import ImageStore
from sptnet.data.views import CentreViews, ViewMaker
from sptnet.runtime.torchrun import cores_per_process


def n_workers(setting: int | str, n_images: int) -> int:
    """Return the number of workers; `auto` is 0 for few images or cores, where starting processes does not pay off."""
    if isinstance(setting, int):
        return setting
    cores = cores_per_process()
    return 0 if cores <= 2 or n_images < 2000 else min(8, cores - 1)


def iterate_centre_views(
    store: ImageStore,
    maker: ViewMaker,
    indices: npt.NDArray[np.int64],
    batch_size: int,
    workers: int = 0,
) -> Iterator[Float[Tensor, "batch 3 size size"]]:
    """Yield batches of normalised centre views of the images at `indices`."""
    loader: DataLoader[Tensor] = DataLoader(
        CentreViews(store, maker, indices),
        batch_size=batch_size,
        num_workers=workers,
        generator=torch.Generator(),
        worker_init_fn=ignore_broken_pipes,
    )
    for views in loader:
        yield maker.normalise(views)


def ignore_broken_pipes(worker: int) -> None:
    """Suppress broken-pipe tracebacks in a worker whose parent has stopped reading."""
    original = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, ConnectionError | EOFError):
            original(kind, error, trace)

    sys.excepthook = hook
