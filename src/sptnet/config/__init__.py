"""All settings of a run with their defaults and limits, and the recipes that change them.

Must not know what the settings are used for.
"""

from sptnet.config.sections import ClusteringSettings, Section, TimedSettings
from sptnet.config.settings import (
    BackboneSettings,
    Config,
    DataSettings,
    DataSource,
    HeadSettings,
    KMeansSettings,
    PromptSettings,
    SimGcdSettings,
    SptNetSettings,
    StageSettings,
    ViewSettings,
)
from sptnet.config.systems import (
    CalibratedSettings,
    ContrastiveSettings,
    GpcSettings,
    PromptCalSettings,
    TrainedSettings,
)

__all__ = [
    "BackboneSettings",
    "CalibratedSettings",
    "ClusteringSettings",
    "Config",
    "ContrastiveSettings",
    "DataSettings",
    "DataSource",
    "GpcSettings",
    "HeadSettings",
    "KMeansSettings",
    "PromptCalSettings",
    "PromptSettings",
    "Section",
    "SimGcdSettings",
    "SptNetSettings",
    "StageSettings",
    "TimedSettings",
    "TrainedSettings",
    "ViewSettings",
]
