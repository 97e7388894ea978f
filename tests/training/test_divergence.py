"""A diverged training fails: no model, no prediction and no checkpoint is written from values that are not finite."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conftest import Call
from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.errors import Failure
from sptnet.head import CentroidHead
from sptnet.results.run_folder import RunFolder
from sptnet.training.experiment import Experiment
from sptnet.training.run_state import RunState
from sptnet.training.trainer import StageTrainer

SMALL = {"output": 32, "n_init": 1}
CASES = {
    "simgcd": ("simgcd", "simgcd", {"learning_rate": 1e30}),
    "sptnet, first stage": ("sptnet", "simgcd", {"learning_rate": 1e30}),
    "sptnet, second stage": ("sptnet", "sptnet", {"learning_rate": 1e30}),
    "prompts": ("sptnet", "sptnet", {"prompt_learning_rate": 1e38, "strategy": "prompts-only", "prompt_warm_up": 0}),
    "gcd": ("gcd", "gcd", {"learning_rate": 1e30}),
    "rankstats": ("rankstats", "rankstats", {"learning_rate": 1e30}),
    "uno": ("uno", "uno", {"learning_rate": 1e30}),
    "orca": ("orca", "orca", {"learning_rate": 1e30}),
    "dccl": ("dccl", "dccl", {"learning_rate": 1e30}),
    "promptcal": ("promptcal", "promptcal_calibrated", {"learning_rate": 1e30}),
    "cipr": ("cipr", "cipr", {"learning_rate": 1e30}),
    "gpc": ("gpc", "gpc", {"learning_rate": 1e30}),
    "mugcd, its teacher": ("mugcd", "mugcd", {"learning_rate": 1e38, "base_decay": 0.01}),
}


def one_step(config: Config, images: SplitImages, method: str, stage: str, changes: dict[str, object]) -> Config:
    """Return settings in which every stage is one epoch of one batch."""
    wide = [name for name in Config.stage_names() if "output" in type(getattr(config, name)).model_fields]
    sections: dict[str, dict[str, object]] = {name: {"epochs": 1} for name in Config.stage_names()}
    for name in wide:
        own = type(getattr(config, name)).model_fields
        sections[name] |= {key: value for key, value in SMALL.items() if key in own}
    sections["sptnet"]["strategy"] = "fine-tune"  # turns need more than one step
    sections[stage] |= changes
    batch = len(images.split.training)
    return config.changed(**sections, training={"batch_size": batch}).model_copy(update={"method": method})


def run(config: Config, folder: Path, images: SplitImages) -> RunFolder:
    made = RunFolder(folder)
    Experiment(config, made, images, tell=lambda message: None).run()
    return made


@pytest.mark.parametrize("case", CASES)
def test_a_diverged_run_fails(case: str, tiny_config: Config, few_digits: SplitImages, tmp_path: Path) -> None:
    method, stage, changes = CASES[case]
    config = one_step(tiny_config, few_digits, method, stage, changes)
    with pytest.raises(Failure, match=r"not finite.* The last good checkpoint is kept\. Lower the learning rate"):
        run(config, tmp_path / "run", few_digits)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] != "finished"
    for name in ("model", "predictions.csv", "features.safetensors"):
        assert not (tmp_path / "run" / name).exists(), name
    number = [plan.name for plan in Experiment(config, RunFolder(tmp_path / "x"), few_digits).state.stages].index(stage)
    assert list((tmp_path / "run" / "checkpoints").glob(f"stage{number}-*")) == [], "nothing to resume a ruin from"


def test_the_same_steps_with_a_usual_rate_finish(tiny_config: Config, few_digits: SplitImages, tmp_path: Path) -> None:
    config = one_step(tiny_config, few_digits, "sptnet", "sptnet", {})
    assert run(config, tmp_path / "run", few_digits).facts()["status"] == "finished"


def test_the_command_ends_with_one_line(train_words: list[str], tmp_path: Path, call: Call) -> None:
    changes = ["method=simgcd", "simgcd.learning_rate=1e30", "simgcd.epochs=1", "training.batch_size=60"]
    settings = [word for change in changes for word in ("--set", change)]
    answer = call(*train_words, "--out", tmp_path / "run", *settings)
    assert answer.code == 1
    last = answer.err.splitlines()[-1]
    assert last.startswith("error: the features of the images are not finite: the training has diverged")
    assert "finished" not in answer.out + answer.err
    assert RunFolder(tmp_path / "run").facts()["status"] != "finished"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_weight_is_enough(
    value: float, tiny_config: Config, few_digits: SplitImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The projection is used in training only, so the outputs of the images do not show it."""
    inner: Callable[..., object] = StageTrainer.run_epoch

    def run_epoch(self: StageTrainer, *arguments: object) -> object:
        report = inner(self, *arguments)
        with torch.no_grad():
            self.model.head.mlp[0].weight[0, 0] = value  # type: ignore[union-attr,index]
        return report

    monkeypatch.setattr(StageTrainer, "run_epoch", run_epoch)
    config = one_step(tiny_config, few_digits, "simgcd", "simgcd", {})
    with pytest.raises(Failure, match=r"^the weights head\.mlp\.0\.weight are not finite: the training has diverged"):
        run(config, tmp_path / "run", few_digits)


def test_centroids_that_are_not_finite_are_not_saved(
    tiny_config: Config, few_digits: SplitImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = RunState.cluster

    def cluster(self: RunState) -> None:
        inner(self)
        assert isinstance(self.model.head, CentroidHead)
        self.model.head.centroids[0, 0] = torch.nan

    monkeypatch.setattr(RunState, "cluster", cluster)
    config = one_step(tiny_config, few_digits, "sskmeans", "simgcd", {})
    with pytest.raises(Failure, match=r"^the weights head\.centroids are not finite"):
        run(config, tmp_path / "run", few_digits)
    assert not (tmp_path / "run" / "model").exists()
