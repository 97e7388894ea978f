"""Building blocks of the settings: base class, limits of numbers, length of a stage, k-means."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MOST_EPOCHS = 1_000_000
MOST_MINUTES = 1_000_000
MOST_PIXELS = 4096
LARGEST = 1e38
"""Largest real number of a setting: weights are float32, which hold no larger ones."""

# Upper limits are far above any sane use: they turn a slip into a message instead of hours or gigabytes.
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1, le=MOST_EPOCHS)]
Whole = Annotated[int, Field(ge=0, le=MOST_EPOCHS)]
Steps = Annotated[int, Field(ge=0, le=10**9)]
Starts = Annotated[int, Field(ge=1, le=10_000)]
Width = Annotated[int, Field(ge=1, le=16_384)]
Output = Annotated[int, Field(ge=1, le=2**18)]
ImageSize = Annotated[int, Field(ge=1, le=MOST_PIXELS)]
NonNegative = Annotated[float, Field(ge=0.0, le=LARGEST)]
Positive = Annotated[float, Field(gt=0.0, le=LARGEST)]
Minutes = Annotated[float, Field(gt=0.0, le=MOST_MINUTES)]


# TOML reads a class name such as 7 as a number.
Names = list[Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]]


class Section(BaseModel):
    """Base class of all sections: frozen, unknown keys are refused, numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TimedSettings(Section):
    """Length of a stage."""

    epochs: Count
    minutes: Minutes | None = Field(None, description="time limit; learning rates anneal over its last tenth")
    max_steps: Annotated[Steps, Field(ge=1)] | None = Field(
        None, description="steps after which the stage ends; a time limit sets it"
    )
    anneal_steps: Steps = Field(0, description="last steps, over which learning rates anneal")
    min_steps: Whole = Field(0, description="least steps: epochs are added until they are enough")


class ClusteringSettings(Section):
    """K-means: number of starts and stopping rule."""

    n_init: Starts
    max_iter: Count = 200
    tol: NonNegative = 1e-4
