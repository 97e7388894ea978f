"""`n_categories = "auto"`: the images' features by the pre-trained backbone, and the count that they suggest."""

import numpy as np
import numpy.typing as npt
from jaxtyping import Float
from torch import Tensor

from sptnet.clustering.count import CountEstimate, CountMethod, estimate_n_categories
from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.data.loader import n_workers
from sptnet.inference.features import extract_features
from sptnet.model.backbone import Backbone
from sptnet.runtime.compute import Compute
from sptnet.runtime.distributed import World
from sptnet.runtime.progress import bar

Indices = npt.NDArray[np.int64]
TYPICAL_TRIALS = 30  # counts of categories that an estimate tries


def count_categories(
    data: SplitImages,
    features: Float[Tensor, "n dim"],
    images: Indices,
    seed: int,
    world: World,
    least: int | None = None,
    most: int | None = None,
    method: CountMethod = "auto",
) -> CountEstimate:
    """How many categories there seem to be among the images with these features."""
    split = data.split
    labels = np.where(np.isin(images, split.labelled), split.target[images], -1)
    with bar("trying counts", TYPICAL_TRIALS) as update:
        return world.from_first(
            lambda: estimate_n_categories(
                features.numpy(),
                labels,
                least,
                most,
                random_state=seed,
                method=method,
                on_trial=lambda count, tried: update(min(tried, TYPICAL_TRIALS), f"{count} categories"),
            )
        )


def features_of(
    config: Config, data: SplitImages, images: Indices, backbone: Backbone, compute: Compute, world: World
) -> Float[Tensor, "n dim"]:
    """Of some images, by the pre-trained backbone."""
    sources, workers = [data.image_set.sources[i] for i in images], n_workers(config.views.workers, len(data.image_set))
    with bar("looking at all images", len(images)) as update:
        return extract_features(backbone, sources, config.views.crop_ratio, compute, workers, update, world)
