"""A process's place among those that torchrun started: it reads the environment and joins nobody."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from sptnet.errors import Misuse


@dataclass(frozen=True)
class Rank:
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    machine: int | None = None
    """Which of several machines this is; nothing where there is one."""
    on_machine: int = 1
    """How many of the processes run on this machine."""

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, n: int) -> slice:
        """This process's rows of n: shares follow each other in order and differ by one at most."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)


def rank_from_environment(environment: Mapping[str, str]) -> Rank:
    rank, size = environment.get("RANK"), environment.get("WORLD_SIZE")
    if rank is None or size is None:
        return Rank()
    if not rank.isdecimal() or not size.isdecimal() or int(rank) >= int(size):
        raise Misuse(
            f"RANK={rank} and WORLD_SIZE={size} name no process of a job. Start it with torchrun, or remove both from "
            "the environment."
        )
    local_rank, on_machine, machine = (
        int(environment.get(name, default))
        for name, default in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", size), ("GROUP_RANK", "0"))
    )
    return Rank(int(rank), int(size), local_rank, machine if on_machine < int(size) else None, on_machine)


def lent_cores() -> int:
    """The cores that the machine lends to all processes of the job together."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_cores(environment: Mapping[str, str] = os.environ) -> int:
    """This process's part of them."""
    return max(1, lent_cores() // rank_from_environment(environment).on_machine)


def is_first(environment: Mapping[str, str] = os.environ) -> bool:
    """Of several processes the first one speaks. A place that cannot be is for `rank_from_environment` to refuse."""
    return "WORLD_SIZE" not in environment or environment.get("RANK", "0") == "0"
