"""Heads: map features to projections for the contrastive losses and to logits.

`PrototypeHead` is a cosine classifier with unit-norm prototypes (SimGCD, SPTNet), `LinearHead` a plain one,
`CentroidHead` assigns the nearest centroid of a clustering, `ContrastiveHead` adds the wide projection that GCD trains
with.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sptnet.losses import STUDENT_TEMPERATURE

LEAST_PIVOT = 0.01
"""Smallest pivot of a Cholesky factor, as a share of the largest, with which its gradient is accurate in float32."""


def projection_mlp(dim: int, hidden: int, bottleneck: int) -> nn.Sequential:
    """Three linear layers with GELU in between; weights start truncated normal (std 0.02), biases at zero."""
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
    """Cosine classifier with an MLP projection. Both read the features; the classifier does not use the MLP.

    Without `projects` there is no MLP, and the projections are the features.
    """

    lengths: Tensor | None
    """Fixed factor per logit; set only in imported models whose prototypes do not all have length 1."""

    def __init__(
        self,
        dim: int,
        n_categories: int,
        hidden: int = 2048,
        bottleneck: int = 256,
        with_lengths: bool = False,
        projects: bool = True,
    ):
        super().__init__()
        self.hidden, self.bottleneck, self.projects = hidden, bottleneck, projects
        self.mlp = projection_mlp(dim, hidden, bottleneck) if projects else nn.Identity()
        # Only the direction of a row matters: `classify` normalises it. Initialised like a linear layer.
        self.prototypes = nn.Parameter(nn.Linear(dim, n_categories, bias=False).weight.detach().clone())
        self.register_buffer("lengths", torch.ones(n_categories) if with_lengths else None)

    @property
    def n_categories(self) -> int:
        """Number of categories."""
        return len(self.prototypes)

    def forward(self, features: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, "n bottleneck"], Float[Tensor, "n k"]]:
        """Return projections and logits; the projections are not normalised."""
        return self.mlp(features), self.classify(features)

    def classify(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n k"]:
        """Return logits: cosines between features and prototypes, without temperature."""
        logits = F.linear(F.normalize(features, dim=1), F.normalize(self.prototypes, dim=1))
        return logits if self.lengths is None else logits * self.lengths


class LinearHead(nn.Module):
    """Linear classifier with bias, without a projection."""

    def __init__(self, dim: int, n_categories: int):
        super().__init__()
        self.linear = nn.Linear(dim, n_categories)

    @property
    def n_categories(self) -> int:
        """Number of categories."""
        return self.linear.out_features

    def forward(self, features: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, "n dim"], Float[Tensor, "n k"]]:
        """Return the features unchanged, and logits."""
        return features, self.classify(features)

    def classify(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n k"]:
        """Return logits in the scale of cosines: divided by the temperature of the other heads they are W f + b."""
        logits: Tensor = self.linear(features)
        return STUDENT_TEMPERATURE * logits


class CentroidHead(nn.Module):
    """Nearest-centroid classifier on unit features; it has no projection."""

    centroids: Tensor

    def __init__(self, dim: int, n_categories: int):
        super().__init__()
        self.register_buffer("centroids", torch.zeros(n_categories, dim))

    @property
    def n_categories(self) -> int:
        """Number of categories."""
        return len(self.centroids)

    def forward(self, features: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, "n dim"], Float[Tensor, "n k"]]:
        """Return the features unchanged, and logits."""
        return features, self.classify(features)

    def classify(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n k"]:
        """Return logits: minus the squared distance of the unit feature to every centroid."""
        unit = F.normalize(features, dim=1)
        squares = self.centroids.square().sum(1)
        return 2 * F.linear(unit, self.centroids) - squares - unit.square().sum(1, keepdim=True)


def project(
    mlp: nn.Module, directions: Float[Tensor, "output bottleneck"], features: Float[Tensor, "n dim"]
) -> Float[Tensor, "n output"]:
    """Project features by an MLP, a normalised bottleneck and a linear layer with unit rows."""
    return F.linear(F.normalize(mlp(features), dim=1), F.normalize(directions, dim=1))


def project_shortly(
    mlp: nn.Module, directions: Float[Tensor, "output bottleneck"], features: Float[Tensor, "n dim"]
) -> Float[Tensor, "n bottleneck"] | Float[Tensor, "n output"]:
    """Return projections of the bottleneck's length with the inner products of those of `project`.

    With unit rows R, the inner product of R h and R g is h.(R^T R) g. If R^T R = L L^T, then L^T h and L^T g have the
    same one, and no product is as long as the output. Directions that hardly span the bottleneck are used as they are,
    since the gradient of L would be inaccurate.
    """
    hidden = F.normalize(mlp(features), dim=1)
    with torch.autocast(features.device.type, enabled=False):  # keep the factor in full precision
        rows = F.normalize(directions, dim=1)
        factor, failed = torch.linalg.cholesky_ex(rows.T @ rows)
        pivots = factor.detach().diagonal()
        spanned = not failed.any() and bool(pivots.min() > LEAST_PIVOT * pivots.max())
        return hidden.to(rows.dtype) @ (factor if spanned else rows.T)


class ContrastiveHead(nn.Module):
    """Nearest-centroid classifier with a wide projection: MLP, normalised bottleneck, linear layer with unit rows.

    The contrastive losses of GCD use the projections in training only; predictions come from the centroids. With
    `short`, projections may be replaced by shorter ones with the same inner products: for losses that compare the
    projections of one model in one step, and nothing else.
    """

    def __init__(
        self,
        dim: int,
        n_categories: int,
        hidden: int = 2048,
        bottleneck: int = 256,
        output: int = 65536,
        short: bool = False,
    ):
        super().__init__()
        self.short = short and output > bottleneck
        self.mlp = projection_mlp(dim, hidden, bottleneck)
        # Only the direction of a row matters: `forward` normalises it.
        self.directions = nn.Parameter(nn.Linear(bottleneck, output, bias=False).weight.detach().clone())
        self.classifier = CentroidHead(dim, n_categories)

    @property
    def n_categories(self) -> int:
        """Number of categories."""
        return self.classifier.n_categories

    def forward(self, features: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, "n length"], Float[Tensor, "n k"]]:
        """Return projections and logits."""
        make = project_shortly if self.short else project
        return make(self.mlp, self.directions, features), self.classify(features)

    def classify(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n k"]:
        """Return the logits of `CentroidHead`."""
        return self.classifier.classify(features)


class TwinHead(ContrastiveHead):
    """Contrastive head with a second projection of the same form, for the outputs of prompt tokens (PromptCAL)."""

    def __init__(self, dim: int, n_categories: int, hidden: int = 2048, bottleneck: int = 256, output: int = 65536):
        super().__init__(dim, n_categories, hidden, bottleneck, output)
        self.token_mlp = projection_mlp(dim, hidden, bottleneck)
        self.token_directions = nn.Parameter(nn.Linear(bottleneck, output, bias=False).weight.detach().clone())

    def project_tokens(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n output"]:
        """Return the projections of the outputs of prompt tokens."""
        return project(self.token_mlp, self.token_directions, features)


Head = PrototypeHead | LinearHead | CentroidHead | ContrastiveHead
