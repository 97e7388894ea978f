"""Share of the unlabelled points that belong to known classes, from labelled points alone.

Every labelled point is seen twice: against all classes, as a point of a known class, and against all classes but its
own, as a point of a new class would be. A logistic regression tells the two apart; its probabilities on the unlabelled
points, corrected for the unknown mixture (Saerens et al., 2002), give the share.
"""

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

NEAREST_LABELLED, NEAREST = 3, 10
MOST_ROUNDS, CONVERGED = 200, 1e-6
ABSENT = -1.0  # cosine to a class that is left out

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


def known_share(points: npt.NDArray[np.float32], ranks: Ids) -> float:
    """Return the share, above 0 and at most 1, given unit points (n x dim) and class ranks, -1 for unlabelled ones.

    There must be unlabelled points, and two classes or more of which one has two points.
    """
    as_known, as_new, unlabelled, classes = resemblance(points, ranks)
    alone = np.bincount(classes)[classes] < 2
    as_known = as_known[~alone]
    mean, spread = unlabelled.mean(0), unlabelled.std(0) + 1e-6
    rows = (np.vstack([as_known, as_new]) - mean) / spread
    is_known = np.r_[np.ones(len(as_known)), np.zeros(len(as_new))]
    weights = np.r_[equal_weights(classes[~alone]), equal_weights(classes)]
    model = LogisticRegression().fit(rows, is_known, sample_weight=weights * len(rows))
    return mixture_share(model.predict_proba((unlabelled - mean) / spread)[:, 1])


def mixture_share(probabilities: Floats) -> float:
    """Return the share of positives among points, given probabilities that assume a share of one half."""
    share = 0.5
    for _ in range(MOST_ROUNDS):
        posterior = probabilities * share / (probabilities * share + (1 - probabilities) * (1 - share))
        before, share = share, float((posterior.sum() + 0.5) / (len(probabilities) + 1))
        if abs(share - before) < CONVERGED:
            break
    return share


def equal_weights(classes: Ids) -> Floats:
    """Return weights that sum to 1/2, equal for every class."""
    sizes = np.bincount(classes)
    weights: Floats = 1 / sizes[classes] / (sizes > 0).sum() / 2
    return weights


def resemblance(points: npt.NDArray[np.float32], ranks: Ids) -> tuple[Floats, Floats, Floats, Ids]:
    """Return what tells points of known classes from others: labelled points as known, as new, and unlabelled points.

    Each row has the cosine to the nearest class mean and its lead over the second, the same for the mean of the three
    nearest labelled points of a class, and both relative to the density around the point. The last array has the class
    per labelled point.
    """
    labelled, unlabelled = np.flatnonzero(ranks >= 0), np.flatnonzero(ranks < 0)
    classes, n_classes = ranks[labelled], int(ranks.max()) + 1
    cosines = (points @ points.T).astype(np.float64)
    np.fill_diagonal(cosines, -np.inf)
    density = np.sort(cosines, axis=1)[:, -min(NEAREST, len(points) - 1) :].mean(1)
    sums = np.zeros((n_classes, points.shape[1]))
    np.add.at(sums, classes, points[labelled])
    to_means = points @ (sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)).T
    own = sums[classes] - points[labelled]
    to_own = (points[labelled] * own).sum(1) / np.maximum(np.linalg.norm(own, axis=1), 1e-12)
    to_means[labelled, classes] = np.where(np.bincount(classes)[classes] > 1, to_own, ABSENT)
    to_nearest = np.stack([_mean_of_largest(cosines[:, ranks == c], NEAREST_LABELLED) for c in range(n_classes)], 1)

    def rows(which: Ids, means: Floats, nearest: Floats) -> Floats:
        best, lead = _best_and_lead(means)
        close, close_lead = _best_and_lead(nearest)
        return np.stack([best, lead, close, close_lead, close - density[which], best - density[which]], 1)

    means, nearest = to_means[labelled].copy(), to_nearest[labelled].copy()
    as_known = rows(labelled, means, nearest)
    means[np.arange(len(labelled)), classes] = nearest[np.arange(len(labelled)), classes] = ABSENT
    as_new = rows(labelled, means, nearest)
    return as_known, as_new, rows(unlabelled, to_means[unlabelled], to_nearest[unlabelled]), classes


def _best_and_lead(values: Floats) -> tuple[Floats, Floats]:
    ordered = np.sort(values, axis=1)
    return ordered[:, -1], ordered[:, -1] - ordered[:, -2]


def _mean_of_largest(cosines: Floats, n: int) -> Floats:
    """Mean of the n largest finite values per row; a point has no cosine to itself."""
    largest = np.sort(cosines, axis=1)[:, ::-1][:, :n]
    finite = np.isfinite(largest)
    sums = np.where(finite, largest, 0.0).sum(1)
    return np.where(finite.any(1), sums / np.maximum(finite.sum(1), 1), ABSENT)
