"""Whole runs of the systems that SPTNet is compared with: results, resuming, token bank, starts, counts."""

import json

import numpy as np
import pytest

import sptnet
from helpers.systems import SETTINGS, SYSTEMS
from sptnet.errors import Misuse
from sptnet.head import CentroidHead, LinearHead, PrototypeHead
from sptnet.methods import METHODS
from sptnet.model.model_folder import load_model
from sptnet.results.run_folder import RunFolder
from sptnet.training.experiment import Experiment
from sptnet.training.trainer import StageTrainer

HEADS = {"rankstats": LinearHead, "uno": PrototypeHead, "orca": PrototypeHead, "mugcd": PrototypeHead}


def config_of(system, tiny_config):
    config = tiny_config.changed(prompt={"tokens": 3}, **SETTINGS[system])
    return config.model_copy(update={"method": system})


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_interrupted_run_ends_like_one_that_was_left_alone(
    system, tiny_config, few_digits, run_it, tmp_path, monkeypatch, assert_same_result
):
    config = config_of(system, tiny_config)
    whole = run_it(tmp_path / "whole", config, few_digits)
    last_stage = len(SETTINGS[system]) - 1
    inner = StageTrainer.train_step

    def stopped(self, batch, phase, number):
        if (self.stage, self.epoch, number) == (last_stage, 1, 2):
            raise KeyboardInterrupt
        return inner(self, batch, phase, number)

    with monkeypatch.context() as patch:
        patch.setattr(StageTrainer, "train_step", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_it(tmp_path / "stopped", config, few_digits)
    run_it(tmp_path / "stopped", None, few_digits, resume=True)
    assert_same_result(whole, tmp_path / "stopped")
    model, card = load_model(whole)
    assert isinstance(model.head, HEADS.get(system, CentroidHead))
    assert len(card.categories) == 10
    facts = json.loads((whole / "run.json").read_text())
    assert facts["status"] == "finished" and 0 <= facts["scores"]["unlabelled"]["all"] <= 1
    predicted = sptnet.load(whole).predict([few_digits.image_set.sources[i] for i in range(4)])
    assert len(predicted) == 4


@pytest.mark.parametrize("system", [s for s in SYSTEMS if s != "promptcal"])
def test_a_token_bank_serves_all_that_train_on_raw_views(system, tiny_config, few_digits, run_it, tmp_path):
    bank = {"bank": 3, "bank_folder": str(tmp_path / "tokens")}
    config = config_of(system, tiny_config).changed(views=bank)
    folder = run_it(tmp_path / "run", config, few_digits)
    assert RunFolder(folder).facts()["status"] == "finished"
    assert (tmp_path / "tokens" / "strong").is_dir() == (system == "mugcd")
    assert np.fromfile(tmp_path / "tokens" / "sums.bin", dtype=np.uint64).any()


def test_cipr_assigns_training_images_by_its_clustering(tiny_config, few_digits, tmp_path):
    config = config_of("cipr", tiny_config)
    experiment = Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=lambda line: None)
    experiment.run()
    state, split = experiment.state, few_digits.split
    assigned = state.assigned[split.training]
    assert (assigned >= 0).all()
    assert (experiment.outputs_of_all.categories[split.training] == assigned).all()
    nearest = state.model.head.classify(experiment.outputs_of_all.features).argmax(1).numpy()
    assert (nearest[split.training] != assigned).any(), "else this test could not tell them apart"


def test_mugcd_starts_from_a_gcd_run(tiny_config, few_digits, run_it, tmp_path):
    gcd = config_of("mugcd", tiny_config).model_copy(update={"method": "gcd"})
    start = run_it(tmp_path / "gcd", gcd, few_digits)
    config = config_of("mugcd", tiny_config).changed(mugcd={"start_from": str(start)})
    folder = run_it(tmp_path / "mugcd", config, few_digits)
    stages = {line["stage"] for line in RunFolder(folder).metrics()}
    assert stages == {"mugcd"}
    before, after = (load_model(path)[0].backbone.vit for path in (start, folder))
    assert (before.blocks[0].attn.qkv.weight == after.blocks[0].attn.qkv.weight).all()
    assert (before.blocks[-1].attn.qkv.weight != after.blocks[-1].attn.qkv.weight).any()


@pytest.mark.parametrize("system", [name for name, method in METHODS.items() if method.count is not None])
def test_a_system_with_a_rule_of_its_own_counts_by_it(system, tiny_config, few_digits, tmp_path):
    config = config_of(system, tiny_config).model_copy(update={"n_categories": "auto"})
    told = []
    experiment = Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=told.append)
    assert any(line.startswith(f"{system} finds ") for line in told)
    assert len(experiment.state.names) >= 5
    assert experiment.state.estimate is None


def test_no_system_takes_prototypes_from_clusters(tiny_config, few_digits, tmp_path):
    config = config_of("orca", tiny_config).changed(head={"start": "clusters"})
    with pytest.raises(Misuse, match=r"`head\.start=clusters`"):
        Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=lambda line: None)
