"""From settings to a learner: the images, how many categories to look for, and a model before its first step."""

from functools import cache

import numpy as np
from jaxtyping import Float
from torch import Tensor

from sptnet.clustering.count import CountEstimate
from sptnet.config import Config
from sptnet.data.load import SplitImages, check_count, load_data, resolve_n_categories
from sptnet.data.loader import n_workers
from sptnet.data.split import Split
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.errors import Misuse
from sptnet.inference.count_categories import count_categories, features_of
from sptnet.inference.looking import Looker
from sptnet.methods import method_of
from sptnet.methods.method import Method
from sptnet.model.backbone import Backbone, build_backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import load_model
from sptnet.results.categories import category_names
from sptnet.runtime.compute import Compute, choose_compute
from sptnet.runtime.distributed import World, world
from sptnet.runtime.progress import Say, say
from sptnet.runtime.seeds import seed_of, seeded
from sptnet.training.run_state import RunState
from sptnet.training.starting_model import starting_model


def prepare(config: Config, data: SplitImages | None = None, tell: Say = say) -> RunState:
    """Everything that training needs, or clustering where nothing is trained. Nothing is written."""
    method, everyone = method_of(config), world()
    stages = method.stages(config)
    compute = choose_compute(config.device, config.precision, everyone.local_rank)
    data = data or everyone.from_first(lambda: load_data(config.data, tell))
    split, start = data.split, config.sptnet.start_from if config.method == "sptnet" else None
    check(config, method, split)
    backbone = cache(lambda: backbone_of(config, everyone))  # built where it is needed, and once
    asked, estimate, seen = config.n_categories, None, None
    if asked == "auto" and start is not None:
        asked = len(load_model(start)[1].categories)
    elif asked == "auto":
        estimate, seen = count(config, data, bool(stages), backbone(), compute, everyone)
        asked, (low, high) = estimate.n_categories, estimate.interval
        tell(f"there seem to be {asked} categories ({low} to {high} are plausible)")
    n_categories = resolve_n_categories(asked, config.category_factor, split)
    config = config.model_copy(update={"n_categories": n_categories, "category_factor": 1.0})
    if start is None:
        model = fresh_model(config, method, backbone(), n_categories)
    else:
        model, config = starting_model(start, config, split.known_classes)
    model = model.to(compute.device)
    looker = looker_of(config, data, model, compute, everyone)
    looker.seen = seen
    names = category_names(split.known_classes, n_categories)
    return RunState(config, data, method, stages, names, model, looker, compute, everyone, estimate)


def check(config: Config, method: Method, split: Split) -> None:
    """What these images cannot be trained with is refused before anything takes time."""
    if split.n_known == 0 and method.clusters != "plain":
        raise Misuse(f"no image has a label, but {config.method} learns from them. Label some, or use kmeans.")
    check_count(config.n_categories, config.category_factor)
    if config.training.select == "best-old-holdout" and len(split.holdout) == 0:
        raise Misuse(
            "training.select=best-old-holdout needs labelled images kept aside. Give a share of them, "
            "such as --set data.holdout_share=0.2."
        )


def backbone_of(config: Config, everyone: World) -> Backbone:
    settings, reading = config.backbone, config.reading
    return everyone.one_by_one_on_a_machine(
        lambda: build_backbone(settings.name, settings.weights, settings.image_size, reading=reading)
    )


def count(
    config: Config, data: SplitImages, trains: bool, backbone: Backbone, compute: Compute, everyone: World
) -> tuple[CountEstimate, Float[Tensor, "n dim"] | None]:
    """How many categories there seem to be. Where nothing trains, also all images' features: the look that it took
    serves clustering and sorting as well."""
    images = np.concatenate([data.split.labelled, data.split.unlabelled])
    looked_at = images if trains else np.arange(len(data.image_set))
    features = features_of(config, data, looked_at, backbone, compute, everyone)
    seed = seed_of(config.seed, "count") % 2**32
    estimate = count_categories(data, features if trains else features[images], images, seed, everyone)
    return estimate, None if trains else features


def fresh_model(config: Config, method: Method, backbone: Backbone, n_categories: int) -> GcdModel:
    with seeded(seed_of(config.seed, "head")):
        head = method.head(config, backbone.dim, n_categories)
    return GcdModel(backbone, head, config.backbone.trainable_blocks)


def looker_of(config: Config, data: SplitImages, model: GcdModel, compute: Compute, everyone: World) -> Looker:
    views, pixels = config.views, model.backbone.pixels
    workers = n_workers(views.workers, len(data.image_set))
    cache_mb = views.cache_mb // max(1, workers)  # every worker has one of its own
    store = ImageStore(data.image_set.sources, pixels, views.crop_ratio, cache_mb)
    size = max(64, config.training.batch_size)
    return Looker(store, ViewMaker(pixels, views.flip), compute, workers, size, everyone)
