"""The finished SimGCD model that SPTNet starts from."""

from sptnet.config import Config
from sptnet.errors import Misuse
from sptnet.head import PrototypeHead
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import load_model
from sptnet.runtime.text import listed


def starting_model(run: str, config: Config, known_classes: tuple[str, ...]) -> tuple[GcdModel, Config]:
    """The model of that run, and the settings with its backbone; refused if it knows other categories than this run."""
    model, card = load_model(run)
    if not isinstance(model.head, PrototypeHead):
        raise Misuse(f"{run} has no trained classifier to build on. Give a run of simgcd or sptnet.")
    if len(card.categories) != config.n_categories or card.categories[: card.n_known] != known_classes:
        raise Misuse(
            f"{run} was trained for {len(card.categories)} categories and knows "
            f"{listed(card.categories[: card.n_known])}; this run has {config.n_categories} and knows "
            f"{listed(known_classes)}. Use the same data and n_categories."
        )
    model.trainable_blocks = config.backbone.trainable_blocks
    used = {"name": model.backbone.name, "weights": None, "image_size": model.backbone.pixels.image_size}
    return model, config.model_copy(update={"backbone": config.backbone.model_copy(update=used)})
