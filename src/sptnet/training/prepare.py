"""Prepare a run: images, number of categories and model before the first step.

`check` is the only place that decides whether these images can be trained with these settings.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sptnet.clustering.centroids import find_centroids
from sptnet.clustering.count import CountEstimate
from sptnet.config import BackboneSettings, Config, TimedSettings
from sptnet.config.sections import MOST_EPOCHS
from sptnet.data.load import SplitImages, load_data, resolve_n_categories
from sptnet.data.split import Split
from sptnet.data.split_file import labelled_ids
from sptnet.errors import Misuse
from sptnet.head import PrototypeHead
from sptnet.inference.count_categories import count_categories
from sptnet.inference.features import feature_cache
from sptnet.methods import method_of
from sptnet.methods.method import Labels, Points
from sptnet.methods.phases import TakeTurns
from sptnet.methods.stage_plan import StagePlan
from sptnet.model.backbone import Backbone, backbone_from, check_backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import ModelCard, load_model
from sptnet.results.categories import category_names
from sptnet.results.run_folder import RunFolder
from sptnet.results.track import check_track
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.distributed import World, world
from sptnet.runtime.progress import Say, say
from sptnet.runtime.seeds import seed_of, seeded
from sptnet.runtime.text import count, listed, printable
from sptnet.schedules import steps_per_epoch
from sptnet.training.anchor import check_anchor
from sptnet.training.bank_setup import reads_raw_views, with_bank
from sptnet.training.batching.sampler import check_batch_size
from sptnet.training.run_state import RunState


def prepare(
    config: Config,
    run: RunFolder,
    images: SplitImages | None = None,
    backbone: Backbone | None = None,
    tell: Say = say,
    features: Float[Tensor, "n dim"] | None = None,
) -> RunState:
    """Build the state of a run from its settings. Nothing is written.

    Images and backbone are loaded unless they are given; `features` are those of all images by that backbone, if they
    were computed before.
    """
    everyone, method = world(), method_of(config)
    check_track(config.training.track)
    run.check_place(config.data.folder)
    compute = choose_compute(config.device, config.precision, everyone.local_rank)
    if backbone is None and start_of(config) is None:
        check_backbone(config.backbone)
    images = images or everyone.from_first(lambda: load_data(config.data, tell))
    config = with_enough_epochs(config, len(images.split.training))
    stages = method.stages(config)
    check(config, images.split, tell)
    start = load_start(config, images)
    whole = start if method.start == "model" else None
    if start is None:
        backbone = backbone or backbone_from(config, everyone)
    else:
        backbone = start[0].backbone
        used = {"name": backbone.name, "weights": None, "image_size": backbone.pixels.image_size}
        config = config.changed(backbone=used)
    cache = feature_cache(config, images.image_set, backbone.pixels, compute, everyone)
    cache.kept = features
    estimate: CountEstimate | None = None
    asked = config.n_categories
    if asked == "auto" and whole is not None:
        asked = len(whole[1].categories)
    elif asked == "auto" and method.count is not None and images.split.n_known >= method.count_least:
        asked = count_by_method(method.count, cache.compute_all(backbone.to(compute.device)), images, config, everyone)
        tell(f"{config.method} finds {asked} categories")
    elif asked == "auto":
        features = cache.compute_all(backbone.to(compute.device))
        estimate = count_categories(images, features, seed_of(config.seed, "count") % 2**32, everyone)
        asked, (low, high) = estimate.n_categories, estimate.interval
        found = "seems to be 1 category" if asked == 1 else f"seem to be {asked} categories"
        tell(f"there {found} ({low} to {high} are plausible)")
    n_categories = resolve_n_categories(asked, config.category_factor, images.split)
    if method.clusters == "plain" and n_categories > len(images.split.unlabelled):
        raise Misuse(
            f"`n_categories` is {n_categories}, but {config.method} clusters only the {len(images.split.unlabelled)} "
            "unlabelled images. Give at most that many, or use sskmeans."
        )
    config = config.model_copy(update={"n_categories": n_categories, "category_factor": 1.0})
    if whole is None:
        with seeded(seed_of(config.seed, "head")):
            head = method.head(config, backbone.dim, n_categories)
        model = GcdModel(backbone, head, config.backbone.trainable_blocks)
        if config.head.start == "clusters":
            assert isinstance(head, PrototypeHead)
            start_from_clusters(head, cache.compute_all(backbone.to(compute.device)), images.split, config, everyone)
    else:
        model = whole[0]
        check_start(whole[1], config, images.split.known_classes)
    names = category_names(images.split.known_classes, n_categories)
    state = RunState(
        config, images, method, stages, names, model.to(compute.device), cache, compute, everyone, estimate
    )
    if start is None and needs_frozen(config):  # computed whenever a run is prepared: a resumed one has them too
        state.frozen = cache.compute_all(backbone.to(compute.device))
    _check_model(state)
    n_images = len(images.image_set)
    state.config = everyone.from_first(
        lambda: with_bank(config, run.path, model.backbone, n_images, tell, everyone.machine)
    )
    return state


def needs_frozen(config: Config) -> bool:
    """True if the certainty of the images takes features from before training."""
    return config.head.start == "clusters" or config.training.certainty == "calibrated"


def count_by_method(
    rule: Callable[[Points, Labels, int], int],
    features: Float[Tensor, "n dim"],
    images: SplitImages,
    config: Config,
    everyone: World,
) -> int:
    """Count the categories by a method's own rule; `features` has a row per image of the set."""
    split, seed = images.split, seed_of(config.seed, "count") % 2**32
    points = F.normalize(features[split.training], dim=1).numpy()
    return everyone.from_first(lambda: rule(points, split.training_labels, seed))


