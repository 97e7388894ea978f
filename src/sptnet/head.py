"""The heads: from features to projections for the contrastive losses, and to logits.

`PrototypeHead` is a cosine classifier with unit-norm prototypes (SimGCD, SPTNet), `CentroidHead` assigns the nearest
centroid of a clustering, `ContrastiveHead` adds to it the wide projection that GCD trains with.
"""

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


class CentroidHead(nn.Module):
    """Features to (features, logits): minus the squared distance of the unit feature to every centroid."""

    centroids: Tensor

    def __init__(self, dim: int, n_categories: int):
        super().__init__()
        self.register_buffer("centroids", torch.zeros(n_categories, dim))

    @property
    def n_categories(self) -> int:
        return len(self.centroids)

    def forward(self, features: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, "n dim"], Float[Tensor, "n k"]]:
        return features, self.classify(features)

    def classify(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n k"]:
        unit = F.normalize(features, dim=1)
        squares = self.centroids.square().sum(1)
        return 2 * F.linear(unit, self.centroids) - squares - unit.square().sum(1, keepdim=True)


class ContrastiveHead(nn.Module):
    """Features to (projections, logits): projections by an MLP, a unit bottleneck and a wide layer of unit rows.

    The contrastive losses of GCD read the wide output. Nothing of that is used at test, where the centroids decide.
    """

    def __init__(self, dim: int, n_categories: int, hidden: int = 2048, bottleneck: int = 256, output: int = 65536):
        super().__init__()
        self.mlp = projection_mlp(dim, hidden, bottleneck)
        # Only the rows' directions count, so they need no scale to freeze.
        self.directions = nn.Parameter(nn.Linear(bottleneck, output, bias=False).weight.detach().clone())
        self.classifier = CentroidHead(dim, n_categories)

    @property
    def n_categories(self) -> int:
        return self.classifier.n_categories

    def forward(self, features: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, "n output"], Float[Tensor, "n k"]]:
        bottleneck = F.normalize(self.mlp(features), dim=1)
        projections = F.linear(bottleneck, F.normalize(self.directions, dim=1))
        return projections, self.classify(features)

    def classify(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n k"]:
        return self.classifier.classify(features)


Head = PrototypeHead | CentroidHead | ContrastiveHead
