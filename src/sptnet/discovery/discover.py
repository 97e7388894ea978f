"""What `sptnet discover` and `CategoryDiscoverer` share: settings, images, and a plan made for this machine."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from sptnet.config import BackboneSettings, Config
from sptnet.config.recipes import Settings, make_config, parse_toml, recipe_text, with_settings
from sptnet.data.image_set import ImageSet
from sptnet.data.load import SplitImages, load_image_set, resolve_n_categories, split_image_set
from sptnet.discovery.plan.costs import ImageSetFacts
from sptnet.discovery.plan.plan import Plan, check_wishes, make_plan
from sptnet.discovery.plan.speed import measure_speed
from sptnet.errors import Misuse
from sptnet.model.backbone import EMBEDDED, build_backbone
from sptnet.model.token_bank import free_disk
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.distributed import world
from sptnet.runtime.progress import Say, say
from sptnet.runtime.torchrun import lent_cores

DEFAULT_BACKBONE = BackboneSettings().name
AUTO = "auto"
WAYS_OUT = (
    "Ways out: connect to the network and try again; give a local weights file with --weights FILE; or, for small "
    f"drawings, take the backbone that comes with sptnet: --backbone {EMBEDDED}. (In Python: weights=..., backbone=...)"
)
ALL_LABELLED = (
    "every image is labelled, so there is nothing to discover. Put the unsorted images in a folder called unlabelled "
    "(or name yours with --unlabelled). To hide categories for an experiment instead, use sptnet train with --set "
    "data.known_classes=N."
)


def make_settings(backbone: str, changes: Settings) -> Config:
    """Settings with changes by key; the embedded backbone brings the learning rates that were found for it."""
    name = changes.get("backbone.name", backbone)
    name = DEFAULT_BACKBONE if name == AUTO else name
    values: dict[str, Any] = {}
    if name == EMBEDDED:
        digits = parse_toml(recipe_text("digits"), "digits")
        values = {section: digits[section] for section in digits if section not in ("method", "data")}
    return make_config(with_settings(values, {"backbone.name": name, "n_categories": AUTO, **changes}), "the options")


def epoch_settings(epochs: int | None) -> dict[str, int | None]:
    """`--epochs`: of whichever method; of SPTNet, of each of its stages."""
    return {f"{stage}.epochs": epochs for stage in ("gcd", "simgcd", "sptnet")}


def change_settings(config: Config, changes: Settings) -> Config:
    """Whole settings with changes by key on top."""
    return make_config(with_settings(config.model_dump(), changes), "the options")


def read_images(config: Config, tell: Say = say) -> tuple[Config, SplitImages]:
    """The images of the folder and who is labelled; the settings say so if nobody is."""

    def read() -> tuple[Config, SplitImages]:
        image_set, unreadable = load_image_set(config.data, tell)
        told = with_known_classes(config, image_set)
        return told, SplitImages(image_set, split_image_set(told.data, image_set), unreadable)

    return world().from_first(read)


def with_known_classes(config: Config, image_set: ImageSet) -> Config:
    """Settings for a pile that may have no labels at all; one that is sorted already is refused."""
    if config.data.known_classes is not None or config.data.split is not None:
        return config
    labels = image_set.labels[~image_set.test]
    if (labels >= 0).all():
        raise Misuse(ALL_LABELLED)
    return config.changed(data={"known_classes": 0}) if (labels < 0).all() else config


def plan_for(
    config: Config,
    data: SplitImages,
    out: Path,
    minutes: float | None = None,
    method: str | None = None,
    given: Collection[str] = (),
    report: bool = True,
    because: str = "as asked",
    pretrained: bool = True,
) -> Plan:
    """A plan for these images on this machine, whose speed is measured first; that needs no pre-trained weights.

    Several processes follow the plan of the first, its seed included: by its own clock each would make another.
    """
    settings, split, everyone = config.backbone, data.split, world()
    method = config.method if method is None and "method" in given else method
    check_wishes(minutes, method, split.n_known)  # before time is spent
    if config.n_categories != "auto":
        resolve_n_categories(config.n_categories, config.category_factor, split)
    weights = settings.weights if pretrained else None
    compute = choose_compute(config.device, config.precision, everyone.local_rank)

    def plan() -> Plan:
        backbone = build_backbone(
            settings.name, weights, settings.image_size, pretrained, ways_out=WAYS_OUT, reading=config.reading
        )
        alone = measure_speed(backbone, compute, data.image_set.sources, config.views.crop_ratio, config.head)
        facts = ImageSetFacts(
            len(data.image_set), len(split.labelled), len(split.unlabelled), split.n_known, free_disk(out)
        )
        crowded = max(1.0, everyone.on_machine / lent_cores()) if alone.device == "cpu" else 1.0
        speed = alone.of_processes(everyone.size / crowded)
        return make_plan(config, facts, speed, minutes, method, given, report, because)

    return everyone.from_first(plan)
