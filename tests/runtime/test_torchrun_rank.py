"""Rank and cores of a process, read from the environment."""

import pytest
import torch

from sptnet.errors import Misuse
from sptnet.runtime.torchrun import Rank, cores_per_process, is_first, rank_from_environment


def test_the_rank_is_read_without_joining_the_process_group() -> None:
    assert (
        rank_from_environment({})
        == rank_from_environment({"RANK": "1"})
        == rank_from_environment({"WORLD_SIZE": "4"})
        == Rank()
    )
    assert rank_from_environment({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}) == Rank(3, 4, 1, on_machine=4)
    assert rank_from_environment({"RANK": "3", "WORLD_SIZE": "4"}) == Rank(3, 4, 0, on_machine=4)
    assert not torch.distributed.is_initialized()


def test_the_machine_has_a_number_if_there_are_several() -> None:
    one = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "GROUP_RANK": "1"}
    assert rank_from_environment({**one, "LOCAL_WORLD_SIZE": "2"}) == Rank(3, 4, 1, machine=1, on_machine=2)
    assert rank_from_environment({**one, "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "0"}).machine is None


@pytest.mark.parametrize(("rank", "size"), [("4", "4"), ("-1", "2"), ("x", "2"), ("0", "")])
def test_an_invalid_rank_is_refused(rank: str, size: str) -> None:
    with pytest.raises(Misuse) as error:
        rank_from_environment({"RANK": rank, "WORLD_SIZE": size})
    assert str(error.value) == (
        f"RANK={rank} and WORLD_SIZE={size} name no process of a job. Start it with torchrun, or remove both from the "
        "environment."
    )


def test_rank_zero_is_first() -> None:
    assert is_first({}) and is_first({"RANK": "0", "WORLD_SIZE": "2"})
    assert not is_first({"RANK": "1", "WORLD_SIZE": "2"})
    assert is_first({"RANK": "1"}), "RANK alone does not make a job"


@pytest.mark.parametrize(("available", "processes", "own"), [(16, 1, 16), (16, 4, 4), (16, 5, 3), (2, 4, 1)])
def test_processes_of_a_machine_share_its_cores(
    available: int, processes: int, own: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(available)), raising=False)
    assert cores_per_process({"RANK": "0", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": str(processes)}) == own


def test_without_affinity_all_cores_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert cores_per_process({}) == 6
