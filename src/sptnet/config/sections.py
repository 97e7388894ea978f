"""Building blocks of the settings: base class, limits of numbers, length of a stage, k-means."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0.0)]
Positive = Annotated[float, Field(gt=0.0)]


# TOML reads a class name such as 7 as a number.
Names = list[Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]]


class Section(BaseModel):
    """Base class of all sections: frozen, unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TimedSettings(Section):
    """Length of a stage."""

    epochs: Count
    minutes: Positive | None = Field(None, description="time limit; learning rates anneal over its last tenth")
    max_steps: Count | None = Field(None, description="steps after which the stage ends; a time limit sets it")
    anneal_steps: Annotated[int, Field(ge=0)] = Field(0, description="last steps, over which learning rates anneal")
    min_steps: Annotated[int, Field(ge=0)] = Field(0, description="least steps: epochs are added until they are enough")


class ClusteringSettings(Section):
    """K-means: number of starts and stopping rule."""

    n_init: Count
    max_iter: Count = 200
    tol: NonNegative = 1e-4
