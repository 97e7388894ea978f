"""Trial before the training: would it sort images better than the clustering it starts from?

Labels that the user gave are the judge. Some known categories lose all their labels, as if they were new, and the
others lose some. A short training and the clustering alone sort the images without these labels; the images that lost
them show which of the two is better.
"""

import copy
import math
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.data.split import Split
from sptnet.discovery.lengths import warm_up
from sptnet.discovery.planner import TRIAL_STEPS
from sptnet.inference.features import classify
from sptnet.metrics import rightly_sorted
from sptnet.model.backbone import Backbone
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.interrupt import noted_interrupts
from sptnet.runtime.seeds import seed_of
from sptnet.schedules import steps_per_epoch
from sptnet.training.experiment import Experiment
from sptnet.training.prepare import prepare
from sptnet.training.stage import Stage, epochs_with_bar

HIDDEN_CLASSES, HIDDEN_LABELS = 1 / 3, 1 / 3  # shares of the known categories, and of the labels of the others
TRIAL_SHARE = 0.5  # of the time left for training that a trial may take
LEAST_CLASSES, LEAST_IMAGES = 2, 8  # fewer known categories or hidden labels show nothing

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Verdict:
    """Numbers of images with hidden labels that clustering and training sort rightly."""

    images: int
    clustering: int
    training: int
    only_clustering: int
    """Images that only the clustering sorts rightly."""
    only_training: int

    @property
    def prefers_clustering(self) -> bool:
        """True if the clustering sorts more of them rightly, by more than the standard error of the difference.

        Training is better on most folders (docs/results.md), so a difference within its error does not stop it.
        """
        return self.clustering - self.training > math.sqrt(self.only_clustering + self.only_training)

    def as_dict(self) -> dict[str, int | bool]:
        """Return the form in `run.json`."""
        return asdict(self) | {"prefers_clustering": self.prefers_clustering}

    def __str__(self) -> str:
        found = (
            f"trial on {self.images} images with hidden labels: the clustering sorts {self.clustering} rightly, "
            f"a short training {self.training}"
        )
        return f"{found}; the clustering is kept" if self.prefers_clustering else f"{found}; training goes on"


def can_try(split: Split) -> bool:
    """Return True if the labels are enough for a trial."""
    if split.n_known < LEAST_CLASSES:
        return False
    return len(split.labelled) - len(hide_labels(split, 0).labelled) >= LEAST_IMAGES


def hide_labels(split: Split, seed: int) -> Split:
    """Return the split without some labels; images that lost theirs are unlabelled.

    Known categories without labels come after the others, as new ones. At least one category keeps labels, and every
    category that keeps some keeps at least one.
    """
    random = np.random.RandomState(seed % 2**32)
    order = random.permutation(split.n_known)
    n_hidden = min(split.n_known - 1, max(1, round(HIDDEN_CLASSES * split.n_known)))
    hidden, kept = np.sort(order[:n_hidden]), np.sort(order[n_hidden:])
    stays = []
    for known in kept:
        images = random.permutation(split.labelled[split.target[split.labelled] == known])
        stays.append(images[: max(1, len(images) - round(HIDDEN_LABELS * len(images)))])
    labelled = np.sort(np.concatenate(stays))
    moved = np.concatenate([kept, hidden, np.arange(split.n_known, len(split.classes))])
    position = np.empty(len(split.classes) + 1, dtype=np.int64)
    position[moved], position[-1] = np.arange(len(split.classes)), -1
    lost = np.setdiff1d(split.labelled, labelled)
    return replace(
        split,
        classes=tuple(split.classes[i] for i in moved),
        n_known=len(kept),
        target=position[split.target],
        labelled=labelled,
        unlabelled=np.sort(np.concatenate([split.unlabelled, lost])),
    )


def try_training(
    config: Config,
    images: SplitImages,
    backbone: Backbone,
    features: Float[Tensor, "n dim"],
    run: RunFolder,
    seconds: float | None = None,
) -> Verdict:
    """Train for a few steps without some of the labels, and compare with the clustering that the training starts from.

    `features` are those of all images by the backbone, which stays as it is. Nothing is
    written but tokens into the bank of the run, which its training reads later. With `seconds`, the short training ends
    in time.
    """
    split = hide_labels(images.split, seed_of(config.seed, "trial"))
    lost = np.setdiff1d(images.split.labelled, split.labelled)
    epochs = math.ceil(TRIAL_STEPS / max(1, steps_per_epoch(len(split.training), config.training.batch_size)))
    minutes = None if seconds is None else max(1.0, seconds) / 60
    brief = config.changed(
        simgcd={"epochs": epochs, "teacher_warm_up": warm_up(epochs), "minutes": minutes, "max_steps": None},
    ).model_copy(update={"method": "simgcd"})
    own = SplitImages(images.image_set, split, images.unreadable)
    state = prepare(brief, run, own, copy.deepcopy(backbone), lambda line: None, features)
    start = classify(state.model.head, features[torch.from_numpy(lost)], state.compute).argmax(1).numpy()
    stage = Stage(state, run, 0, lambda line: None)
    state.attach_prompt(stage.plan)
    state.open_bank(run.path)
    with noted_interrupts() as check_interrupt:
        for _ in epochs_with_bar(stage.trainer(), check_interrupt, "trial"):
            state.features.forget()
    trained = state.outputs(lost).categories
    truth = split.target[lost]
    by_start, by_training = (rightly_sorted(truth, found, split.n_known) for found in (start, trained))
    return Verdict(
        len(lost),
        int(by_start.sum()),
        int(by_training.sum()),
        int((by_start & ~by_training).sum()),
        int((by_training & ~by_start).sum()),
    )


def after_trial(experiment: Experiment) -> Experiment:
    """Try the training on hidden labels; if the clustering alone is better, return an experiment that clusters."""
    state, run, minutes = experiment.state, experiment.run_folder, experiment.state.config.simgcd.minutes
    features = state.features.compute_all(state.model.backbone)
    seconds = None if minutes is None else TRIAL_SHARE * 60 * minutes
    verdict = try_training(state.config, state.images, state.model.backbone, features, run, seconds)
    experiment.tell(str(verdict))
    state.world.do_first(lambda: run.write_facts(run.facts() | {"trial": verdict.as_dict()}))
    return without_training(experiment) if verdict.prefers_clustering else experiment


def without_training(experiment: Experiment) -> Experiment:
    """Return an experiment on the same images that only clusters, with the settings of the run changed to that."""
    state, run = experiment.state, experiment.run_folder
    config = state.config.changed(head={"start": "random"}).model_copy(update={"method": "sskmeans"})
    tell, tell_epoch = experiment.tell, experiment.tell_epoch
    clustering = Experiment(config, run, state.images, tell, tell_epoch, state.model.backbone, state.features.kept)
    clustering.began, clustering.state.estimate = experiment.began, state.estimate
    clustering.use(clustering.state.config)
    return clustering
