"""Loading views in the background of the training, in the same order whatever the number of workers."""

import sys
from collections.abc import Iterator
from types import TracebackType

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from sptnet.data.store import ImageStore
from sptnet.data.views import CentreViews, ViewMaker
from sptnet.runtime.torchrun import cores_per_process


def n_workers(setting: int | str, n_images: int) -> int:
    """`auto`: none for a small pile or on few cores, where starting processes costs more than it saves."""
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
) -> Iterator[Tensor]:
    loader: DataLoader[Tensor] = DataLoader(
        CentreViews(store, maker, indices),
        batch_size=batch_size,
        num_workers=workers,
        generator=torch.Generator(),
        worker_init_fn=let_hang_up,
    )
    for views in loader:
        yield maker.normalise(views)


def let_hang_up(worker: int) -> None:
    """In a worker: whoever waits for a batch may stop in the middle of taking it, and says so himself.

    Python's thread that hands it over would print a traceback of the broken connection.
    """
    tell = sys.excepthook

    def tell_the_rest(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, ConnectionError | EOFError):
            tell(kind, error, trace)

    sys.excepthook = tell_the_rest
