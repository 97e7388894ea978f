"""Evidence for one or two clusters: Gaussians with a normal-inverse-Wishart prior.

Everything is computed in float64, whatever the input's dtype.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from scipy.special import gammaln, multigammaln
from torch import Tensor

from sptnet.errors import Misuse

ALPHA, KAPPA, PSI = 1.0, 1e-4, 0.005
WORST_CONDITION = 1e8  # a Cholesky factor of a matrix with this condition number has about eight correct digits

Points = Float[np.ndarray[Any, Any], "n dim"] | Float[Tensor, "n dim"]
Vector = Float[np.ndarray[Any, Any], " dim"] | Float[Tensor, " dim"]
Ids = Int[np.ndarray[Any, Any], " n"] | Int[Tensor, " n"]


class Prior(NamedTuple):
    """Settings of a normal-inverse-Wishart prior, and the concentration of the Dirichlet process over clusters."""

    alpha: float = ALPHA
    """Concentration: how likely two clusters are before any point is seen."""
    kappa: float = KAPPA
    """Weight of the prior mean, in points."""
    nu: float | None = None
    """Degrees of freedom, more than dim - 1; None stands for dim + 1."""
    psi: float = PSI
    """Scale: the scale matrix is psi times the identity."""


DEFAULT_PRIOR = Prior()


def log_marginal_likelihood(
    X: Points,  # noqa: N803
    mean: Vector,
    kappa: float = KAPPA,
    nu: float | None = None,
    psi: float = PSI,
) -> float:
    """Return the log density of all points X together, with the mean and the covariance integrated out.

    The mean is normal around `mean` with covariance / kappa, the covariance is inverse Wishart with `nu` degrees of
    freedom (None: dim + 1) and scale matrix psi * I. No point gives 0.
    """
    points, prior_mean = as_float64(X), as_float64(mean)
    if points.ndim != 2 or prior_mean.shape != points.shape[1:]:
        raise Misuse(
            f"X has the shape {points.shape} and mean {prior_mean.shape}. Give points and a mean of equal length."
        )
    n, dim = points.shape
    nu = _degrees_of_freedom(nu, dim)
    if min(kappa, psi) <= 0:
        raise Misuse(f"kappa is {kappa} and psi {psi}. Give numbers above 0.")
    if n == 0:
        return 0.0
    centre = points.mean(axis=0)
    pull = math.sqrt(kappa * n / (kappa + n)) * (centre - prior_mean)
    scatter = _log_det_ridge(np.vstack([points - centre, pull]), psi)
    return float(
        multigammaln((nu + n) / 2, dim)
        - multigammaln(nu / 2, dim)
        - n * dim / 2 * math.log(math.pi)
        + nu / 2 * dim * math.log(psi)
        - (nu + n) / 2 * scatter
        + dim / 2 * math.log(kappa / (kappa + n))
    )


def log_split_ratio(
    X: Points,  # noqa: N803
    halves: Ids,
    mean: Vector,
    alpha: float = ALPHA,
    kappa: float = KAPPA,
    nu: float | None = None,
    psi: float = PSI,
) -> float:
    """Return the log Hastings ratio for splitting the cluster X (n x dim) into its two `halves`, numbered 0 and 1.

    log alpha + ln Gamma(n_1) + ll_1 + ln Gamma(n_2) + ll_2 - ln Gamma(n) - ll, where ll is
    `log_marginal_likelihood`. Positive: two clusters explain the points better than one. Minus infinity if a half has
    no points.
    """
    points, second = as_float64(X), as_array(halves)
    if second.shape != points.shape[:1] or not np.isin(second, (0, 1)).all():
        raise Misuse(f"halves has the shape {second.shape}. Give 0 or 1 for each of the {len(points)} points.")
    if alpha <= 0:
        raise Misuse(f"alpha is {alpha}. Give a number above 0.")
    sizes = np.bincount(second.astype(np.int64), minlength=2)
    if sizes.min() == 0:
        return -math.inf
    prior = Prior(alpha, kappa, nu, psi)
    return log_evidence(points, second, mean, prior) - log_evidence(points, np.zeros_like(second), mean, prior)


def log_evidence(
    X: Points,  # noqa: N803
    assignment: Ids,
    mean: Vector,
    prior: Prior = DEFAULT_PRIOR,
) -> float:
    """Return the log joint density of points and clusters, up to a constant: the higher, the better the clusters.

    Sum over the clusters with points of log alpha + ln Gamma(n_k) + ll_k, so that `log_split_ratio` is the difference
    that a split makes. The mean of the prior is `mean` (dim).
    """
    points, clusters = as_float64(X), as_array(assignment)
    members = [points[clusters == cluster] for cluster in np.unique(clusters)]
    return math.fsum(
        math.log(prior.alpha)
        + float(gammaln(len(part)))
        + log_marginal_likelihood(part, mean, prior.kappa, prior.nu, prior.psi)
        for part in members
    )


def _log_det_ridge(rows: npt.NDArray[np.float64], psi: float) -> float:
    """Return log det(psi I + R^T R) for the rows R (n x dim), from a matrix of size min(n, dim).

    det(psi I + R^T R) = psi^dim det(I + R R^T / psi).
    """
    n, dim = rows.shape
    scaled = rows / math.sqrt(psi)
    if float(np.square(scaled).sum()) > WORST_CONDITION:
        singular = np.linalg.svd(scaled, compute_uv=False)
        return float(dim * math.log(psi) + np.log1p(np.square(singular)).sum())
    gram = scaled @ scaled.T if n < dim else scaled.T @ scaled
    gram[np.diag_indices_from(gram)] += 1.0
    return float(dim * math.log(psi) + 2 * np.log(np.diagonal(np.linalg.cholesky(gram))).sum())


def _degrees_of_freedom(nu: float | None, dim: int) -> float:
    if nu is None:
        return dim + 1
    if nu <= dim - 1:
        raise Misuse(f"nu is {nu} but the points have {dim} features. Give more than {dim - 1}, or None.")
    return nu


def as_array(values: Any) -> npt.NDArray[Any]:
    """Convert a tensor on any device, or anything that NumPy takes."""
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)


def as_float64(values: Any) -> npt.NDArray[np.float64]:
    """Convert as `as_array`, to float64. NumPy has no bfloat16, so tensors are widened first."""
    wide = values.detach().to("cpu", torch.float64).numpy() if isinstance(values, Tensor) else values
    return np.asarray(wide, dtype=np.float64)
