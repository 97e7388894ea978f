"""Compare changes of the training that `sptnet discover` does, one at a time, on stored tokens of drawn folders.

    python benchmarks/sorting.py --data DIR --weights vits14.safetensors --sets cub cifar100 --numbers 4 5 6 7 8 \
        --out benchmarks/results/sorting.jsonl

The draws are those of `folders.py`, the true number of categories is given, and the number of a draw is the seed of its
training, so that all arms are paired. Each arm trains the same number of steps from the same fixed views; the seconds
say what a step costs. `frozen` rows are semi-supervised k-means without training. One JSON line per draw and arm is
appended to `--out`; lines that are there already are skipped. At the end, differences from the first arm are printed
with their standard errors.
"""

import argparse
import copy
import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from folders import CATEGORIES, Draw, add_image_options, draw_folder, read_classes
from jaxtyping import Float
from torch import Tensor, nn

from sptnet.clustering.centroids import find_centroids
from sptnet.config import KMeansSettings
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.head import PrototypeHead
from sptnet.losses import gcd_loss
from sptnet.metrics import split_accuracy
from sptnet.model.backbone import Backbone, build_backbone
from sptnet.model.vit.embedding import enter_first_block
from sptnet.model.vit.last_block import class_token_of_block, run_block
from sptnet.schedules import cosine_by_epoch, teacher_temperature
from sptnet.training.batching.sampler import balanced_batches

RATE, FINAL_RATIO, WEIGHT_DECAY, MOMENTUM = 0.1, 1e-3, 5e-5, 0.9
WARM_UP = 0.15
"""Share of the steps in which the teacher sharpens."""


@dataclass(frozen=True)
class Arm:
    """One way to train; the defaults are those of `sptnet discover`."""

    start: str = "clusters"
    contrast: str = "features"
    backbone_ratio: float = 0.1
    entropy_weight: float = 1.0
    blocks: int = 1
    trains_norm: bool = False
    pooling: str = "class"
    isotropy: float = 0.0
    averages_views: bool = False
    """Cluster the mean feature of all views instead of that of the centre view."""


ARMS = {
    "discover": Arm(),
    "random prototypes": Arm(start="random"),
    "contrast on projections": Arm(contrast="projections"),
    "one learning rate": Arm(backbone_ratio=1.0),
    "entropy weight 2": Arm(entropy_weight=2.0),
    "trainable norm": Arm(trains_norm=True),
    "isotropy 0.004": Arm(isotropy=0.004),
    "clusters of mean views": Arm(averages_views=True),
    "SimGCD as published": Arm(start="random", contrast="projections", backbone_ratio=1.0),
    "mean pooling": Arm(pooling="mean"),
    "two blocks": Arm(blocks=2),
}


@dataclass
class Tokens:
    """Tokens of all views that enter the last block but one and the last one; the centre view is the last view."""

    before: Float[Tensor, "n views length dim"]
    last: Float[Tensor, "n views length dim"]


@torch.inference_mode()
def tokens_of(draw: Draw, backbone: Backbone, n_views: int, batch: int = 64) -> Tokens:
    """Compute the tokens of fixed random views and of the centre view, in float16."""
    store, maker = ImageStore(draw.files, backbone.pixels), ViewMaker(backbone.pixels)
    blocks = cast(nn.Sequential, backbone.vit.blocks)
    before, last = [], []
    for view in range(n_views + 1):
        for start in range(0, len(store), batch):
            images = [store[i] for i in range(start, min(start + batch, len(store)))]
            if view < n_views:
                cuts = [maker.random_view(image, 1000 * view + start + i) for i, image in enumerate(images)]
            else:
                cuts = [maker.centre_view(image) for image in images]
            x = enter_first_block(backbone.vit, backbone.embed(maker.normalise(torch.stack(cuts))))
            for block in blocks[:-2]:
                x = run_block(block, x)
            before.append(x.half())
            last.append(run_block(blocks[-2], x).half())
    join = [torch.cat(parts).unflatten(0, (n_views + 1, -1)).transpose(0, 1).clone() for parts in (before, last)]
    return Tokens(*join)


