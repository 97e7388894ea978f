"""`n_categories = "auto"`: counted before training, written to the run, and kept from then on."""

import json

import pytest

from sptnet.config.recipes import load_recipe
from sptnet.errors import Misuse
from sptnet.model.model_folder import load_model
from sptnet.results.run_folder import RunFolder
from sptnet.training.experiment import Experiment


def auto(config, method="simgcd"):
    return config.model_copy(update={"method": method, "n_categories": "auto"})


@pytest.mark.parametrize("method", ["kmeans", "simgcd"])
def test_a_run_writes_what_it_became_and_why(method, tiny_config, few_digits, run_it, tmp_path):
    folder = RunFolder(run_it(tmp_path / "run", auto(tiny_config, method), few_digits))
    estimate = json.loads(folder.estimate_file.read_text())
    n = estimate["n_categories"]
    assert folder.config().n_categories == n
    assert 5 <= estimate["interval"][0] <= n <= estimate["interval"][1]
    counts = [trial["n_categories"] for trial in estimate["curve"]]
    assert counts == sorted(set(counts))
    assert {"labelled_accuracy", "silhouette", "inertia", "score"} <= estimate["curve"][0].keys()
    assert len(load_model(folder.path)[1].categories) == n


def test_it_is_said_before_training(tiny_config, few_digits, tmp_path):
    told = []
    experiment = Experiment(auto(tiny_config), RunFolder(tmp_path / "run"), few_digits, tell=told.append)
    low, high = experiment.state.estimate.interval
    assert told == [
        f"there seem to be {experiment.state.estimate.n_categories} categories ({low} to {high} are plausible)"
    ]


def test_the_same_seed_counts_the_same(tiny_config, few_digits, tmp_path):
    def count(seed):
        config = auto(tiny_config).model_copy(update={"seed": seed})
        return Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=lambda _: None).state.estimate

    assert count(3) == count(3)


def test_a_resumed_run_does_not_count_again(tiny_config, few_digits, run_it, tmp_path, monkeypatch):
    folder = run_it(tmp_path / "run", auto(tiny_config), few_digits)
    monkeypatch.setattr("sptnet.inference.count_categories.estimate_n_categories", None)
    run_it(folder, data=few_digits, resume=True)


def test_sptnet_takes_the_number_of_the_run_it_starts_from(tiny_config, few_digits, run_it, tmp_path, monkeypatch):
    start = run_it(tmp_path / "simgcd", tiny_config.model_copy(update={"method": "simgcd"}), few_digits)
    monkeypatch.setattr("sptnet.inference.count_categories.estimate_n_categories", None)
    config = auto(tiny_config.changed(sptnet={"start_from": str(start)}), "sptnet")
    experiment = Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=lambda _: None)
    assert experiment.state.config.n_categories == 10


def test_a_factor_does_not_go_with_it():
    with pytest.raises(Misuse, match="n_categories and category_factor exclude each other; give one of them"):
        load_recipe("simgcd", ["n_categories=auto", "category_factor=2.0"])


def test_it_can_be_set_in_every_recipe():
    assert load_recipe("cub/sptnet", ["n_categories=auto"]).n_categories == "auto"
    with pytest.raises(Misuse, match="n_categories"):
        load_recipe("cub/sptnet", ["n_categories=automatic"])
