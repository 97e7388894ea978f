"""Steps of the compared systems without a model: seeded outputs, memory and teacher, for tests of the objectives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.loops import cosines, normal, rows, softmax, unit
from helpers.rounding import rounding
from sptnet.config import Config
from sptnet.losses import Loss
from sptnet.methods import stages_of
from sptnet.methods.stage_plan import Clock, EpochStart, Memory, StagePlan, Step

DIM, WIDTH, CATEGORIES, IMAGES = 8, 7, 6, 20
"""Length of features and of projections, number of categories, number of images in the image set."""
LABELS = (0, 0, -1, 1, 1, -1, 2, -1)
"""Two classes seen twice, one seen once, three unlabelled images."""
TOLERANCE = rounding(10**5, dtype=torch.float64) / 0.05
"""Losses in float64 of cosines divided by at least 0.05, in ten thousands of operations: about 5e-12 per unit."""


@cache
def plan_of(method: str, section: str | None = None, **changed: Any) -> StagePlan:
    """Return the stage of a section, the last one of the method by default, with published settings but `changed`."""
    config = Config(method=method, device="cpu")
    plans = {plan.name: plan for plan in stages_of(config.changed(**{section or method: changed}))}
    return plans[section] if section else list(plans.values())[-1]


def outputs(n: int, seed: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Outputs of a model for both views of n images; views of an image are alike."""
    widths = {"features": DIM, "projections": WIDTH, "token_features": DIM, "token_projections": WIDTH}
    made = {}
    for number, (name, width) in enumerate(widths.items(), start=10 * seed):
        one = normal(n, width, seed=number)
        made[name] = torch.cat([one, one + 0.5 * normal(n, width, seed=number + 5)]).to(dtype)
    made["logits"] = cosines(2 * n, CATEGORIES, seed=10 * seed + 9).to(dtype)
    return made


def make_step(labels: Sequence[int] = LABELS, epoch: int = 1, seed: int = 1, **given: Any) -> Step:
    """Step with seeded outputs of the student, whose gradients can be asked for; `given` replaces fields."""
    n, dtype = len(labels), given.pop("dtype", torch.float64)
    target = torch.tensor(labels, dtype=torch.long)
    student = {name: values.requires_grad_() for name, values in outputs(n, seed, dtype).items()}
    images = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(seed))[:n]
    return replace(Step(student, target, target >= 0, images, Clock(epoch, 200, 10 * epoch, 2000)), **given)


def make_start(features: Tensor, labels: Sequence[int], **given: Any) -> EpochStart:
    """Start of an epoch at which the images are in their order in an image set with one image more."""
    n, known = len(features), max(labels) + 1
    logits = cosines(n, CATEGORIES, seed=3)
    start = EpochStart(
        features,
        logits,
        torch.tensor(labels, dtype=torch.long),
        torch.arange(n),
        n_images=n + 1,
        n_known=known,
        n_categories=CATEGORIES,
        epoch=1,
        epochs=10,
        seed=0,
        memory={},
    )
    return replace(start, **given)


# --- every objective ---