class Tail(nn.Module):
    """Last blocks and final norm, from stored tokens to features."""

    def __init__(self, backbone: Backbone, arm: Arm):
        super().__init__()
        self.blocks = copy.deepcopy(cast(nn.Sequential, backbone.vit.blocks)[-arm.blocks :])
        self.norm, self.arm = copy.deepcopy(backbone.vit.norm), arm
        self.requires_grad_(True)
        self.norm.requires_grad_(arm.trains_norm)

    def forward(self, x: Float[Tensor, "b length dim"]) -> Float[Tensor, "b dim"]:
        """Compute the features."""
        for block in self.blocks[:-1]:
            x = run_block(block, x)
        if self.arm.pooling == "class":
            features: Tensor = self.norm(class_token_of_block(self.blocks[-1], x))[:, 0]
            return features
        pooled: Tensor = self.norm(run_block(self.blocks[-1], x))[:, 1:].mean(1)
        return pooled


def isotropy(features: Float[Tensor, "2b dim"], labelled: Tensor) -> Tensor:
    """Minus the nuclear norm of the unit features of unlabelled images, per view."""
    total = features.new_zeros(())
    for view in features.chunk(2):
        unit = F.normalize(view[~labelled], dim=1)
        total = total - torch.linalg.eigvalsh(unit @ unit.T).clamp(min=1e-8).sqrt().sum()
    return total / 2


@torch.no_grad()
def features_of(tail: Tail, tokens: Float[Tensor, "n length dim"], batch: int = 128) -> Float[Tensor, "n dim"]:
    """Features of one view of all images."""
    return torch.cat([tail(part.float()) for part in tokens.split(batch)])


