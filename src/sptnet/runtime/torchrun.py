"""Rank of this process under torchrun, read from the environment without joining the process group."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from sptnet.errors import Misuse


@dataclass(frozen=True)
class Rank:
    """Rank of a process and size of its job."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    machine: int | None = None
    """Number of this machine; None if the job runs on one machine."""
    on_machine: int = 1
    """Number of processes on this machine."""

    @property
    def is_first(self) -> bool:
        """True on rank 0."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """Return this process's rows out of n; shares are contiguous, in rank order, and differ by at most one."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)


def rank_from_environment(environment: Mapping[str, str]) -> Rank:
    """Read the variables that torchrun sets; rank 0 of 1 without them."""
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


def available_cores() -> int:
    """Return the number of cores available to all processes of the job on this machine together."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_per_process(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of cores available to this process."""
    return max(1, available_cores() // rank_from_environment(environment).on_machine)


def is_first(environment: Mapping[str, str] = os.environ) -> bool:
    """True on rank 0 or without torchrun. An invalid rank is left to `rank_from_environment` to refuse."""
    return "WORLD_SIZE" not in environment or environment.get("RANK", "0") == "0"
