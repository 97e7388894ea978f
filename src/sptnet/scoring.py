"""Predicting and scoring: every image through the model once, then one matching over all of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from sptnet.device import Compute
from sptnet.kept_memory import memory_kept
from sptnet.losses import STUDENT_TEMPERATURE
from sptnet.metrics import nmi_ari, split_accuracy
from sptnet.model import GcdModel
from sptnet.pile import Pile
from sptnet.split import Split


@dataclass(frozen=True)
class Outputs:
    """Features and logits of images, in their order."""

    features: Tensor
    logits: Tensor

    @property
    def categories(self) -> npt.NDArray[np.int64]:
        return self.logits.argmax(1).numpy()

    @property
    def probabilities(self) -> npt.NDArray[np.float32]:
        return (self.logits / STUDENT_TEMPERATURE).softmax(1).numpy()

    @property
    def unit_features(self) -> npt.NDArray[np.float32]:
        """Features of length one."""
        return F.normalize(self.features, dim=1).numpy()


@memory_kept()
@torch.inference_mode()
def run_model(model: GcdModel, views: Iterable[Tensor], compute: Compute, prompted: bool = True) -> Outputs:
    """Features and logits of normalised views, batch by batch, in float32 on the CPU."""
    was_training = model.training
    model.eval()
    features, logits = [torch.empty(0, model.backbone.dim)], [torch.empty(0, model.head.n_categories)]
    for batch in views:
        with compute.autocast():
            feature = model.features(batch.to(compute.device), prompted)
            logit = model.head.classify(feature)
        features.append(feature.float().cpu())
        logits.append(logit.float().cpu())
    model.train(was_training)
    return Outputs(torch.cat(features), torch.cat(logits))


def score(truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], n_known: int) -> dict[str, Any]:
    """All the numbers of one set of images; empty where nobody knows the truth."""
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


def scored_sets(pile: Pile, split: Split) -> dict[str, npt.NDArray[np.int64]]:
    """Every set of images that is scored, under its own name: the unlabelled training images, the test images.

    In a pile of domains, also the unlabelled images of each, and of the unseen domains each instead of all together.
    """
    sets = {"unlabelled": split.unlabelled}
    if pile.domains is None:
        return sets | ({"test": split.test} if len(split.test) else {})
    domains = np.array(pile.domains)
    for part in (split.unlabelled, split.test):
        for name in dict.fromkeys(domains[part].tolist()):
            sets[name] = part[domains[part] == name]
    return sets


def score_sets(pile: Pile, split: Split, predicted: npt.NDArray[np.int64]) -> dict[str, Any]:
    """The scores of every set, each matched on its own; `predicted` has an entry for every image of the pile."""
    scores = {}
    for name, indices in scored_sets(pile, split).items():
        scores[name] = score(split.target[indices], predicted[indices], split.n_known)
    if pile.domains is not None:
        unseen = [scores[name] for name in dict.fromkeys(pile.domains[i] for i in split.test) if scores[name]]
        if len(unseen) > 1:
            scores["unseen, mean"] = mean_scores(unseen)
    return {name: values for name, values in scores.items() if values}


def mean_scores(scores: list[dict[str, Any]]) -> dict[str, Any]:
    """The plain mean of each number over several sets; the images are added up."""
    mean: dict[str, Any] = {}
    for key, first in scores[0].items():
        values = [one[key] for one in scores]
        if isinstance(first, dict):
            mean[key] = mean_scores(values)
        else:
            mean[key] = sum(values) if key == "images" else float(np.mean(values))
    return mean


def format_scores(scores: dict[str, Any]) -> str:
    def percent(value: float | None) -> str:
        return "-" if value is None or value != value else f"{100 * value:.1f}"

    return f"All {percent(scores['all'])}  Old {percent(scores['old'])}  New {percent(scores['new'])}"
