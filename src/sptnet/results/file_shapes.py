"""Shapes of the JSON files of a run: the values that sptnet reads from them, with their types.

Other keys are allowed, and so are missing ones that earlier versions did not write.
"""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from sptnet.runtime.readers import FileShape

MOST = 10**12


def _check_moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Number = Annotated[int, Field(ge=0, le=MOST)]
Real = Annotated[float, Field(ge=-1e30, le=1e30)]
Seconds = Annotated[float, Field(ge=0, le=MOST)]
Moment = Annotated[str, AfterValidator(_check_moment)]


class AccuracyShape(FileShape):
    """Scores of one set of images in run.json and metrics.jsonl."""

    all: Real | None
    old: Real | None
    new: Real | None


class UnreadableShape(FileShape):
    """An image that could not be read."""

    image: str
    reason: str


class DataShape(FileShape):
    """The images of a run."""

    name: str | None = None
    fingerprint: str | None = None
    fingerprint_version: int = 1
    labelled: Number = 0
    unlabelled: Number = 0
    holdout: Number = 0
    test: Number = 0
    unreadable: list[UnreadableShape] = Field(default_factory=list)


class ExpectedShape(FileShape):
    """Expected accuracy of a run."""

    value: Real
    low: Real
    high: Real
    categories: dict[str, Real] = Field(default_factory=dict)


class PartShape(FileShape):
    """Part of a run between two interruptions."""

    started: Moment | None = None
    seconds: Seconds = 0


class PlanShape(FileShape):
    """Plan of a discovery."""

    minutes: Annotated[float, Field(gt=0, le=MOST)] | None = None
    tries: bool = False


class VerdictShape(FileShape):
    """Verdict of the trial on hidden labels."""

    prefers_clustering: bool


Scores = dict[str, AccuracyShape]
"""Scores by set of images."""


class FactsShape(FileShape):
    """run.json."""

    status: str | None = None
    started: Moment | None = None
    finished: Moment | None = None
    parts: Annotated[list[PartShape], Field(min_length=1)] = Field(default_factory=lambda: [PartShape()])
    plan: PlanShape = PlanShape()
    trial: VerdictShape | None = None
    command: list[str] = Field(default_factory=list)
    seed: int | None = None
    device: str = ""
    precision: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    data: DataShape = DataShape()
    scores: Scores = Field(default_factory=dict)
    seconds: Seconds = 0
    expected_accuracy: ExpectedShape | None = None
    expected_accuracy_reason: str | None = None
    selected_epoch: Number | None = None


class MetricsShape(FileShape):
    """A line of metrics.jsonl."""

    stage: str
    stage_number: Number = 0
    epoch: Number
    losses: dict[str, dict[str, Real | None]]
    learning_rates: dict[str, Real] = Field(default_factory=dict)
    images_per_second: Real | None = None
    seconds: Seconds = 0
    scores: Scores = Field(default_factory=dict)
    old_holdout: Real | None = None


class TrialShape(FileShape):
    """One number of categories that was tried."""

    n_categories: Number
    score: Real | None
    labelled_accuracy: Real | None
    silhouette: Real | None


class IntervalShape(FileShape):
    """The plausible numbers of categories in estimate.json."""

    interval: Annotated[list[Number], Field(min_length=2, max_length=2)]


class EstimateShape(IntervalShape):
    """estimate.json."""

    n_categories: Number
    curve: list[TrialShape]
    method: str
