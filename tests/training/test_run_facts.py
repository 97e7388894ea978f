"""Times in run.json: when a run began and ended, and how long its parts took."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from conftest import quiet
from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.results.run_folder import RunFolder
from sptnet.training import run_facts
from sptnet.training.experiment import Experiment
from sptnet.training.run_facts import finished_facts, now, parts_before
from sptnet.training.stage import Stage


def span(facts: dict[str, Any]) -> float:
    started, finished = (datetime.fromisoformat(facts[key]) for key in ("started", "finished"))
    return (finished - started).total_seconds()


def test_a_moment_may_lie_in_the_past() -> None:
    before = datetime.fromisoformat(now(3600.0))
    assert (datetime.fromisoformat(now()) - before).total_seconds() == pytest.approx(3600, abs=2)


def test_a_run_begins_when_it_began_to_read(
    tmp_path: Path, tiny_config: Config, few_digits: SplitImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two minutes of reading and counting come before the first file is written."""
    config = tiny_config.model_copy(update={"method": "kmeans"})
    experiment = Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=quiet)
    experiment.began -= 120
    experiment.run()
    facts = RunFolder(tmp_path / "run").facts()
    assert 120 <= facts["seconds"] < 240
    assert span(facts) == pytest.approx(facts["seconds"], abs=2)


def test_a_stopped_part_counts_with_its_epochs(
    tmp_path: Path,
    tiny_config: Config,
    few_digits: SplitImages,
    monkeypatch: pytest.MonkeyPatch,
    run_it: Callable[..., Path],
) -> None:
    run, config = RunFolder(tmp_path / "run"), tiny_config.model_copy(update={"method": "simgcd"})
    keep = Stage._keep

    def killed(self: Stage, line: dict[str, Any], checkpoint: Any) -> None:
        keep(self, line | {"seconds": 100.0}, checkpoint)
        if line["epoch"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "_keep", killed)
        with pytest.raises(KeyboardInterrupt):
            run_it(run.path, config, few_digits)
    stopped = run.facts()
    assert (stopped["status"], "seconds" in stopped) == ("stopped", False)
    run_it(run.path, None, few_digits, resume=True)
    facts = run.facts()
    first, second = facts["parts"]
    assert (first["seconds"], first["started"]) == (200.0, stopped["started"])
    assert facts["started"] == stopped["started"]
    assert facts["seconds"] == pytest.approx(200 + second["seconds"])


def test_runs_of_earlier_versions_have_one_part() -> None:
    lines = [{"seconds": 5.0}, {"seconds": 6.0}]
    assert parts_before({}, ()) == []
    assert parts_before({"started": "then", "seconds": 9.0}, lines) == [{"started": "then", "seconds": 9.0}]
    assert parts_before({"started": "then"}, lines) == [{"started": "then", "seconds": 11.0}]
    twice = {"started": "then", "parts": [{"started": "then", "seconds": 7.0}, {"started": "later"}]}
    assert parts_before(twice, lines)[1] == {"started": "later", "seconds": 4.0}
    assert "seconds" not in twice["parts"][1], "the facts of the run stay as they are"


def test_the_end_sums_up_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_facts, "now", lambda ago=0.0: "now")
    facts = {"parts": [{"started": "a", "seconds": 3.0}, {"started": "b"}]}
    assert finished_facts(facts, 4.0) == {
        "finished": "now",
        "parts": [{"started": "a", "seconds": 3.0}, {"started": "b", "seconds": 4.0}],
        "seconds": 7.0,
    }
    assert json.dumps(facts) == '{"parts": [{"started": "a", "seconds": 3.0}, {"started": "b"}]}'
