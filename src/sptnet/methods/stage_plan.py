"""A training stage as data: phases, objective, optimisers, and what it keeps beside the model.

Every field of `StagePlan` after the optimisers is idle by default. A method that needs pseudo-labels, a memory of
features, a mean teacher or other images in its batches says so here; the trainer serves all methods alike.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from jaxtyping import Bool, Float, Int
from torch import Tensor

from sptnet.head import Head
from sptnet.losses import Loss
from sptnet.methods.phases import Turns
from sptnet.model.gcd_model import Group

LearningRate = Callable[[int, int, int, int], float]
"""Learning rate as a function of epoch, step, number of epochs and number of steps; steps of all phases count."""

Rows = Mapping[str, Tensor]
"""Outputs of a model by name, a row per view: view one of all images, then view two of all.

Always there: `projections`, `logits` and `features` (the backbone's class token). With outputs of prompt tokens:
`token_features` and `token_projections` too."""

Memory = Mapping[str, Tensor]
"""Tensors that a stage keeps from step to step and from epoch to epoch; checkpoints hold them."""


@dataclass(frozen=True)
class Optimiser:
    """Settings of SGD for one group of parameters."""

    learning_rate: LearningRate
    weight_decay: float
    momentum: float
    decay_vectors: bool = False
    """Apply weight decay to biases and other vectors too, as in the GCD method."""
    backbone_ratio: float = 1.0
    """Learning rate of the backbone as a multiple of the learning rate of the rest of the group."""


@dataclass(frozen=True)
class Limit:
    """Early end of a stage: after some minutes, or after some steps, with the learning rate annealed at the end."""

    minutes: float | None = None
    steps: int | None = None
    anneal_steps: int = 0


@dataclass(frozen=True)
class Clock:
    """Place of a step in its stage."""

    epoch: int
    epochs: int
    step: int
    steps: int


@dataclass(frozen=True)
class Step:
    """All that the objective of a step may see, over the whole batch on every rank."""

    rows: Rows
    """Outputs of the model."""
    labels: Int[Tensor, " b"]
    """Class per image, read only where `labelled` is true."""
    labelled: Bool[Tensor, " b"]
    images: Int[Tensor, " b"]
    """Index per image in the image set."""
    clock: Clock
    memory: Memory = field(default_factory=dict)
    teacher: Rows | None = None
    """Outputs of the mean teacher, without a graph, if the stage has one."""
    n_main: int | None = None
    """Number of images before those that `StagePlan.extra` added; None if it adds none."""

    @property
    def projections(self) -> Float[Tensor, "2b p"]:
        """What the contrastive losses compare."""
        return self.rows["projections"]

    @property
    def logits(self) -> Float[Tensor, "2b k"]:
        """Logits of the head, without temperature: cosines if it has prototypes."""
        return self.rows["logits"]

    @property
    def features(self) -> Float[Tensor, "2b dim"]:
        """Class tokens after the final norm."""
        return self.rows["features"]


class Objective(Protocol):
    """Loss of a step."""

    def __call__(self, step: Step, /) -> Loss:
        """Compute the loss."""
        ...


@dataclass(frozen=True)
class EpochStart:
    """All that may be seen before an epoch: outputs of all training images by the present model (centre views)."""

    features: Float[Tensor, "n dim"]
    logits: Float[Tensor, "n k"]
    labels: Int[Tensor, " n"]
    """Class per image, -1 for unlabelled images."""
    images: Int[Tensor, " n"]
    """Index per image in the image set."""
    n_images: int
    """Number of images in the image set, training images or not."""
    n_known: int
    n_categories: int
    epoch: int
    epochs: int
    seed: int
    """Differs from epoch to epoch."""
    memory: Memory
    """Memory after the epoch before; empty at first."""


Refresh = Callable[[EpochStart], Memory]
Remember = Callable[[Step], Memory]
ExtraImages = Callable[[Memory, int, int, int], list[Tensor]]
"""Image indices to add to each batch, from the memory, the batch size, the number of steps and a seed."""
Decay = Callable[[int, int], float]
"""Decay of the mean teacher as a function of step and number of steps."""


@dataclass(frozen=True)
class Anchor:
    """A folder of images whose unit features are to stay as they were before the stage, without prompts."""

    folder: str
    weight: Callable[[int], float]
    """Weight of the mean squared difference, by epoch; where it is zero the images are not read."""


@dataclass(frozen=True)
class StagePlan:
    """One training stage; a method is a list of stages."""

    name: str
    """Name of the stage, and of the section of its settings."""
    epochs: int
    turns: Turns
    objective: Objective
    optimisers: dict[Group, Optimiser] = field(default_factory=dict)
    prompt_kind: str = "none"
    limit: Limit = Limit()
    refresh: Refresh | None = None
    """Runs before every epoch and returns the new memory: pseudo-labels, centroids, margins."""
    remember: Remember | None = None
    """Runs after every step, without gradients, and returns the new memory."""
    tells: tuple[str, ...] = ()
    """Numbers in the memory that the log shows after every epoch."""
    extra: ExtraImages | None = None
    teacher: Decay | None = None
    """Keep a mean teacher, an exponential moving average of the trained weights."""
    decides: Literal["model", "teacher"] = "model"
    """Whose predictions count after an epoch, and which weights the stage hands on."""
    head: Callable[[Head, int, int], Head] | None = None
    """Builds a new head from the present one, the length of the features and the number of categories."""
    keeps_prompt: bool = False
    """Go on with the prompts of the stage before instead of new ones."""
    token_outputs: int = 0
    """Number of prompt tokens whose mean output is projected too."""
    anchor: Anchor | None = None
    sorts_as: str | None = None
    """Name of the method whose clustering, if any, sorts the images while this stage trains; None: that of the run."""
