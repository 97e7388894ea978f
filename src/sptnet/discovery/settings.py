"""Settings and images of a discovery, from options."""

from typing import Any

from sptnet.config import BackboneSettings, Config
from sptnet.config.recipes import Settings, make_config, recipe_values, with_settings
from sptnet.data.load import SplitImages, load_unsorted
from sptnet.model.backbone import EMBEDDED
from sptnet.runtime.distributed import world
from sptnet.runtime.progress import Say, say

DEFAULT_BACKBONE = BackboneSettings().name
AUTO = "auto"


def make_settings(backbone: str, changes: Settings) -> Config:
    """Default settings with changes by key; the embedded backbone has its own learning rates."""
    name = changes.get("backbone.name", backbone)
    name = DEFAULT_BACKBONE if name == AUTO else name
    values: dict[str, Any] = {}
    if name == EMBEDDED:
        digits = recipe_values("digits")
        values = {section: digits[section] for section in digits if section not in ("method", "data")}
    own = {"n_categories": AUTO, **changes, "backbone.name": name}
    return make_config(with_settings(values, own), "the options")


def change_settings(config: Config, changes: Settings) -> Config:
    """Change settings by key."""
    return make_config(with_settings(config.model_dump(), changes), "the options")


def read_images(config: Config, tell: Say = say) -> tuple[Config, SplitImages]:
    """Read the images of a folder; the settings are changed if no image has a label."""
    data, images = world().from_first(lambda: load_unsorted(config.data, tell))
    return config.model_copy(update={"data": data}), images
