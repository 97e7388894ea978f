"""Estimate the number of categories of a run from the features of the pre-trained backbone."""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from sptnet.clustering.count import CountEstimate, CountMethod, estimate_n_categories
from sptnet.data.load import SplitImages
from sptnet.runtime.distributed import World
from sptnet.runtime.progress import bar

TYPICAL_TRIALS = 30  # numbers of categories that an estimate tries


def count_categories(
    images: SplitImages,
    features: Float[Tensor, "n dim"],
    seed: int,
    world: World,
    least: int | None = None,
    most: int | None = None,
    method: CountMethod = "auto",
) -> CountEstimate:
    """Estimate the number of categories among the training images; `features` has a row per image of the set."""
    split = images.split
    trained_on = np.concatenate([split.labelled, split.unlabelled])
    labels = np.where(np.isin(trained_on, split.labelled), split.target[trained_on], -1)
    with bar("trying counts", TYPICAL_TRIALS) as update:
        return world.from_first(
            lambda: estimate_n_categories(
                features[trained_on].numpy(),
                labels,
                least,
                most,
                random_state=seed,
                method=method,
                on_trial=lambda count, tried: update(min(tried, TYPICAL_TRIALS), f"{count} categories"),
            )
        )
