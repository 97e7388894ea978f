"""State of a run: its model, its images, and the features that the model computes from them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sptnet.clustering.centroids import find_centroids
from sptnet.clustering.count import CountEstimate
from sptnet.clustering.hierarchy.selective_neighbors import SelectiveNeighborClustering
from sptnet.config import ClusteringSettings, Config
from sptnet.data.load import SplitImages
from sptnet.data.readable import fingerprint
from sptnet.errors import Failure
from sptnet.head import CentroidHead, ContrastiveHead
from sptnet.inference.features import FeatureCache, Outputs, with_top
from sptnet.methods import METHODS
from sptnet.methods.method import Method
from sptnet.methods.stage_plan import StagePlan
from sptnet.model.calibrator import Calibrator
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import ModelCard, load_model, save_model
from sptnet.model.token_bank import TokenBank
from sptnet.results.scores import score_sets
from sptnet.runtime.compute import Compute
from sptnet.runtime.distributed import World
from sptnet.runtime.seeds import seed_of, seeded
from sptnet.runtime.tensor_files import first_not_finite
from sptnet.training.bank_setup import open_bank, trains_on_strong_views

Indices = npt.NDArray[np.int64]
CHECKED_IMAGES = 64
"""Training images whose outputs are checked before a model is saved; those of all images are checked at the end."""


def diverged(what: str) -> Failure:
    """Return the error for a training that has diverged."""
    return Failure(
        f"{what}: the training has diverged, or it began with damaged weights. The last good checkpoint is kept. Lower "
        "the learning rate, or give other weights."
    )


@dataclass
class RunState:
    """Model, images and settings of a run in progress."""

    config: Config
    """Settings, with every `auto` replaced by a number."""
    images: SplitImages
    method: Method
    stages: list[StagePlan]
    names: tuple[str, ...]
    """Names of all categories, the known ones first."""
    model: GcdModel
    features: FeatureCache
    compute: Compute
    world: World
    estimate: CountEstimate | None = None
    """The estimated number of categories, if it was asked for."""
    bank: TokenBank | None = None
    frozen: Float[Tensor, "n dim"] | None = None
    """Features of all images before training, if they were computed."""
    calibrator: Calibrator | None = None
    """Calibration of the finished model, if there is one."""
    decider: GcdModel | None = None
    """Mean teacher whose predictions count instead of the model's, while a stage with such a teacher trains."""
    sorts_as: str = field(init=False)
    """Name of the method whose clustering, if any, sorts the images at present."""
    assigned: Indices | None = None
    """Category per image by a clustering that is more than the nearest centroid; -1 for images it did not see."""
    _fingerprints: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sorts_as = self.config.method

    def fingerprint(self, version: int) -> str:
        """Digest of the images and labels, computed once; `version` says what is read of files."""
        if version not in self._fingerprints:
            self._fingerprints[version] = fingerprint(self.images.image_set, version)
        return self._fingerprints[version]

    @property
    def card(self) -> ModelCard:
        """Description that is saved beside the weights of the present model."""
        config, prompt = self.config, self.model.prompt_settings
        n_known, blocks = self.images.split.n_known, config.backbone.trainable_blocks
        return ModelCard(self.names, n_known, prompt, config.views.crop_ratio, blocks, self.calibrator)

    def is_last(self, stage: int) -> bool:
        """True for the last stage."""
        return stage == len(self.stages) - 1

    @property
    def sorts_by(self) -> str:
        """The clustering that sorts the images at present, `no` for a classifier; see `Method.clusters`."""
        return METHODS[self.sorts_as].clusters

    def begin_stage(self, plan: StagePlan) -> None:
        """Give the model the head and the prompts of a stage."""
        self.sorts_as = plan.sorts_as or self.config.method
        self.replace_head(plan)
        self.attach_prompt(plan)

    def attach_prompt(self, plan: StagePlan) -> None:
        """Attach fresh prompts of the kind that a stage trains, unless it keeps those of the stage before."""
        self.model.n_token_outputs = plan.token_outputs
        if plan.keeps_prompt:
            return
        settings = self.config.prompt.model_copy(update={"kind": plan.prompt_kind})
        generator = torch.Generator().manual_seed(seed_of(self.config.seed, "prompt"))
        self.model.attach_prompt(settings, generator)

    def open_bank(self, run: Path) -> None:
        """Open the token bank of the settings, if any."""
        views, backbone, n_images = self.config.views, self.model.backbone, len(self.images.image_set)
        machine, strong = self.world.machine, trains_on_strong_views(self.stages)
        self.bank = self.world.local_rank_zero_first(
            lambda: open_bank(views, run, backbone, n_images, self.fingerprint, machine, strong)
        )

    @property
    def deciding(self) -> GcdModel:
        """The model whose predictions count: the mean teacher of the stage, or the trained model."""
        return self.decider or self.model

    def outputs(self, indices: Indices) -> Outputs:
        """Features and logits of some images by the present model; raises if they are not finite."""
        outputs = self._finite(self.features.outputs(self.deciding, indices, self.bank))
        if self.assigned is None:
            return outputs
        return Outputs(outputs.features, with_top(outputs.logits, torch.from_numpy(self.assigned[indices])))

    def look(self, indices: Indices) -> Outputs:
        """Features and logits of some images; features of all images are computed through the bank and cached."""
        self.features.compute_all(self.deciding, self.bank, lambda done: None)
        return self._finite(self.features.outputs(self.deciding, indices, self.bank))

    @staticmethod
    def _finite(outputs: Outputs) -> Outputs:
        bad = first_not_finite(vars(outputs))
        if bad is not None:
            raise diverged(f"the {bad} of the images are not finite")
        return outputs

    def check_weights(self) -> None:
        """Raise if a weight of the model, or of its mean teacher, is not finite."""
        for model in (self.model, *([] if self.decider is None else [self.decider])):
            bad = first_not_finite(model.state_dict())
            if bad is not None:
                raise diverged(f"the weights {bad} are not finite")

    def compute_all_features(self) -> None:
        """Compute and cache the features of all images, unless cached; in full unless the settings allow the bank."""
        self.features.compute_all(self.deciding, self.bank if self.config.views.bank_at_end else None)

    def settle_decider(self) -> None:
        """Hand on the mean teacher of a finished stage as the model."""
        if self.decider is not None:
            self.model, self.decider = self.decider, None

    def replace_head(self, plan: StagePlan) -> None:
        """Give the model the new head of a stage, if it has one."""
        if plan.head is not None:
            with seeded(seed_of(self.config.seed, "head", plan.name)):
                head = plan.head(self.model.head, self.model.backbone.dim, len(self.names))
            self.model.head = head.to(self.compute.device)

    def scores(self, categories: Indices, indices: Indices) -> dict[str, Any]:
        """Scores of every set of images, from the predicted categories of the images at these indices."""
        image_set = self.images.image_set
        predicted = np.full(len(image_set), -1, dtype=np.int64)
        predicted[indices] = categories
        return score_sets(image_set, self.images.split, predicted)

    def cluster(self) -> None:
        """Compute the centroids of a method that clusters, from the present features."""
        if self.sorts_by == "no":
            return
        head, split = self.deciding.head, self.images.split
        centroid_head = head.classifier if isinstance(head, ContrastiveHead) else head
        assert isinstance(centroid_head, CentroidHead)
        features = self.features.outputs(self.deciding, split.training, self.bank).features
        if first_not_finite({"features": features}) is not None:
            raise diverged("the features of the images are not finite")
        if self.sorts_by == "neighbors":
            centroid_head.centroids.copy_(self._cluster_neighbors(features))
            return
        settings: ClusteringSettings = getattr(self.config, self.sorts_as)
        seed, semi_supervised = seed_of(self.config.seed, "clustering"), self.sorts_by == "semi-supervised"
        centroids = self.world.from_first(
            lambda: find_centroids(
                features,
                split.training_labels,
                len(self.names),
                settings,
                seed,
                semi_supervised,
                str(self.compute.device),
            ).cpu()
        )
        centroid_head.centroids.copy_(centroids)

    def _cluster_neighbors(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "k dim"]:
        """Assign the training images by selective neighbour clustering; returns the centroids."""
        split = self.images.split
        points = F.normalize(features, dim=1).numpy()
        found = self.world.from_first(
            lambda: SelectiveNeighborClustering(len(self.names)).fit(points, split.training_labels)
        )
        self.assigned = np.full(len(self.images.image_set), -1, dtype=np.int64)
        self.assigned[split.training] = found.labels_
        return torch.from_numpy(found.cluster_centers_).float()

    def drop_projection(self) -> None:
        """Remove the part of the head that is only used in training."""
        if isinstance(self.model.head, ContrastiveHead):
            self.model.head = self.model.head.classifier

    def save(self, folder: Path) -> None:
        """Save the model without a projection that is only used in training; raises if it has diverged."""
        self.check_weights()
        self.outputs(self.images.split.training[:CHECKED_IMAGES])
        model, head = self.deciding, self.deciding.head
        if isinstance(head, ContrastiveHead):
            model.head = head.classifier
        self.world.do_first(lambda: save_model(folder, model, self.card))
        model.head = head

    def load(self, folder: Path) -> None:
        """Replace the model by a saved one."""
        self.model, self.decider, self.assigned = load_model(folder)[0].to(self.compute.device), None, None
        self.features.forget()
