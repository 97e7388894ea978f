"""The head: a projection for the contrastive losses beside a cosine classifier with unit-norm prototypes."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def projection_mlp(dim: int, hidden: int, bottleneck: int) -> nn.Sequential:
    """Three layers with GELU between them, small normal weights and no bias at the start."""
    mlp = nn.Sequential(
        nn.Linear(dim, hidden),
        nn.GELU(),
        nn.Linear(hidden, hidden),
        nn.GELU(),
        nn.Linear(hidden, bottleneck),
    )
    for layer in mlp:
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
    return mlp


class PrototypeHead(nn.Module):
    """Features to (projections, logits). Both read the class token; the classifier does not see the MLP."""

    lengths: Tensor | None
    """Fixed factors of the logits; only models from elsewhere whose prototypes are not all of length 1 have them."""

    def __init__(
        self, dim: int, n_categories: int, hidden: int = 2048, bottleneck: int = 256, with_lengths: bool = False
    ):
        super().__init__()
        self.hidden, self.bottleneck = hidden, bottleneck
        self.mlp = projection_mlp(dim, hidden, bottleneck)
        # The rows' directions are the prototypes; their lengths cancel in `forward`. They start random uniform,
        # as a linear layer's weights do.
        self.prototypes = nn.Parameter(nn.Linear(dim, n_categories, bias=False).weight.detach().clone())
        self.register_buffer("lengths", torch.ones(n_categories) if with_lengths else None)

    @property
    def n_categories(self) -> int:
        return len(self.prototypes)

    def forward(self, features: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, "n bottleneck"], Float[Tensor, "n k"]]:
        """Projections of the raw features, and logits."""
        return self.mlp(features), self.classify(features)

    def classify(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n k"]:
        """Cosines between features and prototypes (no temperature)."""
        logits = F.linear(F.normalize(features, dim=1), F.normalize(self.prototypes, dim=1))
        return logits if self.lengths is None else logits * self.lengths
