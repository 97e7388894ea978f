"""Phases as data: the parameters that train, on which views, and the order of the phases."""

from dataclasses import dataclass

from sptnet.errors import Misuse
from sptnet.model.gcd_model import Group


@dataclass(frozen=True)
class View:
    """One of the random draws of an image, with or without the prompts; strong views have draws of their own."""

    draw: int
    prompted: bool = False
    strong: bool = False


@dataclass(frozen=True)
class Phase:
    """One kind of training step."""

    name: str
    trains: frozenset[Group]
    views: tuple[View, View]
    teacher_views: tuple[View, View] | None = None
    """Views of the mean teacher, if the stage has one; those of the student if not given."""

    @property
    def all_views(self) -> tuple[View, ...]:
        """Views of the student and of the teacher."""
        return self.views + (self.teacher_views or ())

    @property
    def draws(self) -> int:
        """Number of random draws per image that this phase needs: 1 to 4."""
        return 1 + max(view.draw for view in self.all_views)

    @property
    def prompted_draws(self) -> frozenset[int]:
        """Draws to which prompts are added; their pixels are needed even with a token bank."""
        return frozenset(view.draw for view in self.all_views if view.prompted)

    @property
    def strong_draws(self) -> frozenset[int]:
        """Draws that are strongly augmented."""
        return frozenset(view.draw for view in self.all_views if view.strong)


RAW = Phase("raw", frozenset({"model"}), (View(0), View(1)))
PROMPT = Phase("prompt", frozenset({"prompt"}), (View(0, True), View(1, True)))  # the paper's stage one
MODEL = Phase("model", frozenset({"model"}), (View(0), View(0, True)))  # the paper's stage two
JOINT = Phase("joint", frozenset({"prompt", "model"}), (View(0, True), View(1, True)))
STRONG = Phase(
    "strong", frozenset({"model"}), (View(2, strong=True), View(3, strong=True)), teacher_views=(View(0), View(1))
)


@dataclass(frozen=True)
class Always:
    """The same phase in all steps."""

    phase: Phase

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All phases."""
        return (self.phase,)

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

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All phases."""
        return self.first, self.second

    def restarts(self, batches: int) -> bool:
        """Return True if each epoch of so many batches begins with the first phase."""
        return self.restart and self.k <= batches

    def at(self, epoch: int, batch: int, epochs: int, batches: int) -> Phase:
        """Return the phase of a step."""
        turn = (batch + 1) // self.k if self.restarts(batches) else (epoch * batches + batch) // self.k
        return self.second if turn % 2 else self.first

    def check(self, epochs: int, batches: int) -> None:
        """Raise if one of the phases never comes."""
        if self.restarts(batches) and self.k == 1 == batches:
            raise Misuse(
                f"an epoch has a single batch, and with `sptnet.k=1` it is always the {self.second.name}'s turn. Count "
                "the turns through all epochs with `sptnet.counter=continuous`."
            )
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

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All phases."""
        return self.first, self.second

    def at(self, epoch: int, batch: int, epochs: int, batches: int) -> Phase:
        """Return the phase of a step."""
        return self.first if 2 * epoch < epochs else self.second


Turns = Always | TakeTurns | OneThenOther
