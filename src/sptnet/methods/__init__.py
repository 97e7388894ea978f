"""Methods: each is one small file whose `stages(config)` says what is trained, in order."""

from collections.abc import Callable

from sptnet.config import Config
from sptnet.errors import Misuse
from sptnet.methods import simgcd, sptnet
from sptnet.phases import StagePlan

METHODS: dict[str, Callable[[Config], list[StagePlan]]] = {
    "simgcd": simgcd.stages,
    "sptnet": sptnet.stages,
}


def stages_of(config: Config) -> list[StagePlan]:
    if config.method not in METHODS:
        raise Misuse(f"unknown method {config.method!r}. Use one of: {', '.join(METHODS)}.")
    return METHODS[config.method](config)
