"""Settings of the systems that SPTNet is compared with. Defaults are the published ones; `docs/methods.md` says where
nothing was published and what was chosen instead."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from sptnet.config.sections import (
    ClusteringSettings,
    Count,
    NonNegative,
    Output,
    Positive,
    Share,
    Starts,
    TimedSettings,
    Whole,
)


class TrainedSettings(TimedSettings):
    """Length and optimiser of a stage: SGD with a cosine schedule per epoch."""

    epochs: Count = 200
    learning_rate: NonNegative = 0.1
    backbone_ratio: NonNegative = Field(1.0, description="learning rate of the backbone as a multiple of the head's")
    weight_decay: NonNegative = 5e-5
    final_ratio: Share = Field(1e-3, description="last learning rate as a share of the first")


class ContrastiveSettings(TrainedSettings, ClusteringSettings):
    """Contrastive training with a wide projection, then semi-supervised k-means."""

    sup_weight: Share = 0.35
    output: Output = Field(65536, description="length of the projections in the contrastive losses")
    n_init: Starts = 100


class RankStatsSettings(TrainedSettings):
    """RankStats+: pairs of images with the same strongest feature dimensions."""

    learning_rate: NonNegative = 0.01
    top: Count = Field(5, description="dimensions whose set must agree")
    consistency: NonNegative = Field(50.0, description="largest weight of the consistency between views")
    ramp_up: Count = Field(150, description="epochs in which that weight grows")


class UnoSettings(TrainedSettings):
    """UNO+: Sinkhorn targets over all categories, swapped between the views."""

    temperature: Positive = 0.1
    epsilon: Positive = Field(0.05, description="temperature of the Sinkhorn targets")
    iterations: Starts = Field(3, description="iterations of the Sinkhorn normalisation")


class OrcaSettings(TrainedSettings):
    """ORCA: a margin for labelled images that shrinks as the unlabelled ones become certain."""

    scale: Positive = Field(10.0, description="factor on the cosines")
    largest_margin: NonNegative = 0.5


class DcclSettings(ContrastiveSettings):
    """DCCL: contrast with conceptions that Infomap finds before every epoch."""

    warm_up: Whole = Field(5, description="epochs in which the learning rate rises")
    neighbors: Count = 15
    threshold: Share = Field(0.6, description="least similarity of neighbours")
    least_size: Count = Field(5, description="images of the smallest conception")
    instances: Annotated[int, Field(ge=1, le=4096)] = Field(16, description="images per conception in a batch")
    temperature: Positive = 0.05
    kept: Share = Field(0.1, description="share of a centroid that an image leaves unchanged")
    first_weight: NonNegative = 0.04
    last_weight: NonNegative = 0.4
    weight_epochs: Count = Field(100, description="epochs from the first weight of the conceptions to the last")


class PromptCalSettings(ContrastiveSettings):
    """PromptCAL, first stage: contrastive training of deep prompts and the last block; then clustering."""

    supervised_tokens: Count = Field(2, description="prompt tokens whose mean output is contrasted too")
    token_weight: NonNegative = Field(0.35, description="weight of the losses of these tokens")
    distil_folder: str | None = Field(
        None, description="folder of images, such as ImageNet, whose features stay near those of the backbone at first"
    )
    distil_epochs: Count = Field(5, description="epochs in which they do")
    distil_first: NonNegative = Field(0.5, description="weight of the squared difference of these features at first")
    distil_last: NonNegative = Field(0.01, description="weight after these epochs, in which it falls linearly")


class CalibratedSettings(TrainedSettings):
    """PromptCAL, second stage: contrast calibrated by an affinity graph, with a mean teacher."""

    epochs: Count = 100
    decay: Share = Field(0.999, description="decay of the teacher per step")
    bank: Count = Field(4096, description="kept features of the teacher")
    negatives: Count = 1024
    neighbors: Count = 5
    quantile: Share = 0.8
    calibration: Share = Field(0.6, description="last weight of the calibrated contrast")
    ramp_up: Count = Field(2, description="epochs in which that weight grows")


class CiprSettings(TrainedSettings):
    """CiPR: contrast with pseudo-labels of selective neighbour clustering before every epoch."""

    backbone_ratio: NonNegative = Field(0.1, description="learning rate of the backbone as a multiple of the head's")
    output: Output = Field(65536, description="length of the projections in the contrastive losses")
    temperature: Positive = Field(0.12, description="temperature of the contrast with pseudo-labels")
    level: Whole = Field(1, description="level of the hierarchy that gives the pseudo-labels")
    warm_up: Whole = Field(0, description="epochs of contrast between views only")


class GpcSettings(ContrastiveSettings):
    """GPC: contrast with prototypes of a mixture whose components split and merge."""

    epochs: Count = 60
    output: Output = Field(128, description="length of the projections in the contrastive losses")
    temperature: Positive = Field(1.0, description="mean temperature of the prototypes")
    first_epoch: Whole = Field(1, description="epoch that begins to use prototypes")
    split_merge: bool = Field(True, description="split and merge clusters; without, their number is that of categories")
    accept: Share = Field(0.1, description="probability of a split or merge that the data do not ask for")


class MuGcdSettings(TrainedSettings):
    """muGCD: a mean teacher on weak views, the student on strong views."""

    start_from: str | None = Field(None, description="a finished GCD run to build on; without one, GCD trains first")
    sup_weight: Share = 0.35
    entropy_weight: NonNegative = 1.0
    teacher_start: Positive = 0.07
    teacher_end: Positive = 0.04
    teacher_warm_up: Count = Field(30, description="epochs in which the teacher sharpens")
    base_decay: Share = Field(0.7, description="the first decay of the teacher is final_decay - (1 - base_decay)")
    final_decay: Share = Field(0.999, description="decay of the teacher at the last step")

    @model_validator(mode="after")
    def _check_decay(self) -> Self:
        if self.final_decay + self.base_decay < 1:
            raise ValueError("base_decay and final_decay begin with a negative decay; let them add up to 1 or more")
        return self
