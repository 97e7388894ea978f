"""`n_categories = "auto"`: the images' features by the pre-trained backbone, and the count that they suggest."""

import numpy as np

from sptnet.backbone import Backbone
from sptnet.config import Config
from sptnet.data import LoadedData
from sptnet.device import Compute
from sptnet.distributed import World
from sptnet.estimate import CountEstimate, estimate_n_categories
from sptnet.features import extract_features
from sptnet.loader import n_workers
from sptnet.progress import bar
from sptnet.seeds import seed_of

TYPICAL_TRIALS = 30  # counts of categories that an estimate tries


def count_categories(
    config: Config, data: LoadedData, backbone: Backbone, compute: Compute, world: World
) -> CountEstimate:
    """How many categories there seem to be among the training images."""
    pile, split = data.pile, data.split
    trained_on = np.concatenate([split.labelled, split.unlabelled])
    sources, workers = [pile.sources[i] for i in trained_on], n_workers(config.views.workers, len(pile))
    with bar("counting categories", len(trained_on)) as update:
        features = extract_features(backbone, sources, config.views.crop_ratio, compute, workers, update, world)
    labels = np.where(np.isin(trained_on, split.labelled), split.target[trained_on], -1)
    with bar("trying counts", TYPICAL_TRIALS) as update:
        return world.from_first(
            lambda: estimate_n_categories(
                features.numpy(),
                labels,
                random_state=seed_of(config.seed, "count") % 2**32,
                on_trial=lambda count, tried: update(min(tried, TYPICAL_TRIALS), f"{count} categories"),
            )
        )