@torch.no_grad()
def start_from_clusters(
    head: PrototypeHead, features: Float[Tensor, "n dim"], split: Split, config: Config, everyone: World
) -> None:
    """Set the prototypes to the centroids of semi-supervised k-means; `features` has a row per image of the set."""
    seed = seed_of(config.seed, "cluster start")
    centroids = everyone.from_first(
        lambda: find_centroids(
            features[split.training], split.training_labels, head.n_categories, config.sskmeans, seed, True
        )
    )
    head.prototypes.copy_(F.normalize(centroids, dim=1))


def with_enough_epochs(config: Config, n_images: int) -> Config:
    """Add epochs to stages that would have fewer than `min_steps` steps; the warm-up of the teacher keeps its share."""
    batches = max(1, steps_per_epoch(n_images, config.training.batch_size))
    changes: dict[str, dict[str, int]] = {}
    for name in Config.stage_names():
        stage: TimedSettings = getattr(config, name)
        epochs = -(-stage.min_steps // batches)
        if epochs > stage.epochs:
            changes[name] = {"epochs": epochs}
            warm_up = getattr(stage, "teacher_warm_up", None)
            if warm_up is not None:
                changes[name]["teacher_warm_up"] = min(max(1, round(warm_up * epochs / stage.epochs)), MOST_EPOCHS)
    return config.changed(**changes) if changes else config


def check(config: Config, split: Split, tell: Say = say) -> None:
    """Refuse settings that cannot be trained with these images, before anything takes time."""
    method = method_of(config)
    if split.n_known == 0 and method.clusters != "plain":
        raise Misuse(f"no image has a label, but {config.method} learns from them. Label some, or use kmeans.")
    if config.training.select == "best-old-holdout" and len(split.holdout) == 0:
        raise Misuse(
            "training.select=best-old-holdout needs labelled images kept aside. Give a share of them, "
            "such as `data.holdout_share=0.2`."
        )
    if config.head.start == "clusters":
        if config.method not in ("simgcd", "sptnet"):
            raise Misuse(
                f"`head.start=clusters` sets the prototypes of simgcd and sptnet, but {config.method} has none. "
                "Leave it out."
            )
        if config.method == "sptnet" and config.sptnet.start_from is not None:
            raise Misuse(
                "`sptnet.start_from` brings trained prototypes, which `head.start=clusters` would replace. Give one of "
                "them."
            )
    n_images, batch_size = len(split.training), config.training.batch_size
    stages = method.stages(config)
    if config.views.bank not in (0, "auto") and stages and not reads_raw_views(stages):
        raise Misuse(
            f"{config.method} adds prompts to every view, so a token bank has none to store. Leave `views.bank` out."
        )
    for plan in stages:
        check_batch_size(n_images, batch_size)
        if plan.anchor is not None:
            check_anchor(plan.anchor)
        if isinstance(plan.turns, TakeTurns):
            _check_turns(plan, plan.turns, steps_per_epoch(n_images, batch_size), tell)


def _check_turns(plan: StagePlan, turns: TakeTurns, batches: int, tell: Say) -> None:
    turns.check(plan.epochs, batches)
    if turns.restart and not turns.restarts(batches):
        tell(f"an epoch has {batches} batches, fewer than a turn's {turns.k}: turns go on through the epochs")


def _check_model(state: RunState) -> None:
    """Refuse blocks and prompts that the backbone does not have room for."""
    state.model.group("model")
    for plan in reversed(state.stages):  # so that the prompts of the first stage stay
        state.attach_prompt(plan)


def start_of(config: Config) -> str | None:
    """Return the finished run that a method starts from, if the settings name one."""
    run: str | None = None if method_of(config).start == "none" else getattr(config, config.method).start_from
    return run


def load_start(config: Config, images: SplitImages) -> tuple[GcdModel, ModelCard] | None:
    """Load the finished model that a method starts from, if the settings name one, and refuse one that does not fit."""
    run, method = start_of(config), method_of(config)
    if run is None:
        return None
    model, card = load_model(run)
    folder, wanted = RunFolder(run), " or ".join(method.starts_from)
    of_method = folder.config().method if folder.is_run else None
    if of_method is not None and of_method not in method.starts_from:
        raise Misuse(
            f"{run} is a run of {of_method}, but {config.method} builds on one of {wanted}. Give such a run, or the "
            f"model directory {folder.model} to build on it all the same."
        )
    if method.start == "model" and not isinstance(model.head, PrototypeHead):
        raise Misuse(f"{run} has no trained classifier to build on. Give a run of {wanted}.")
    _check_labels_of_start(folder, card, images)
    _check_backbone_of_start(run, model.backbone, config)
    model.trainable_blocks = config.backbone.trainable_blocks
    return model, card


def _check_labels_of_start(start: RunFolder, card: ModelCard, images: SplitImages) -> None:
    """Refuse a start that has learned labels which are hidden here: of new classes, or of images that are scored."""
    split, ids = images.split, images.image_set.ids
    classes = set(card.categories[: card.n_known]) & set(split.new_classes)
    if classes:
        raise Misuse(
            f"{start.path} was trained with labels of {listed(sorted(classes))}, which are to be discovered here. "
            "Start from a run with the same `data.known_classes`."
        )
    if start.split_file.is_file():
        hidden = sorted({ids[i] for i in (*split.unlabelled, *split.test)} & labelled_ids(start.split_file))
        if hidden:
            raise Misuse(
                f"{start.path} was trained with labels that are hidden here, those of {count(hidden, 'image')} such as "
                f"{printable(hidden[0])}. Start from a run with the same images and the same `data.split_seed`."
            )


def _check_backbone_of_start(run: str, found: Backbone, config: Config) -> None:
    """Refuse another backbone than that of the start; the default name stands for no choice."""
    asked, size = config.backbone, found.pixels.image_size
    other = asked.name != found.name and asked.name != BackboneSettings().name
    if other or asked.image_size not in (None, size):
        wanted = f"{asked.name}{'' if asked.image_size is None else f' at {asked.image_size} px'}"
        raise Misuse(
            f"{run} has the backbone {found.name} at {size} px, which its training goes on with, and not {wanted}. "
            "Leave `backbone.name` and `backbone.image_size` out, or start from a run with that backbone."
        )


def check_start(card: ModelCard, config: Config, known_classes: tuple[str, ...]) -> None:
    """Refuse a starting model with other categories than this run."""
    if len(card.categories) != config.n_categories or card.categories[: card.n_known] != known_classes:
        raise Misuse(
            f"{config.sptnet.start_from} was trained for {len(card.categories)} categories and knows "
            f"{listed(card.categories[: card.n_known])}; this run has {config.n_categories} and knows "
            f"{listed(known_classes)}. Use the same data and n_categories."
        )
