"""Estimate the number of categories of a run from the features of the pre-trained backbone."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from sptnet.clustering.count import CountEstimate, CountMethod, estimate_n_categories
from sptnet.config import Config
from sptnet.data.load import SplitImages, load_data
from sptnet.inference.features import feature_cache
from sptnet.model.backbone import backbone_from, check_backbone
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.distributed import World, world
from sptnet.runtime.progress import bar

TYPICAL_TRIALS = 30  # numbers of categories that an estimate tries


def count_categories(
    images: SplitImages,
    features: Float[Tensor, "n dim"],
    seed: int,
    everyone: World,
    least: int | None = None,
    most: int | None = None,
    method: CountMethod = "auto",
) -> CountEstimate:
    """Estimate the number of categories among the training images; `features` has a row per image of the set."""
    split = images.split
    with bar("trying counts", TYPICAL_TRIALS) as update:
        return everyone.from_first(
            lambda: estimate_n_categories(
                features[split.training].numpy(),
                split.training_labels,
                least,
                most,
                random_state=seed,
                method=method,
                on_trial=lambda count, tried: update(min(tried, TYPICAL_TRIALS), f"{count} categories"),
            )
        )


@dataclass(frozen=True)
class RunCount:
    """Estimated number of categories, and what is known about it."""

    estimate: CountEstimate
    n_known: int
    """Number of known categories."""
    truth: int | None
    """True number of categories; None unless every image has a ground truth."""


def estimate_categories(
    config: Config, seed: int = 0, least: int | None = None, most: int | None = None, method: CountMethod = "auto"
) -> RunCount:
    """Estimate the number of categories with features of the pre-trained backbone; ranks of torchrun share the work."""
    everyone = world()
    check_backbone(config.backbone)
    images = everyone.from_first(lambda: load_data(config.data))
    split = images.split
    backbone = backbone_from(config, everyone)
    compute = choose_compute(config.device, config.precision, everyone.local_rank)
    cache = feature_cache(config, images.image_set, backbone.pixels, compute, everyone)
    features = cache.compute_all(backbone.to(compute.device))
    estimate = count_categories(images, features, seed, everyone, least, most, method)
    targets = split.target[split.training]
    return RunCount(estimate, split.n_known, len(np.unique(targets)) if (targets >= 0).all() else None)
