"""What a stage sees of all training images before an epoch."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from sptnet.inference.features import Outputs
from sptnet.methods.stage_plan import EpochStart, Memory
from sptnet.training.batching.batches import TrainingData

Look = Callable[[npt.NDArray[np.int64]], Outputs]
"""Computes the outputs of images by the present model."""


def epoch_start(
    data: TrainingData,
    look: Look,
    memory: Memory,
    seed: int,
    *,
    n_known: int,
    n_categories: int,
    epoch: int,
    epochs: int,
) -> EpochStart:
    """Look at all training images; labels are those that the learner may see."""
    images = np.sort(np.concatenate([data.labelled, data.unlabelled]))
    seen = look(images)
    return EpochStart(
        seen.features.clone(),  # computed in inference mode, which a loss could not use
        seen.logits.clone(),
        torch.from_numpy(data.labels[images]),
        torch.from_numpy(images),
        n_images=len(data.labels),
        n_known=n_known,
        n_categories=n_categories,
        epoch=epoch,
        epochs=epochs,
        seed=seed,
        memory={name: value.cpu() for name, value in memory.items()},
    )
