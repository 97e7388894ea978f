"""Decide whether images can be sorted as asked. `check` and `discover` ask here, so that their answers agree."""

import torch

from sptnet.config import Config
from sptnet.data.load import resolve_n_categories
from sptnet.data.split import Split
from sptnet.discovery.planner import check_options, check_wishes
from sptnet.errors import Misuse
from sptnet.head import PrototypeHead
from sptnet.methods import METHODS, method_of
from sptnet.model.backbone import Backbone, check_backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.runtime.compute import choose_compute
from sptnet.training.prepare import check


def check_request(config: Config, minutes: float | None, method: str | None) -> None:
    """Refuse options that are wrong whatever the images, before images are read."""
    check_options(minutes, method)
    choose_compute(config.device, config.precision)
    check_backbone(config.backbone)


def check_images(config: Config, split: Split, minutes: float | None, method: str | None) -> None:
    """Refuse images that cannot be sorted as asked, before time is spent on a plan."""
    check_wishes(minutes, method, split.n_known)
    asked = config.n_categories
    if asked != "auto":
        asked = resolve_n_categories(asked, config.category_factor, split)
    plain = split.n_known > 0 and method is not None and METHODS[method].clusters == "plain"
    images, kind = (len(split.unlabelled), "unlabelled") if plain else (len(split.training), "training")
    least = max(1, split.n_known) if asked == "auto" else asked
    if least > images:
        found = f"{split.n_known} categories are known" if asked == "auto" else f"`n_categories` is {asked}"
        raise Misuse(
            f"{found}, but there {'is' if images == 1 else 'are'} only {images} {kind} "
            f"{'image' if images == 1 else 'images'}. Add images, or give a lower number."
        )


def check_plan(config: Config, split: Split, backbone: Backbone) -> None:
    """Refuse planned settings that cannot be trained with these images, or that the backbone has no room for."""
    check(config, split, lambda line: None)
    method = method_of(config)
    if method.start != "none" and getattr(config, config.method).start_from is not None:
        return  # the backbone of that run counts
    head = PrototypeHead(backbone.dim, n_categories=2, hidden=2, bottleneck=2)
    model = GcdModel(backbone, head, config.backbone.trainable_blocks)
    model.group("model")
    for stage in method.stages(config):
        prompt = config.prompt.model_copy(update={"kind": stage.prompt_kind})
        model.attach_prompt(prompt, torch.Generator().manual_seed(0))