def train(
    arm: Arm, tokens: Tokens, backbone: Backbone, labels: npt.NDArray[np.int64], k: int, given: argparse.Namespace
) -> npt.NDArray[np.int64]:
    """Train from the stored tokens; returns the category per image."""
    seed, n_views = given.seed, tokens.last.shape[1] - 1
    torch.manual_seed(seed)
    stored = tokens.last if arm.blocks == 1 else tokens.before
    tail, head = Tail(backbone, arm), PrototypeHead(backbone.dim, k, projects=arm.contrast == "projections")
    if arm.start == "clusters":
        with torch.no_grad():
            head.prototypes.copy_(F.normalize(start_centroids(tail, stored, labels, k, arm, seed), dim=1))
    groups = [
        {"params": [p for p in tail.parameters() if p.requires_grad], "ratio": arm.backbone_ratio},
        {"params": list(head.parameters()), "ratio": 1.0},
    ]
    optimiser = torch.optim.SGD(groups, lr=0.0, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    draws, generator = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    batches: list[Tensor] = []
    target = torch.from_numpy(labels)
    for step in range(given.steps):
        if not batches:
            known = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
            batches = balanced_batches(*known, given.batch, int(generator.integers(2**31)))
        images = batches.pop()
        pair = torch.stack([torch.randperm(n_views, generator=draws)[:2] for _ in images])
        rows = torch.cat([stored[images, pair[:, 0]], stored[images, pair[:, 1]]]).float()
        features = tail(rows)
        projections, logits = head(features)
        sharpening = math.ceil(WARM_UP * given.steps)
        labelled = target[images] >= 0
        loss = gcd_loss(
            projections,
            logits,
            target[images],
            labelled,
            teacher_temperature(0.07, 0.04, sharpening, step),
            0.35,
            arm.entropy_weight,
        ).total
        if arm.isotropy:
            loss = loss + arm.isotropy * isotropy(features, labelled)
        for group in optimiser.param_groups:
            group["lr"] = cosine_by_epoch(RATE, FINAL_RATIO, step, given.steps) * group["ratio"]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        return head.classify(features_of(tail, stored[:, -1])).argmax(1).numpy()


def start_centroids(
    tail: Tail, stored: Tensor, labels: npt.NDArray[np.int64], k: int, arm: Arm, seed: int
) -> Float[Tensor, "k dim"]:
    """Centroids of semi-supervised k-means on the features from before training."""
    views = range(stored.shape[1]) if arm.averages_views else [stored.shape[1] - 1]
    features = torch.stack([F.normalize(features_of(tail, stored[:, v]), dim=1) for v in views]).mean(0)
    return find_centroids(features, labels, k, KMeansSettings(), seed, True)


def frozen(
    arm: Arm, tokens: Tokens, backbone: Backbone, labels: npt.NDArray[np.int64], k: int, given: argparse.Namespace
) -> npt.NDArray[np.int64]:
    """Category per image by the clustering that an arm starts from."""
    tail = Tail(backbone, arm)
    stored = tokens.last
    centroids = start_centroids(tail, stored, labels, k, arm, given.seed)
    views = range(stored.shape[1]) if arm.averages_views else [stored.shape[1] - 1]
    features = torch.stack([F.normalize(features_of(tail, stored[:, v]), dim=1) for v in views]).mean(0)
    return torch.cdist(features, centroids).argmin(1).numpy()


FROZEN = {
    "frozen": Arm(),
    "frozen, mean views": Arm(averages_views=True),
    "frozen, mean pooling": Arm(pooling="mean"),
}


def score(draw: Draw, predicted: npt.NDArray[np.int64], truth: npt.NDArray[np.int64]) -> dict[str, float]:
    """All, Old and New on the unsorted images."""
    unsorted = ~np.array(draw.labelled)
    found = split_accuracy(truth[unsorted], predicted[unsorted], range(len(draw.known)))
    return {name: round(float(getattr(found, name)), 4) for name in ("all", "old", "new")}


def compare(lines: list[dict[str, Any]], first: str) -> None:
    """Print the mean of every arm and its paired difference from the first one."""
    table: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for line in lines:
        table.setdefault(line["arm"], {})[line["set"], line["draw"]] = line
    for arm, rows in table.items():
        both = [key for key in rows if key in table[first]]
        cells = []
        for name in ("all", "old", "new"):
            gaps = [100 * (rows[key][name] - table[first][key][name]) for key in both]
            error = np.std(gaps, ddof=1) / len(gaps) ** 0.5 if len(gaps) > 1 else math.nan
            cells.append(f"{name} {np.mean(gaps):+.1f} ({error:.1f})")
        mean = 100 * np.mean([rows[key]["all"] for key in rows])
        seconds = np.mean([rows[key]["seconds"] for key in rows])
        print(f"{arm:26s} {len(rows):3d} draws  All {mean:.1f}  against {first}: {', '.join(cells)}  {seconds:.0f} s")


def main() -> None:
    """Train the arms that `--out` does not hold yet and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_image_options(parser)
    parser.add_argument("--sets", nargs="+", default=["cub", "cifar100"], choices=sorted(CATEGORIES))
    parser.add_argument("--numbers", nargs="+", type=int, default=[4, 5, 6, 7, 8], help="numbers of the draws")
    parser.add_argument("--arms", nargs="+", default=[*FROZEN, *ARMS], choices=[*FROZEN, *ARMS], metavar="ARM")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--views", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    backbone = build_backbone(given.backbone, given.weights, given.size)
    for number in given.numbers:
        for set_name in given.sets:
            this = {"set": set_name, "draw": number, "steps": given.steps, "batch": given.batch}
            done = {line["arm"] for line in lines if this.items() <= line.items()}
            missing = [arm for arm in given.arms if arm not in done]
            if not missing:
                continue
            draw = draw_folder(read_classes(given.data, set_name), set_name, number)
            tokens = tokens_of(draw, backbone, given.views)
            names = [*draw.known, *(name for name in dict.fromkeys(draw.truth) if name not in draw.known)]
            truth = np.array([names.index(name) for name in draw.truth])
            labels = np.where(draw.labelled, truth, -1)
            given.seed = number
            for arm in missing:
                began = time.perf_counter()
                way, settings = (frozen, FROZEN[arm]) if arm in FROZEN else (train, ARMS[arm])
                predicted = way(replace(settings), tokens, backbone, labels, draw.n_categories, given)
                line = {"arm": arm, "set": set_name, "draw": number, "steps": given.steps, "batch": given.batch}
                line |= score(draw, predicted, truth) | {"seconds": round(time.perf_counter() - began, 1)}
                lines.append(line)
                print(json.dumps(line), flush=True)
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    length = {"steps": given.steps, "batch": given.batch}
    compare([line for line in lines if line["arm"] in given.arms and length.items() <= line.items()], "discover")


if __name__ == "__main__":
    main()
