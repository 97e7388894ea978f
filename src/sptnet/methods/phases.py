"""Phases and stages as data: the parameters that train, on which views, and the order of the phases."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from sptnet.errors import Misuse
from sptnet.losses import Loss
from sptnet.model.gcd_model import Group


@dataclass(frozen=True)
class View:
    """One of the two random draws of an image, with or without the prompts."""

    draw: int
    prompted: bool


@dataclass(frozen=True)
class Phase:
    """One kind of training step."""

    name: str
    trains: frozenset[Group]
    views: tuple[View, View]

    @property
    def draws(self) -> int:
        """Number of random draws per image that this phase needs: 1 or 2."""
        return 1 + max(view.draw for view in self.views)

    @property
    def prompted_draws(self) -> frozenset[int]:
        """Draws to which prompts are added; their pixels are needed even with a token bank."""
        return frozenset(view.draw for view in self.views if view.prompted)


RAW = Phase("raw", frozenset({"model"}), (View(0, False), View(1, False)))
PROMPT = Phase("prompt", frozenset({"prompt"}), (View(0, True), View(1, True)))  # the paper's stage one
MODEL = Phase("model", frozenset({"model"}), (View(0, False), View(0, True)))  # the paper's stage two
JOINT = Phase("joint", frozenset({"prompt", "model"}), (View(0, True), View(1, True)))


@dataclass(frozen=True)
class Always:
    """The same phase in all steps."""

    phase: Phase

    def at(self, epoch: int, batch: int, epochs: int, batches: int) -> Phase:
        """Return the phase of a step."""
        return self.phase


@dataclass(frozen=True)
class TakeTurns:
    """Two phases that alternate every k steps.

    With `restart`, as in the published code, each epoch begins with the first phase, and the phase changes at the
    batches whose number, counted from one, is a multiple of k; so the first turn has k - 1 steps, and the last one
    ends with the epoch. Without `restart`, steps are counted through all epochs and each turn has k steps. The same
    holds if an epoch has fewer than k batches, since the second phase would never begin.
    """

    first: Phase
    second: Phase
    k: int
    restart: bool = True

    def restarts(self, batches: int) -> bool:
        """Return True if each epoch of so many batches begins with the first phase."""
        return self.restart and self.k <= batches

    def at(self, epoch: int, batch: int, epochs: int, batches: int) -> Phase:
        """Return the phase of a step."""
        turn = (batch + 1) // self.k if self.restarts(batches) else (epoch * batches + batch) // self.k
        return self.second if turn % 2 else self.first

    def check(self, epochs: int, batches: int) -> None:
        """Raise if the training ends before the second phase begins."""
        if not self.restarts(batches) and self.k >= epochs * batches:
            raise Misuse(
                f"a turn has {self.k} batches (`sptnet.k`), but the whole training only {epochs * batches}: the "
                f"{self.second.name}'s turn would never come. Give shorter turns, such as "
                f"`sptnet.k={max(1, epochs * batches // 4)}`, or more `sptnet.epochs`."
            )


@dataclass(frozen=True)
class OneThenOther:
    """The first phase for half of the epochs, then the second."""

    first: Phase
    second: Phase

    def at(self, epoch: int, batch: int, epochs: int, batches: int) -> Phase:
        """Return the phase of a step."""
        return self.first if 2 * epoch < epochs else self.second


Turns = Always | TakeTurns | OneThenOther

LearningRate = Callable[[int, int, int, int], float]
"""Learning rate as a function of epoch, step, number of epochs and number of steps; steps of all phases count."""


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


class Objective(Protocol):
    """Loss of a step: projections and logits of both views, targets, a mask of labelled images, and the epoch."""

    def __call__(self, projections: Tensor, logits: Tensor, labels: Tensor, labelled: Tensor, epoch: int) -> Loss:
        """Compute the loss."""
        ...


@dataclass(frozen=True)
class Limit:
    """Early end of a stage: after some minutes, or after some steps, with the learning rate annealed at the end."""

    minutes: float | None = None
    steps: int | None = None
    anneal_steps: int = 0


@dataclass(frozen=True)
class StagePlan:
    """One training stage; a method is a list of stages."""

    name: str
    epochs: int
    turns: Turns
    objective: Objective
    optimisers: dict[Group, Optimiser] = field(default_factory=dict)
    prompt_kind: str = "none"
    limit: Limit = Limit()
