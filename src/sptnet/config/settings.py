"""Settings of a run with their defaults and limits. Instances are frozen; unknown keys are refused."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from sptnet.config.sections import (
    ClusteringSettings,
    Count,
    ImageSize,
    Names,
    NonNegative,
    Output,
    Positive,
    Section,
    Share,
    Starts,
    Steps,
    TimedSettings,
    Width,
)
from sptnet.config.systems import (
    CalibratedSettings,
    CiprSettings,
    DcclSettings,
    GpcSettings,
    MuGcdSettings,
    OrcaSettings,
    PromptCalSettings,
    RankStatsSettings,
    UnoSettings,
)

DataSource = Literal[
    "digits",
    "folder",
    "domains",
    "cifar10",
    "cifar100",
    "imagenet100",
    "imagenet1k",
    "cub",
    "cars",
    "aircraft",
    "herbarium19",
    "domainnet",
    "pacs",
    "fashion_mnist",
]

MOST_HEAD_WEIGHTS = 500_000_000


class DataSettings(Section):
    """Images, labels and split."""

    source: DataSource = Field("folder", description="a benchmark by name, a folder, or a folder of domains")
    folder: str | None = Field(None, description="folder of images")
    labels: str | None = Field(None, description="CSV of path,label instead of sub-folder names")
    folder_labels: bool = Field(
        True, description="sub-folder names are labels; false if they are sites, cameras or dates"
    )
    split: str | None = Field(None, description="a split.json to use instead of drawing one")
    unlabelled: str = Field("unlabelled", description="sub-folder that holds the unsorted images")
    labelled_domain: str | None = Field(None, description="the domain with labels, in a folder of domains")
    unlabelled_domains: Names = Field([], description="domains trained on without labels; all others are unseen")
    known_classes: int | Names | None = Field(
        None, description="a number or a list of names; 0 for images without labels"
    )
    labelled_share: Share = Field(0.5, description="share of the known classes' images that keep their label")
    split_seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    holdout_share: Share = Field(0.0, description="share of the labelled images kept aside for model selection")
    check_counts: bool = Field(True, description="compare a benchmark's number of images with the published one")
    max_unreadable: Share = Field(0.01, description="largest share of unreadable images that is skipped")
    skip_duplicates: bool = Field(
        False, description="leave all but one of equal or nearly equal images out of training, counts and scores"
    )


class BackboneSettings(Section):
    """Vision transformer and its weights."""

    name: str = Field("vit_base_patch16_224.dino", description="timm name, or sptnet_digits_vit")
    weights: str | None = Field(None, description="local weights file instead of a download")
    image_size: ImageSize | None = Field(None, description="pixels; the backbone's own, at most 224, if not given")
    trainable_blocks: Count = 1


class HeadSettings(Section):
    """Classifier and projection head."""

    hidden: Width = Field(2048, description="width of the projection MLP")
    bottleneck: Width = Field(256, description="length of the projections")
    start: Literal["random", "clusters"] = Field(
        "random", description="first prototypes; clusters: centroids of semi-supervised k-means on frozen features"
    )
    contrast: Literal["projections", "features"] = Field(
        "projections", description="what the contrastive losses compare; features: there is no projection MLP"
    )


class ViewSettings(Section):
    """Views: how images are read, cropped and cached."""

    crop_ratio: Annotated[float, Field(ge=0.1, le=1)] = Field(0.875, description="crop size / short side")
    flip: Share = 0.5
    reading: Literal["auto", "quick", "exact"] = Field(
        "auto",
        description="exact: pixels equal to those of the published code; quick: a few differ by one level; "
        "auto: exact for benchmarks, quick for other images",
    )
    workers: Annotated[int, Field(ge=0, le=1024)] | Literal["auto"] = "auto"
    cache_mb: Annotated[int, Field(ge=0, le=10**9)] = Field(1024, description="memory for decoded images")
    bank: Annotated[int, Field(ge=0, le=10_000)] | Literal["auto"] = Field(
        0, description="fixed views per image with their tokens kept on disk; 0: fresh views; auto: as many as fit"
    )
    bank_folder: str | None = Field(None, description="folder of the token bank; the run's own if not given")
    bank_budget_gb: Positive | None = Field(
        None, description="largest size for bank=auto; half of the free disk space if not given"
    )
    bank_at_end: bool = Field(
        False, description="the final features too come from the bank, rounded to half precision: for many short runs"
    )


class PromptSettings(Section):
    """Kind and size of the prompts."""

    kind: Literal["none", "global", "shared", "spatial", "shared+global", "spatial+global", "vpt", "deep"] = (
        "spatial+global"
    )
    width: ImageSize = Field(1, description="m, width of the frame inside every patch")
    border: ImageSize = Field(30, description="m+, width of the border round the image")
    tokens: Annotated[int, Field(ge=1, le=1024)] = Field(5, description="prompt tokens per layer, for vpt and deep")
    noise: NonNegative = Field(
        1.0, description="standard deviation of the initial prompts; 0: images are unchanged at the start"
    )


class StageSettings(TimedSettings):
    """Settings common to the training of SimGCD and SPTNet."""

    epochs: Count
    learning_rate: NonNegative
    backbone_ratio: NonNegative = Field(1.0, description="learning rate of the backbone as a multiple of the head's")
    weight_decay: NonNegative
    final_ratio: Share = Field(description="last learning rate as a share of the first")
    teacher_start: Positive = 0.07
    teacher_end: Positive = 0.04
    teacher_warm_up: Count = Field(description="epochs in which the teacher sharpens")
    sup_weight: Share = 0.35
    entropy_weight: NonNegative = 1.0


class SimGcdSettings(StageSettings):
    """Training of SimGCD."""

    epochs: Count = 200
    learning_rate: NonNegative = 0.1
    weight_decay: NonNegative = 5e-5
    final_ratio: Share = 1e-3
    teacher_warm_up: Count = 30


class SptNetSettings(StageSettings):
    """Training of SPTNet."""

    start_from: str | None = Field(None, description="a finished SimGCD run to build on")
    strategy: Literal[
        "alternate",
        "end-to-end",
        "data-first",
        "model-first",
        "prompts-only",
        "random-prompts",
        "fine-tune",
    ] = "alternate"
    k: Annotated[Steps, Field(ge=1)] = Field(20, description="steps per turn of prompts and of model")
    counter: Literal["epoch", "continuous"] = Field("epoch", description="epoch: turns restart every epoch")
    prompt_learning_rate: NonNegative = 1.0
    prompt_warm_up: Steps = Field(1000, description="steps")
    epochs: Count = 1000
    learning_rate: NonNegative = 0.05
    weight_decay: NonNegative = 5e-4
    final_ratio: Share = 0.1
    teacher_warm_up: Count = 10


class KMeansSettings(ClusteringSettings):
    """Clustering of the methods kmeans and sskmeans."""

    n_init: Starts = 10


class GcdSettings(ClusteringSettings, TimedSettings):
    """Training and clustering of the GCD method."""

    epochs: Count = 200
    learning_rate: NonNegative = 0.1
    weight_decay: NonNegative = 5e-5
    final_ratio: Share = 1e-3
    sup_weight: Share = 0.35
    output: Output = Field(65536, description="length of the projections in the contrastive losses")
    n_init: Starts = 100


class TrainingSettings(Section):
    """Training loop, common to all methods."""

    batch_size: Annotated[int, Field(ge=2, le=65_536)] = 128
    momentum: Share = 0.9
    evaluate_every: Count = Field(10, description="epochs between evaluations; the last epoch is always evaluated")
    select: Literal["last", "best-old-holdout"] = "last"
    certainty: Literal["own", "calibrated"] = Field(
        "own", description="of the images: the model's own, or calibrated by features from before training"
    )
    accumulate: Count = Field(1, description="parts per batch, to save memory; the gradient is the same")
    checkpointing: bool = Field(False, description="recompute activations in the backward pass, to save memory")
    track: Literal["none", "tensorboard", "wandb"] = Field(
        "none", description="also write losses, scores, prompts and the report for TensorBoard or Weights & Biases"
    )


class Config(Section):
    """All settings of a run."""

    method: str = "sptnet"
    n_categories: Count | Literal["auto"] | None = Field(
        None, description="known + new; auto: estimated; the true number if not given and known"
    )
    category_factor: Positive = Field(
        1.0, description="factor on the true number, to try a wrong one; excludes n_categories"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")
    precision: Literal["auto", "float32", "bf16", "fp16"] = Field(
        "auto", description="auto: half precision on CUDA, else float32; bf16 is quicker on some CPUs too"
    )
    data: DataSettings = DataSettings()
    backbone: BackboneSettings = BackboneSettings()
    head: HeadSettings = HeadSettings()
    views: ViewSettings = ViewSettings()
    prompt: PromptSettings = PromptSettings()
    kmeans: KMeansSettings = KMeansSettings()
    sskmeans: KMeansSettings = KMeansSettings()
    gcd: GcdSettings = GcdSettings()
    simgcd: SimGcdSettings = SimGcdSettings()
    sptnet: SptNetSettings = SptNetSettings()
    rankstats: RankStatsSettings = RankStatsSettings()
    uno: UnoSettings = UnoSettings()
    orca: OrcaSettings = OrcaSettings()
    dccl: DcclSettings = DcclSettings()
    promptcal: PromptCalSettings = PromptCalSettings()
    promptcal_calibrated: CalibratedSettings = CalibratedSettings()
    cipr: CiprSettings = CiprSettings()
    gpc: GpcSettings = GpcSettings()
    mugcd: MuGcdSettings = MuGcdSettings()
    training: TrainingSettings = TrainingSettings()

    @model_validator(mode="after")
    def _check_count(self) -> Self:
        if self.n_categories is not None and self.category_factor != 1:
            raise ValueError("n_categories and category_factor exclude each other; give one of them")
        return self

    @model_validator(mode="after")
    def _check_head(self) -> Self:
        of_stage = "gcd" if self.method == "mugcd" else self.method
        output = getattr(getattr(self, of_stage, None), "output", 0)
        hidden, bottleneck = self.head.hidden, self.head.bottleneck
        weights = hidden * hidden + bottleneck * (hidden + output)
        if weights > MOST_HEAD_WEIGHTS:
            names = "head.hidden, head.bottleneck" + f" and {of_stage}.output" * bool(output)
            raise ValueError(f"{names} make a head of {weights:,} weights; give at most {MOST_HEAD_WEIGHTS:,}")
        return self

    @classmethod
    def stage_names(cls) -> tuple[str, ...]:
        """Names of the sections that describe a training stage."""
        return tuple(name for name, value in cls.model_fields.items() if isinstance(value.default, TimedSettings))

    @property
    def reading(self) -> Literal["quick", "exact"]:
        """Reading mode of images, with `auto` resolved."""
        if self.views.reading != "auto":
            return self.views.reading
        return "quick" if self.data.source in ("folder", "domains") else "exact"

    def changed(self, **sections: dict[str, Any]) -> "Config":
        """Return a copy with some keys replaced, by section: `config.changed(prompt={"kind": "shared"})`."""
        values = self.model_dump()
        for section, changes in sections.items():
            values[section].update(changes)
        return Config(**values)
