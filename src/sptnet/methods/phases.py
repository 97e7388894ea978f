"""The alternation as data: what trains, on which views, and whose turn it is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from sptnet.errors import Misuse
from sptnet.losses import Loss
from sptnet.model.gcd_model import Group


@dataclass(frozen=True)
class View:
    """One of the two draws of an image, as it is or with the prompts added."""

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
        """How many draws of an image this phase needs: the second is not made for nothing."""
        return 1 + max(view.draw for view in self.views)

    @property
    def prompted_draws(self) -> frozenset[int]:
        """The draws whose pixels are needed in any case, because prompts are added to them."""
        return frozenset(view.draw for view in self.views if view.prompted)


RAW = Phase("raw", frozenset({"model"}), (View(0, False), View(1, False)))
PROMPT = Phase("prompt", frozenset({"prompt"}), (View(0, True), View(1, True)))  # the paper's stage one
MODEL = Phase("model", frozenset({"model"}), (View(0, False), View(0, True)))  # the paper's stage two
JOINT = Phase("joint", frozenset({"prompt", "model"}), (View(0, True), View(1, True)))


@dataclass(frozen=True)
class Always:
    """One phase throughout."""

    phase: Phase

    def at(self, epoch: int, batch: int, epochs: int, batches: int) -> Phase:
        return self.phase


@dataclass(frozen=True)
class TakeTurns:
    """Two phases by turns of k steps.

    With `restart`, as published: every epoch begins with the first phase, and the turn passes at the batches whose
    number, counted from one, k divides; so the first turn has k - 1 steps and the last is cut by the epoch's end.
    Without, the count runs on through all epochs and every turn has k steps; so it does where an epoch has fewer than k
    batches, since the second phase would never have its turn.
    """

    first: Phase
    second: Phase
    k: int
    restart: bool = True

    def restarts(self, batches: int) -> bool:
        return self.restart and self.k <= batches

    def at(self, epoch: int, batch: int, epochs: int, batches: int) -> Phase:
        turn = (batch + 1) // self.k if self.restarts(batches) else (epoch * batches + batch) // self.k
        return self.second if turn % 2 else self.first

    def check(self, epochs: int, batches: int) -> None:
        """Refuses a training that ends before the second phase has its first turn."""
        if not self.restarts(batches) and self.k >= epochs * batches:
            raise Misuse(
                f"a turn has {self.k} batches (sptnet.k), but the whole training only {epochs * batches}: the "
                f"{self.second.name}'s turn would never come. Give shorter turns, such as --set "
                f"sptnet.k={max(1, epochs * batches // 4)}, or more sptnet.epochs."
            )


@dataclass(frozen=True)
class OneThenOther:
    """The first phase for half of the epochs, then the second."""

    first: Phase
    second: Phase

    def at(self, epoch: int, batch: int, epochs: int, batches: int) -> Phase:
        return self.first if 2 * epoch < epochs else self.second


Turns = Always | TakeTurns | OneThenOther

LearningRate = Callable[[int, int, int, int], float]
"""From epoch, step, number of epochs and number of steps to a learning rate; the step counts through all phases."""


@dataclass(frozen=True)
class Optimiser:
    learning_rate: LearningRate
    weight_decay: float
    momentum: float
    decay_vectors: bool = False
    """Whether biases and other vectors decay too, as in the GCD method."""


class Objective(Protocol):
    def __call__(self, projections: Tensor, logits: Tensor, labels: Tensor, labelled: Tensor, epoch: int) -> Loss: ...


@dataclass(frozen=True)
class Limit:
    """An end of a stage before its last epoch: after some minutes, or after some steps, the last of them annealed."""

    minutes: float | None = None
    steps: int | None = None
    anneal_steps: int = 0


@dataclass(frozen=True)
class StagePlan:
    """One training run over the data: a method is a list of these."""

    name: str
    epochs: int
    turns: Turns
    objective: Objective
    optimisers: dict[Group, Optimiser] = field(default_factory=dict)
    prompt_kind: str = "none"
    limit: Limit = Limit()
