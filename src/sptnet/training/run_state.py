"""The learner of a run: its model, the images it learns from, and what it makes of them as it is now."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sptnet.clustering.centroids import find_centroids
from sptnet.clustering.count import CountEstimate
from sptnet.config import ClusteringSettings, Config, PromptSettings
from sptnet.data.load import SplitImages
from sptnet.data.readable import fingerprint
from sptnet.head import CentroidHead, ContrastiveHead
from sptnet.inference.looking import Looker
from sptnet.inference.outputs import Outputs
from sptnet.methods.method import Method
from sptnet.methods.phases import StagePlan
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import ModelCard, load_model, save_model
from sptnet.model.token_bank import TokenBank
from sptnet.results.scores import score_sets
from sptnet.runtime.compute import Compute
from sptnet.runtime.distributed import World
from sptnet.runtime.progress import bar
from sptnet.runtime.seeds import seed_of
from sptnet.training.bank_setup import open_bank

Indices = npt.NDArray[np.int64]


@dataclass
class RunState:
    config: Config
    """The settings, with numbers in the place of every `auto`."""
    data: SplitImages
    method: Method
    stages: list[StagePlan]
    names: tuple[str, ...]
    """Of all categories, the known ones first."""
    model: GcdModel
    looker: Looker
    compute: Compute
    world: World
    estimate: CountEstimate | None = None
    """How many categories there seem to be, if that was asked."""
    bank: TokenBank | None = None

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.data.image_set)

    def is_last(self, stage: int) -> bool:
        return stage == len(self.stages) - 1

    def attach_prompt(self, plan: StagePlan) -> PromptSettings:
        settings = self.config.prompt.model_copy(update={"kind": plan.prompt_kind})
        generator = torch.Generator().manual_seed(seed_of(self.config.seed, "prompt"))
        self.model.attach_prompt(settings, generator)
        return settings

    def open_bank(self, run: Path) -> None:
        views, backbone, n_images = self.config.views, self.model.backbone, len(self.data.image_set)
        self.bank = self.world.one_by_one_on_a_machine(
            lambda: open_bank(views, run, backbone, n_images, self.fingerprint, self.world.machine)
        )

    def outputs(self, indices: Indices) -> Outputs:
        """Features and logits of these images by the model as it is now."""
        return self.looker.outputs(self.model, indices, self.bank)

    def look_at_all(self) -> None:
        """With the finished model, unless it has just done so."""
        if self.looker.seen is None:
            with bar("sorting all images", len(self.data.image_set)) as update:
                self.looker.look_at_all(self.model, told=update)

    def scores(self, outputs: Outputs, indices: Indices) -> dict[str, Any]:
        """The scores of every set of images, from the outputs of the images at these indices."""
        predicted = np.full(len(self.data.image_set), -1, dtype=np.int64)
        predicted[indices] = outputs.categories
        return score_sets(self.data.image_set, self.data.split, predicted)

    def cluster(self) -> None:
        """Of a method that clusters, the centroids for the features as they are now."""
        if self.method.clusters == "no":
            return
        head, split = self.model.head, self.data.split
        centroid_head = head.classifier if isinstance(head, ContrastiveHead) else head
        assert isinstance(centroid_head, CentroidHead)
        trained_on = np.concatenate([split.labelled, split.unlabelled])
        settings: ClusteringSettings = getattr(self.config, self.config.method)
        features = self.outputs(trained_on).features
        found = self.world.from_first(
            lambda: find_centroids(
                features,
                np.where(np.isin(trained_on, split.labelled), split.target[trained_on], -1),
                len(self.names),
                settings,
                seed_of(self.config.seed, "clustering"),
                self.method.clusters == "semi-supervised",
                str(self.compute.device),
            ).cpu()
        )
        centroid_head.centroids.copy_(found)

    def save(self, folder: Path, prompt: PromptSettings) -> None:
        """The model as it will be used: a projection that only trained is left out."""
        config, head = self.config, self.model.head
        known, blocks = self.data.split.n_known, config.backbone.trainable_blocks
        card = ModelCard(self.names, known, prompt, config.views.crop_ratio, blocks)
        self.model.head = head.classifier if isinstance(head, ContrastiveHead) else head
        self.world.do_first(lambda: save_model(folder, self.model, card))
        self.model.head = head

    def load(self, folder: Path) -> None:
        """A saved model in the place of this one; what this one saw is forgotten."""
        self.model = load_model(folder)[0].to(self.compute.device)
        self.looker.forget()
