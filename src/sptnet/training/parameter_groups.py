"""Groups of parameters for an optimiser: weight decay on matrices, a learning rate of its own for the backbone."""

from typing import Any

from torch import nn

from sptnet.methods.stage_plan import Optimiser
from sptnet.model.gcd_model import GcdModel, Group


def parameter_groups(
    parameters: list[nn.Parameter], weight_decay: float, decay_vectors: bool = False
) -> list[dict[str, Any]]:
    """Optimiser groups with weight decay on matrices; on biases and other vectors only with `decay_vectors`."""
    matrices = [p for p in parameters if p.ndim > 1]
    vectors = [p for p in parameters if p.ndim <= 1]
    of_vectors = weight_decay if decay_vectors else 0.0
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": of_vectors}]


def rated_groups(model: GcdModel, group: Group, settings: Optimiser) -> list[dict[str, Any]]:
    """Optimiser groups of one group of the model; the backbone has its own groups if its learning rate differs."""
    parameters, decay = model.group(group), (settings.weight_decay, settings.decay_vectors)
    if settings.backbone_ratio == 1:
        return parameter_groups(parameters, *decay)
    of_backbone = {id(p) for p in model.backbone.parameters()}
    rest = parameter_groups([p for p in parameters if id(p) not in of_backbone], *decay)
    backbone = parameter_groups([p for p in parameters if id(p) in of_backbone], *decay)
    return [*rest, *(part | {"ratio": settings.backbone_ratio} for part in backbone)]
