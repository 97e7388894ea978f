"""Whole runs of the systems that SPTNet is compared with: results, resuming, token bank, starts, counts."""

import json

import numpy as np
import pytest
import torch

import sptnet
from helpers.systems import SETTINGS, SYSTEMS
from sptnet.data.load import SplitImages
from sptnet.data.split import make_split
from sptnet.errors import Misuse
from sptnet.head import CentroidHead, LinearHead, PrototypeHead
from sptnet.methods import METHODS
from sptnet.model.model_folder import load_model
from sptnet.results.run_folder import RunFolder
from sptnet.results.track import scalars_of
from sptnet.training.checkpoint import best_checkpoint, load_checkpoint
from sptnet.training.experiment import Experiment
from sptnet.training.stage import Stage
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


@pytest.mark.parametrize("system", ["gcd", *SYSTEMS])
def test_the_selected_epoch_is_the_one_that_counts(
    system, tiny_config, held_out_digits, run_it, tmp_path, monkeypatch, assert_same_result
):
    """Mean teachers, clusterings, and what a stage hands on: all are those of the best epoch."""
    sections = {"gcd": SETTINGS["mugcd"]["gcd"]} if system == "gcd" else SETTINGS[system]
    config = tiny_config.changed(prompt={"tokens": 3}, **sections).model_copy(update={"method": system})
    config = config.changed(training={"select": "best-old-holdout", "evaluate_every": 1})
    inner = Stage._line

    def first_is_best(self, report, last):
        return inner(self, report, last) | {"old_holdout": 1 / report.epoch}

    monkeypatch.setattr(Stage, "_line", first_is_best)
    folder = run_it(tmp_path / "run", config, held_out_digits)
    facts, lines = RunFolder(folder).facts(), RunFolder(folder).metrics()
    last_stage = len(sections) - 1
    first, final = (line["scores"]["unlabelled"] for line in lines if line["stage_number"] == last_stage)
    assert facts["selected_epoch"] == 1
    assert facts["scores"]["unlabelled"] == first
    if system != "rankstats":  # whose two epochs happen to score alike
        assert first != final, "else this test could not tell them apart"
    best = [load_checkpoint(best_checkpoint(folder / "checkpoints", stage)) for stage in range(last_stage + 1)]
    assert [(checkpoint.stage, checkpoint.epoch) for checkpoint in best] == [(n, 1) for n in range(last_stage + 1)]
    if system == "mugcd":
        centroids = load_model(folder / "model-gcd")[0].head.centroids
        assert len(centroids.unique(dim=0)) == 10, "the first stage is sorted by GCD's clustering"
    again = run_it(tmp_path / "again", config, held_out_digits)
    run_it(again, None, held_out_digits, resume=True)
    assert_same_result(folder, again)


def test_the_second_stage_of_promptcal_goes_on_with_the_projection_of_the_selected_epoch(
    tiny_config, held_out_digits, run_it, tmp_path, monkeypatch
):
    config = config_of("promptcal", tiny_config).changed(training={"select": "best-old-holdout"})
    inner, began = StageTrainer.__init__, []

    def note(self, model, plan, *words, **more):
        began.append({name: value.detach().clone() for name, value in model.head.mlp.state_dict().items()})
        inner(self, model, plan, *words, **more)

    monkeypatch.setattr(StageTrainer, "__init__", note)
    folder = run_it(tmp_path / "run", config, held_out_digits)
    kept = load_checkpoint(best_checkpoint(folder / "checkpoints", 0)).tensors
    assert len(began) == 2
    assert all(torch.equal(value, kept[f"model.head.mlp.{name}"]) for name, value in began[1].items())
    assert not torch.equal(began[0]["0.weight"], began[1]["0.weight"])


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


def test_a_start_that_has_seen_hidden_labels_is_refused(tiny_config, few_digits, run_it, tmp_path):
    """Labels of classes that are new here, or of images that are scored here; and runs of other methods."""
    image_set = few_digits.image_set
    gcd = config_of("mugcd", tiny_config).model_copy(update={"method": "gcd"}).changed(gcd={"epochs": 1})
    mugcd = config_of("mugcd", tiny_config)

    def begin(start, data=few_digits, config=mugcd):
        named = {config.method: {"start_from": str(start)}}
        return Experiment(config.changed(**named), RunFolder(tmp_path / "new"), data, tell=lambda line: None)

    more = run_it(tmp_path / "more", gcd, SplitImages(image_set, make_split(image_set, 7), []))
    with pytest.raises(Misuse, match=r"labels of 5, 6, which are to be discovered here\. .*`data\.known_classes`"):
        begin(more)
    other = SplitImages(image_set, make_split(image_set, 5, seed=7), [])
    start = run_it(tmp_path / "gcd", gcd, few_digits)
    begin(start)
    with pytest.raises(Misuse, match=r"those of \d+ images such as digit-\d+\. .*`data\.split_seed`"):
        begin(start, other)
    with pytest.raises(Misuse, match=r"is a run of gcd, but sptnet builds on one of simgcd or sptnet"):
        begin(start, config=tiny_config)
    simgcd = run_it(tmp_path / "simgcd", tiny_config.model_copy(update={"method": "simgcd"}), few_digits)
    with pytest.raises(Misuse, match="is a run of simgcd, but mugcd builds on one of gcd"):
        begin(simgcd)
    begin(simgcd / "model")
    with pytest.raises(Misuse, match=r"those of \d+ images"):
        begin(simgcd, other, tiny_config)


@pytest.mark.parametrize("asked", [{"name": "vit_small_patch16_224"}, {"image_size": 64}])
def test_a_start_with_another_backbone_is_refused(asked, tiny_config, few_digits, run_it, tmp_path):
    start = run_it(tmp_path / "start", tiny_config.model_copy(update={"method": "simgcd"}), few_digits)
    config = tiny_config.changed(sptnet={"start_from": str(start)})
    run_it(tmp_path / "same", config, few_digits)
    with pytest.raises(Misuse, match=r"has the backbone .* px, which its training goes on with, and not "):
        Experiment(config.changed(backbone=asked), RunFolder(tmp_path / "new"), few_digits, tell=lambda line: None)


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


TOLD = {"orca": "margin", "dccl": "conceptions", "cipr": "clusters", "gpc": "count"}


@pytest.mark.parametrize("system", ["uno", *TOLD])
def test_the_log_has_what_a_system_found_before_the_epoch(system, tiny_config, few_digits, run_it, tmp_path):
    said = []
    config = config_of(system, tiny_config)
    folder = RunFolder(tmp_path / "run")
    Experiment(config, folder, few_digits, tell=lambda line: None, tell_epoch=said.append).run()
    lines = folder.metrics()
    assert len(said) == len(lines) == 2
    if system == "uno":
        assert all(line["memory"] == {} for line in lines)
        return
    name = TOLD[system]
    for line, words in zip(lines, said, strict=True):
        assert list(line["memory"]) == [name]
        value = line["memory"][name]
        assert 0 < value < len(few_digits.image_set)
        assert f", {name} {value:.4g}  " in words
        assert scalars_of(line)[f"memory/{system}/{name}"] == value
