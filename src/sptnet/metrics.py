"""Clustering accuracy: clusters matched to true classes, then accuracy over all, known ("old") and new classes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sptnet.errors import Misuse

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SplitAccuracy:
    """Accuracies in [0, 1]; `old` or `new` is NaN if no image belongs to such a class."""

    all: float
    old: float
    new: float


def split_accuracy(
    y_true: npt.ArrayLike, y_pred: npt.ArrayLike, old_classes: Iterable[Any], form: str = "v2"
) -> SplitAccuracy:
    """Compute the accuracy over all, old and new classes after matching clusters to classes.

    Forms: "v2" matches once over all images (the standard); "v2b" uses the same matching but weighs every class
    equally; "v1" matches old and new images separately, so that one cluster may count twice, and gives higher values.
    """
    if form not in FORMS:
        raise Misuse(f"unknown form of split accuracy {form!r}. Use one of: {', '.join(FORMS)}.")
    true, pred = np.asarray(y_true), np.asarray(y_pred)
    if true.ndim != 1 or true.shape != pred.shape or len(true) == 0:
        raise Misuse(
            "split_accuracy needs two lists of equal length with at least one image. "
            f"Got shapes {true.shape} and {pred.shape}."
        )
    is_old = np.isin(true, np.array(list(old_classes), dtype=str if true.dtype.kind == "U" else None))
    return FORMS[form](as_ids(true), as_ids(pred), is_old)


def as_ids(labels: npt.NDArray[Any]) -> Ids:
    """Convert labels to ids from 0; small non-negative integers stay, so that ties are matched as in published code."""
    distinct, numbered = np.unique(labels, return_inverse=True)
    if labels.dtype.kind in "iu" and labels.min() >= 0 and labels.max() < 1000 + 2 * len(distinct):
        return labels.astype(np.int64)
    return numbered.astype(np.int64)


def contingency(rows: Ids, columns: Ids, shape: tuple[int, int] | None = None) -> Ids:
    """Count images per pair: counts[r, c] images have row id r and column id c; square if no shape is given."""
    if shape is None:
        size = int(max(rows.max(), columns.max())) + 1
        shape = size, size
    counts = np.zeros(shape, dtype=np.int64)
    np.add.at(counts, (rows, columns), 1)
    return counts


def best_matching(counts: Ids) -> tuple[Ids, Ids]:
    """Match rows to columns one to one such that most images match (Hungarian method).

    Returns the matched rows in ascending order, and the column of each.
    """
    from scipy.optimize import linear_sum_assignment  # here, so that reading a run stays quick

    rows, columns = linear_sum_assignment(counts.max() - counts)
    return np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)


def matched_share(counts: Ids) -> float:
    """Return the share of images in the cells of the best matching; the table must not be empty."""
    return float(counts[best_matching(counts)].sum() / counts.sum())


def match_clusters(true: Ids, pred: Ids) -> Ids:
    """Return the true class per predicted cluster, by the best matching."""
    return best_matching(contingency(pred, true))[1]


def _share(hits: npt.NDArray[np.bool_]) -> float:
    return float(hits.mean()) if len(hits) else float("nan")


def _one_matching(true: Ids, pred: Ids, is_old: npt.NDArray[np.bool_]) -> SplitAccuracy:
    hit = match_clusters(true, pred)[pred] == true
    return SplitAccuracy(_share(hit), _share(hit[is_old]), _share(hit[~is_old]))


def _class_balanced(true: Ids, pred: Ids, is_old: npt.NDArray[np.bool_]) -> SplitAccuracy:
    hit = match_clusters(true, pred)[pred] == true

    def mean_over_classes(where: npt.NDArray[np.bool_]) -> float:
        shares = [hit[true == c].mean() for c in np.unique(true[where])]
        return float(np.mean(shares)) if shares else float("nan")

    return SplitAccuracy(*(mean_over_classes(w) for w in (np.ones_like(is_old), is_old, ~is_old)))


def _separate_matchings(true: Ids, pred: Ids, is_old: npt.NDArray[np.bool_]) -> SplitAccuracy:
    def matched(where: npt.NDArray[np.bool_]) -> float:
        return _share(match_clusters(true[where], pred[where])[pred[where]] == true[where]) if where.any() else np.nan

    old, new, weight = matched(is_old), matched(~is_old), float(is_old.mean())
    parts = [w * a for w, a in ((weight, old), (1 - weight, new)) if w > 0]
    return SplitAccuracy(sum(parts), old, new)


FORMS: dict[str, Callable[[Ids, Ids, npt.NDArray[np.bool_]], SplitAccuracy]] = {
    "v2": _one_matching,
    "v2b": _class_balanced,
    "v1": _separate_matchings,
}


def nmi_ari(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> tuple[float, float]:
    """Compute normalised mutual information and adjusted Rand index over all images; neither needs a matching."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    nmi = normalized_mutual_info_score(y_true, y_pred)
    return float(nmi), float(adjusted_rand_score(y_true, y_pred))


def rightly_sorted(truth: Ids, predicted: Ids, n_known: int) -> npt.NDArray[np.bool_]:
    """Return True per image if its category is right; both are ids of n images, below `n_known` for known classes.

    A known category is right if it is the true class. New categories are matched to new classes one to one, by the
    images that have both; an image of a matched pair is right, and any other one is wrong.
    """
    right: npt.NDArray[np.bool_] = (truth == predicted) & (truth < n_known)
    new = (truth >= n_known) & (predicted >= n_known)
    if new.any():
        true, found = as_ids(truth[new]), as_ids(predicted[new])
        right[new] = match_clusters(true, found)[found] == true
    return right


@dataclass(frozen=True)
class CalibrationBin:
    """Images of similar certainty."""

    certainty: float
    """Mean certainty."""
    right: float
    """Share of right images."""
    images: int


def calibration_bins(
    certainty: npt.NDArray[np.floating[Any]], right: npt.NDArray[np.bool_], bins: int = 10
) -> list[CalibrationBin]:
    """Divide n images into bins of equal width by their certainty from 0 to 1; empty bins are left out."""
    number = np.minimum((certainty * bins).astype(np.int64), bins - 1)
    inside = [number == i for i in range(bins)]
    return [
        CalibrationBin(float(certainty[one].mean()), float(right[one].mean()), int(one.sum()))
        for one in inside
        if one.any()
    ]


def calibration_error(certainty: npt.NDArray[np.floating[Any]], right: npt.NDArray[np.bool_], bins: int = 10) -> float:
    """Compute the expected calibration error: the mean gap between certainty and share of right images over the bins.

    Bins are weighted by their number of images; NaN without images.
    """
    if len(certainty) == 0:
        return float("nan")
    gaps = [one.images * abs(one.certainty - one.right) for one in calibration_bins(certainty, right, bins)]
    return sum(gaps) / len(certainty)
