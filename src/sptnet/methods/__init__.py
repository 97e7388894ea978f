"""One file per method: what it trains, in which phases and stages, with which head and losses.

A method is a value; nothing here reads images, runs a step or writes a file.
"""

from sptnet.config import Config
from sptnet.errors import Misuse
from sptnet.methods import gcd, kmeans, simgcd, sptnet
from sptnet.methods.method import Method
from sptnet.methods.phases import StagePlan

METHODS: dict[str, Method] = {
    "kmeans": kmeans.PLAIN,
    "sskmeans": kmeans.SEMI_SUPERVISED,
    "gcd": gcd.METHOD,
    "simgcd": simgcd.METHOD,
    "sptnet": sptnet.METHOD,
}

NAMES = {
    "kmeans": "k-means",
    "sskmeans": "semi-supervised k-means",
    "gcd": "GCD",
    "simgcd": "SimGCD",
    "sptnet": "SPTNet",
}
"""As they are called in a sentence."""


def method_of(config: Config) -> Method:
    if config.method not in METHODS:
        raise Misuse(f"unknown method {config.method!r}. Use one of: {', '.join(METHODS)}.")
    return METHODS[config.method]


def stages_of(config: Config) -> list[StagePlan]:
    return method_of(config).stages(config)
