"""Scores of predictions, with one matching per set of images."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sptnet.data.image_set import ImageSet
from sptnet.data.split import Split
from sptnet.metrics import nmi_ari, split_accuracy


def score(truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], n_known: int) -> dict[str, Any]:
    """Compute all scores of n images; {} if no truth is known. `truth` is -1 where unknown."""
    known_truth = truth >= 0
    if not known_truth.any():
        return {}
    truth, predicted = truth[known_truth], predicted[known_truth]
    accuracy = split_accuracy(truth, predicted, range(n_known))
    balanced = split_accuracy(truth, predicted, range(n_known), form="v2b")
    separate = split_accuracy(truth, predicted, range(n_known), form="v1")
    nmi, ari = nmi_ari(truth, predicted)
    return {
        "all": accuracy.all,
        "old": accuracy.old,
        "new": accuracy.new,
        "balanced": {"all": balanced.all, "old": balanced.old, "new": balanced.new},
        "separate": {"all": separate.all, "old": separate.old, "new": separate.new},
        "nmi": nmi,
        "ari": ari,
        "images": int(known_truth.sum()),
    }


def scored_sets(image_set: ImageSet, split: Split) -> dict[str, npt.NDArray[np.int64]]:
    """Return the indices of each scored set by name: the unlabelled training images and the test images.

    With domains, also the unlabelled images of each domain, and the test images per domain instead of all together.
    """
    sets = {"unlabelled": split.unlabelled}
    if image_set.domains is None:
        return sets | ({"test": split.test} if len(split.test) else {})
    domains = np.array(image_set.domains)
    for part in (split.unlabelled, split.test):
        for name in dict.fromkeys(domains[part].tolist()):
            sets[name] = part[domains[part] == name]
    return sets


def score_sets(image_set: ImageSet, split: Split, predicted: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Compute the scores of each set with its own matching; `predicted` has one entry per image."""
    scores = {}
    for name, indices in scored_sets(image_set, split).items():
        scores[name] = score(split.target[indices], predicted[indices], split.n_known)
    if image_set.domains is not None:
        unseen = [scores[name] for name in dict.fromkeys(image_set.domains[i] for i in split.test) if scores[name]]
        if len(unseen) > 1:
            scores["unseen, mean"] = mean_scores(unseen)
    return {name: values for name, values in scores.items() if values}


def mean_scores(scores: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of each score over several sets; numbers of images are summed."""
    mean: dict[str, Any] = {}
    for key, first in scores[0].items():
        values = [one[key] for one in scores]
        if isinstance(first, dict):
            mean[key] = mean_scores(values)
        else:
            mean[key] = sum(values) if key == "images" else float(np.mean(values))
    return mean


def format_scores(scores: dict[str, Any]) -> str:
    """Return the accuracies in per cent on one line: All, Old, New."""

    def percent(value: float | None) -> str:
        return "-" if value is None or value != value else f"{100 * value:.1f}"

    return f"All {percent(scores['all'])}  Old {percent(scores['old'])}  New {percent(scores['new'])}"
