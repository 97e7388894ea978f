"""Draw the images of an epoch with replacement, labelled and unlabelled in balance."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sptnet.errors import Misuse


def balanced_batches(
    labelled: npt.NDArray[np.int64], unlabelled: npt.NDArray[np.int64], batch_size: int, seed: int
) -> list[Tensor]:
    """Draw as many images as there are, each labelled with probability one half; a last, shorter batch is dropped."""
    images = torch.from_numpy(np.concatenate([labelled, unlabelled]))
    check_batch_size(len(images), batch_size)
    weights = torch.ones(len(images), dtype=torch.float64)
    if len(labelled) and len(unlabelled):
        weights[len(labelled) :] = len(labelled) / len(unlabelled)
    generator = torch.Generator().manual_seed(seed)
    drawn = images[torch.multinomial(weights, len(images), replacement=True, generator=generator)]
    return list(drawn[: len(images) // batch_size * batch_size].split(batch_size))


def check_batch_size(n_images: int, batch_size: int) -> None:
    """Refuse a batch size larger than the number of training images."""
    if n_images < batch_size:
        raise Misuse(
            f"training.batch_size is {batch_size}, but there are only {n_images} training images. "
            f"Give at most {n_images}, such as `training.batch_size={max(2, n_images // 4)}`."
        )
