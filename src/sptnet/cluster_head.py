"""Heads of the methods that cluster: nearest centroid, and beside it the projection that GCD trains with."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sptnet.head import PrototypeHead, projection_mlp


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
