"""What several processes do with a verb, and who of them tells of a mistake."""

import os
import sys

import pytest

from sptnet.cli.processes import SHARED, take_place, tells
from sptnet.errors import Failure, Misuse
from sptnet.runtime.distributed import FailedOnRankZero


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Of one of two processes; what is set is taken back afterwards, standard output too."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.mark.parametrize("words", [["demo"], ["edit", "run", "rename"], ["--help"], []])
def test_the_first_does_a_verb_of_one_process_as_if_alone(words: list[str], place: pytest.MonkeyPatch) -> None:
    take_place(words)
    assert "RANK" not in os.environ and "WORLD_SIZE" not in os.environ
    place.setenv("RANK", "1")
    place.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as end:
        take_place(words)
    assert end.value.code in (None, 0)


@pytest.mark.parametrize("verb", sorted(SHARED))
def test_all_share_the_work_and_the_first_speaks(verb: str, place: pytest.MonkeyPatch) -> None:
    before = sys.stdout
    take_place([verb, "--out", "run"])
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"], sys.stdout) == ("0", "2", before)
    place.setenv("RANK", "1")
    take_place([verb, "--out", "run"])
    assert (os.environ["RANK"], sys.stdout.name) == ("1", os.devnull)
    sys.stdout.close()


def test_one_process_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    before = sys.stdout
    take_place(["train"])
    take_place(["demo"])
    assert sys.stdout is before
    assert tells(Misuse("a")) and tells(Failure("b"))


@pytest.mark.parametrize(("rank", "local_rank", "of_misuse"), [("0", "0", True), ("1", "1", False), ("2", "0", True)])
def test_a_mistake_is_told_by_one_process_of_a_machine_and_a_failure_by_whoever_fails(
    rank: str, local_rank: str, of_misuse: bool, place: pytest.MonkeyPatch
) -> None:
    place.setenv("WORLD_SIZE", "4")
    place.setenv("RANK", rank)
    place.setenv("LOCAL_RANK", local_rank)
    assert (tells(Misuse("all see it")), tells(Failure("one fails"))) == (of_misuse, True)
    assert not tells(FailedOnRankZero("the first says so"))
