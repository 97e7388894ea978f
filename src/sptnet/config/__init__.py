"""All settings of a run with their defaults and limits, and the recipes that change them.

Must not know what the settings are used for.
"""

from sptnet.config.settings import (
    BackboneSettings,
    ClusteringSettings,
    Config,
    DataSettings,
    DataSource,
    HeadSettings,
    KMeansSettings,
    PromptSettings,
    SimGcdSettings,
    SptNetSettings,
    StageSettings,
    TimedSettings,
    ViewSettings,
)

__all__ = [
    "BackboneSettings",
    "ClusteringSettings",
    "Config",
    "DataSettings",
    "DataSource",
    "HeadSettings",
    "KMeansSettings",
    "PromptSettings",
    "SimGcdSettings",
    "SptNetSettings",
    "StageSettings",
    "TimedSettings",
    "ViewSettings",
]
