"""Commands in several processes: which ranks run, print and report errors."""

import os
import sys

import pytest

from sptnet.cli.processes import DISTRIBUTED, SECONDS_TO_PRINT, let_first_print, prints_error, set_up_rank
from sptnet.errors import Failure, Misuse
from sptnet.runtime.distributed import FailedOnRankZero


@pytest.fixture
def rank_0(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Environment of rank 0 of two; restored afterwards, standard output too."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.mark.parametrize("words", [["demo"], ["edit", "run", "rename"], ["--help"], []])
def test_rank_0_runs_other_commands_as_a_single_process(words: list[str], rank_0: pytest.MonkeyPatch) -> None:
    set_up_rank(words)
    assert "RANK" not in os.environ and "WORLD_SIZE" not in os.environ
    rank_0.setenv("RANK", "1")
    rank_0.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as end:
        set_up_rank(words)
    assert end.value.code in (None, 0)


@pytest.mark.parametrize("verb", sorted(DISTRIBUTED))
def test_all_ranks_run_distributed_commands_and_rank_0_prints(verb: str, rank_0: pytest.MonkeyPatch) -> None:
    before = sys.stdout
    set_up_rank([verb, "--out", "run"])
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"], sys.stdout) == ("0", "2", before)
    rank_0.setenv("RANK", "1")
    set_up_rank([verb, "--out", "run"])
    assert (os.environ["RANK"], sys.stdout.name) == ("1", os.devnull)
    sys.stdout.close()


def test_a_single_process_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    before = sys.stdout
    set_up_rank(["train"])
    set_up_rank(["demo"])
    assert sys.stdout is before
    assert prints_error(Misuse("a")) and prints_error(Failure("b"))


@pytest.mark.parametrize(("rank", "local_rank", "of_misuse"), [("0", "0", True), ("1", "1", False), ("2", "0", True)])
def test_misuse_is_printed_once_per_machine_and_a_failure_by_the_rank_that_fails(
    rank: str, local_rank: str, of_misuse: bool, rank_0: pytest.MonkeyPatch
) -> None:
    rank_0.setenv("WORLD_SIZE", "4")
    rank_0.setenv("RANK", rank)
    rank_0.setenv("LOCAL_RANK", local_rank)
    assert (prints_error(Misuse("raised by all")), prints_error(Failure("raised by one"))) == (of_misuse, True)
    assert not prints_error(FailedOnRankZero("printed by rank 0"))


def test_a_rank_that_prints_nothing_lets_the_other_one_print(rank_0: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    rank_0.setattr("sptnet.cli.processes.time.sleep", waited.append)
    rank_0.setenv("WORLD_SIZE", "2")
    rank_0.setenv("RANK", "1")
    rank_0.setenv("LOCAL_RANK", "1")
    let_first_print(Misuse("raised by all"))
    assert waited == [SECONDS_TO_PRINT]
    let_first_print(Failure("printed by this rank"))
    let_first_print(FailedOnRankZero("printed already"))
    rank_0.setenv("RANK", "0")
    rank_0.setenv("LOCAL_RANK", "0")
    let_first_print(Misuse("printed by this rank"))
    assert len(waited) == 1