@dataclass(frozen=True)
class Case:
    """A stage, and the memory and teacher that its objective needs."""

    plan: Callable[[], StagePlan]
    memory: Callable[[], Memory] = dict
    taught: bool = False
    added: int = 0
    """Images that the stage adds to a batch."""

    def step(self, labels: Sequence[int] = LABELS, **given: Any) -> Step:
        """Step of the stage; added images follow those of `labels`."""
        n, dtype = len(labels), given.get("dtype", torch.float64)
        step = make_step((*labels, *(0, -1) * (self.added // 2)), memory=self.memory(), **given)
        memory = {name: x.to(dtype) if x.is_floating_point() else x for name, x in step.memory.items()}
        teacher = outputs(len(step.labels), 7, dtype) if self.taught else None
        return replace(step, memory=memory, teacher=teacher, n_main=n if self.added else None)


def clusters(n: int, seed: int = 2) -> Tensor:
    """Cluster per image of the image set, of n clusters."""
    return torch.randint(n, (IMAGES,), generator=torch.Generator().manual_seed(seed))


def unit_rows(n: int, seed: int) -> Tensor:
    """Rows of length one."""
    return torch.tensor([unit(row) for row in rows(normal(n, DIM, seed=seed))], dtype=torch.float64)


def bank(filled: int = 8, size: int = 12) -> Memory:
    """Banks of PromptCAL, partly filled; the rest must not be read."""
    labels = torch.tensor([0, -1, 1, -1, 2, 3, -1, 0] + [1] * 4)[:size]
    made = {name: normal(size, DIM, seed=seed) for name, seed in (("bank", 21), ("token_bank", 22))}
    counts = {"position": torch.tensor(filled % size), "filled": torch.tensor(filled)}
    return {**made, "bank_labels": labels, **counts}


def gpc_memory() -> Memory:
    """Prototypes and temperatures of five clusters."""
    temperatures = torch.tensor([0.7, 0.9, 1.0, 1.1, 1.3], dtype=torch.float64)
    return {"targets": clusters(5), "prototypes": unit_rows(5, 23), "temperatures": temperatures}


CASES = {
    "rankstats": Case(lambda: plan_of("rankstats", top=1)),
    "uno": Case(lambda: plan_of("uno")),
    "orca": Case(lambda: plan_of("orca"), lambda: {"margin": torch.tensor(0.25)}),
    "dccl": Case(lambda: plan_of("dccl"), lambda: {"targets": clusters(4), "centroids": unit_rows(4, 20)}, added=6),
    "promptcal": Case(lambda: plan_of("promptcal", "promptcal")),
    "promptcal, calibrated": Case(lambda: plan_of("promptcal"), bank, taught=True),
    "promptcal, empty bank": Case(lambda: plan_of("promptcal"), taught=True),
    "cipr": Case(lambda: plan_of("cipr"), lambda: {"targets": clusters(4)}),
    "cipr, warm-up": Case(lambda: plan_of("cipr")),
    "gpc": Case(lambda: plan_of("gpc"), gpc_memory),
    "gpc, first epoch": Case(lambda: plan_of("gpc")),
    "mugcd": Case(lambda: plan_of("mugcd"), taught=True),
}


def parts_of(loss: Loss) -> dict[str, float]:
    """Terms and total as numbers."""
    return {name: value.item() for name, value in loss.parts().items()}


def gradients(step: Step, loss: Loss) -> dict[str, Tensor]:
    """Gradient of the total at every output of the student; zero where the loss does not use it."""
    made = torch.autograd.grad(loss.total, list(step.rows.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(step.rows, made, strict=True))


def permuted(step: Step, order: Tensor) -> Step:
    """Return the step with its images in another order."""
    both = torch.cat([order, order + len(order)])

    def moved(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: x.detach()[both].requires_grad_(x.requires_grad) for name, x in values.items()}

    images = {name: getattr(step, name)[order] for name in ("labels", "labelled", "images")}
    return replace(step, rows=moved(step.rows), teacher=None if step.teacher is None else moved(step.teacher), **images)


# --- building blocks of the oracles ---


def arrays(values: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return tensors as arrays."""
    return {name: x.detach().numpy() for name, x in values.items()}


def naive_contrast(student: np.ndarray, teacher: np.ndarray, groups: Sequence[int], temperature: float) -> float:
    """Mean over rows of the mean of -log p over the other rows of the group; p is a share among all other rows."""
    if len(student) == 0:
        return 0.0
    s, t = ([np.array(unit(row)) for row in x.tolist()] for x in (student, teacher))
    total = 0.0
    for i in range(len(s)):
        others = [a for a in range(len(s)) if a != i]
        shares = dict(zip(others, softmax([float(s[i] @ t[a]) for a in others], temperature), strict=True))
        logs = [np.log(shares[a]) for a in others if groups[a] == groups[i]]
        total -= sum(logs) / len(logs)
    return total / len(s)


def naive_info_nce(student: np.ndarray, teacher: np.ndarray | None = None) -> float:
    """InfoNCE at temperature 1: the other view of an image is its only positive."""
    images = list(range(len(student) // 2)) * 2
    return naive_contrast(student, student if teacher is None else teacher, images, 1.0)


def naive_supcon(student: np.ndarray, labels: Sequence[int], teacher: np.ndarray | None = None) -> float:
    """SupCon at temperature 0.07 of the rows with a label."""
    both = np.array(list(labels) * 2)
    known = both >= 0
    other = student if teacher is None else teacher
    return naive_contrast(student[known], other[known], both[known].tolist(), 0.07)


def naive_cross_entropy(logits: np.ndarray, labels: Sequence[int], temperature: float = 0.1) -> float:
    """Mean over the rows with a label of -log p."""
    pairs = [(row, label) for row, label in zip(logits.tolist(), labels, strict=True) if label >= 0]
    return -sum(np.log(softmax(row, temperature)[label]) for row, label in pairs) / len(pairs) if pairs else 0.0
