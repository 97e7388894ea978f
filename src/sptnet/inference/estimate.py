"""Estimate the number of categories among the images of a configuration."""

from dataclasses import dataclass

import numpy as np

from sptnet.clustering.count import CountEstimate, CountMethod
from sptnet.config import Config
from sptnet.data.load import load_data
from sptnet.inference.count_categories import count_categories, frozen_features
from sptnet.inference.features import feature_cache
from sptnet.model.backbone import backbone_from
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.distributed import world


@dataclass(frozen=True)
class CategoryCount:
    """Estimated number of categories, and what is known about it."""

    estimate: CountEstimate
    n_known: int
    """Number of known categories."""
    truth: int | None
    """True number of categories; None unless every image has a ground truth."""


def estimate_categories(
    config: Config, seed: int = 0, least: int | None = None, most: int | None = None, method: CountMethod = "auto"
) -> CategoryCount:
    """Estimate the number of categories with features of the pre-trained backbone; ranks of torchrun share the work."""
    everyone = world()
    images = everyone.from_first(lambda: load_data(config.data))
    split = images.split
    backbone = backbone_from(config, everyone)
    compute = choose_compute(config.device, config.precision, everyone.local_rank)
    features = frozen_features(feature_cache(config, images.image_set, backbone.pixels, compute, everyone), backbone)
    estimate = count_categories(images, features, seed, everyone, least, most, method)
    targets = split.target[np.concatenate([split.labelled, split.unlabelled])]
    return CategoryCount(estimate, split.n_known, len(np.unique(targets)) if (targets >= 0).all() else None)
