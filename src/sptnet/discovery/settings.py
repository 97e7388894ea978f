"""From options to the settings and images of a discovery."""

from typing import Any

from sptnet.config import BackboneSettings, Config
from sptnet.config.recipes import Settings, make_config, parse_toml, recipe_text, with_settings
from sptnet.data.image_set import ImageSet
from sptnet.data.load import SplitImages, load_image_set, split_image_set
from sptnet.errors import Misuse
from sptnet.model.backbone import EMBEDDED
from sptnet.runtime.distributed import world
from sptnet.runtime.progress import Say, say

DEFAULT_BACKBONE = BackboneSettings().name
AUTO = "auto"
ALL_LABELLED = (
    "every image is labelled, so there is nothing to discover. Put the unsorted images in a folder called unlabelled "
    "(or name yours with `data.unlabelled`). To hide categories for an experiment instead, use sptnet train with "
    "`data.known_classes=N`."
)


def make_settings(backbone: str, changes: Settings) -> Config:
    """Settings with changes by key; the embedded backbone brings the learning rates that were found for it."""
    name = changes.get("backbone.name", backbone)
    name = DEFAULT_BACKBONE if name == AUTO else name
    values: dict[str, Any] = {}
    if name == EMBEDDED:
        digits = parse_toml(recipe_text("digits"), "digits")
        values = {section: digits[section] for section in digits if section not in ("method", "data")}
    own = {"n_categories": AUTO, **changes, "backbone.name": name}
    return make_config(with_settings(values, own), "the options")


def change_settings(config: Config, changes: Settings) -> Config:
    """Whole settings with changes by key on top."""
    return make_config(with_settings(config.model_dump(), changes), "the options")


def epoch_settings(epochs: int | None) -> dict[str, int | None]:
    """The same number of epochs for every stage of every method."""
    return {f"{stage}.epochs": epochs for stage in ("gcd", "simgcd", "sptnet")}


def read_images(config: Config, tell: Say = say) -> tuple[Config, SplitImages]:
    """The images of a folder and their split; the settings say so if no image has a label."""

    def read() -> tuple[Config, SplitImages]:
        image_set, unreadable = load_image_set(config.data, tell)
        known = with_known_classes(config, image_set)
        return known, SplitImages(image_set, split_image_set(known.data, image_set), unreadable)

    return world().from_first(read)


def with_known_classes(config: Config, image_set: ImageSet) -> Config:
    """Settings for images that may have no labels at all; a folder that is sorted already is refused."""
    if config.data.known_classes is not None or config.data.split is not None:
        return config
    labels = image_set.labels[~image_set.test]
    if (labels >= 0).all():
        raise Misuse(ALL_LABELLED)
    return config.changed(data={"known_classes": 0}) if (labels < 0).all() else config
