"""The methods, one file per method: stages, phases, head and losses as plain values.

This folder must not read images, run training steps or write files.
"""

from sptnet.config import Config
from sptnet.errors import Misuse
from sptnet.methods import cipr, dccl, gcd, gpc, kmeans, mugcd, orca, promptcal, rankstats, simgcd, sptnet, uno
from sptnet.methods.method import Method
from sptnet.methods.stage_plan import StagePlan

METHODS: dict[str, Method] = {
    "kmeans": kmeans.PLAIN,
    "sskmeans": kmeans.SEMI_SUPERVISED,
    "gcd": gcd.METHOD,
    "simgcd": simgcd.METHOD,
    "sptnet": sptnet.METHOD,
    "rankstats": rankstats.METHOD,
    "uno": uno.METHOD,
    "orca": orca.METHOD,
    "dccl": dccl.METHOD,
    "promptcal": promptcal.METHOD,
    "cipr": cipr.METHOD,
    "gpc": gpc.METHOD,
    "mugcd": mugcd.METHOD,
}

NAMES = {
    "kmeans": "k-means",
    "sskmeans": "semi-supervised k-means",
    "gcd": "GCD",
    "simgcd": "SimGCD",
    "sptnet": "SPTNet",
    "rankstats": "RankStats+",
    "uno": "UNO+",
    "orca": "ORCA",
    "dccl": "DCCL",
    "promptcal": "PromptCAL",
    "promptcal_calibrated": "calibrated PromptCAL",
    "cipr": "CiPR",
    "gpc": "GPC",
    "mugcd": "muGCD",
}
"""Names of the methods and of their stages in sentences."""


def method_of(config: Config) -> Method:
    """Return the method that the settings name."""
    if config.method not in METHODS:
        raise Misuse(f"unknown method {config.method!r}. Use one of: {', '.join(METHODS)}.")
    return METHODS[config.method]


def stages_of(config: Config) -> list[StagePlan]:
    """Return the training stages of the method that the settings name."""
    return method_of(config).stages(config)
