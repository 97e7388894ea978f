"""Preparing a run: prototypes from clusters, and enough steps for small image sets."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from conftest import quiet, random_backbone
from helpers.rounding import SINGLE
from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.data.load import SplitImages
from sptnet.data.split import make_split
from sptnet.errors import Misuse
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.seeds import seed_of
from sptnet.training.bank_setup import with_bank
from sptnet.training.prepare import check, prepare, with_enough_epochs


@pytest.fixture
def from_clusters(tiny_config):
    return tiny_config.changed(head={"start": "clusters"}).model_copy(update={"method": "simgcd"})


def test_prototypes_start_as_centroids_of_frozen_features(from_clusters, few_digits, tmp_path):
    state = prepare(from_clusters, RunFolder(tmp_path / "run"), few_digits, tell=quiet)
    split = few_digits.split
    features = F.normalize(state.outputs(split.training).features, dim=1).numpy()
    labels = np.concatenate([split.target[split.labelled], np.full(len(split.unlabelled), -1)])
    seed = seed_of(from_clusters.seed, "cluster start") % 2**32
    settings = from_clusters.sskmeans
    kmeans = SemiSupervisedKMeans(10, settings.n_init, settings.max_iter, settings.tol, random_state=seed)
    centroids = torch.from_numpy(kmeans.fit(features, labels).cluster_centers_).float()
    torch.testing.assert_close(state.model.head.prototypes.data, F.normalize(centroids, dim=1), rtol=0, atol=SINGLE)


def test_the_first_prototypes_recognise_known_classes(from_clusters, few_digits, tmp_path):
    state = prepare(from_clusters, RunFolder(tmp_path / "run"), few_digits, tell=quiet)
    split = few_digits.split
    predicted = state.outputs(split.labelled).categories
    assert (predicted == split.target[split.labelled]).mean() > 0.8


def test_random_prototypes_are_those_of_before(tiny_config, few_digits, tmp_path):
    """The head draws the same numbers whether or not clusters replace the prototypes."""
    config = tiny_config.model_copy(update={"method": "simgcd"})
    heads = [
        prepare(c, RunFolder(tmp_path / "run"), few_digits, tell=quiet).model.head
        for c in (config, config.changed(head={"start": "clusters"}))
    ]
    for one, other in zip(heads[0].mlp.parameters(), heads[1].mlp.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(heads[0].prototypes, heads[1].prototypes)


def test_clusters_need_prototypes_that_are_not_trained_yet(from_clusters, few_digits, tmp_path):
    with pytest.raises(Misuse, match=r"sets the prototypes of simgcd and sptnet, but gcd has none"):
        prepare(from_clusters.model_copy(update={"method": "gcd"}), RunFolder(tmp_path), few_digits, tell=quiet)
    config = from_clusters.changed(sptnet={"start_from": "somewhere"}).model_copy(update={"method": "sptnet"})
    with pytest.raises(Misuse, match=r"brings trained prototypes, which `head.start=clusters` would replace"):
        prepare(config, RunFolder(tmp_path), few_digits, tell=quiet)


def test_epochs_are_added_until_there_are_enough_steps(tiny_config):
    config = tiny_config.changed(
        training={"batch_size": 16},
        simgcd={"epochs": 10, "min_steps": 200, "teacher_warm_up": 2},
        sptnet={"epochs": 10, "min_steps": 30, "teacher_warm_up": 2},
    )
    enough = with_enough_epochs(config, n_images=100)  # six batches per epoch
    assert (enough.simgcd.epochs, enough.simgcd.teacher_warm_up) == (34, 7)
    assert (enough.sptnet.epochs, enough.sptnet.teacher_warm_up) == (10, 2)
    assert with_enough_epochs(enough, n_images=100) == enough


def test_features_from_before_training_are_kept_where_the_certainty_needs_them(tiny_config, few_digits, tmp_path):
    config = tiny_config.changed(gcd={"epochs": 1, "output": 16}).model_copy(update={"method": "gcd"})
    own = prepare(config, RunFolder(tmp_path / "own"), few_digits, tell=quiet)
    calibrated = config.changed(training={"certainty": "calibrated"})
    state = prepare(calibrated, RunFolder(tmp_path / "calibrated"), few_digits, tell=quiet)
    assert own.frozen is None
    everyone = np.arange(len(few_digits.image_set))
    assert torch.equal(state.frozen, state.outputs(everyone).features)


@pytest.mark.parametrize("method", ["kmeans", "sskmeans"])
def test_plain_k_means_needs_as_many_unlabelled_images_as_categories(method, tiny_config, few_digits, tmp_path):
    n_unlabelled = len(few_digits.split.unlabelled)
    asked = {"method": method, "n_categories": n_unlabelled + 1}
    config = tiny_config.model_copy(update=asked)
    if method == "sskmeans":
        assert len(prepare(config, RunFolder(tmp_path), few_digits, tell=quiet).names) == n_unlabelled + 1
        return
    says = (
        rf"`n_categories` is {n_unlabelled + 1}, but kmeans clusters only the {n_unlabelled} unlabelled images\. Give"
    )
    with pytest.raises(Misuse, match=says):
        prepare(config, RunFolder(tmp_path), few_digits, tell=quiet)


def test_a_bank_for_views_that_all_have_prompts_is_refused(tiny_config, few_digits, tmp_path):
    """PromptCAL's tokens change every view; SPTNet that trains its prompts alone has no raw view either."""
    promptcal = tiny_config.model_copy(update={"method": "promptcal"})
    for config in (promptcal, tiny_config.changed(sptnet={"strategy": "prompts-only", "start_from": "a run"})):
        check(config, few_digits.split, quiet)
        check(config.changed(views={"bank": "auto"}), few_digits.split, quiet)
        says = f"{config.method} adds prompts to every view, so a token bank has none to store. Leave `views.bank` out."
        with pytest.raises(Misuse, match=re.escape(says)):
            check(config.changed(views={"bank": 2}), few_digits.split, quiet)
        bank = with_bank(config.changed(views={"bank": "auto"}), tmp_path, random_backbone(), 60, quiet)
        assert bank.views.bank == 0
    check(tiny_config.changed(views={"bank": 2}), few_digits.split, quiet)


def test_settings_that_the_model_cannot_have_are_refused(tiny_config, few_digits, tmp_path):
    rankstats = tiny_config.changed(rankstats={"top": 97}).model_copy(update={"method": "rankstats"})
    with pytest.raises(Misuse, match=r"`rankstats\.top` is 97, but features have 96 dimensions\. Give fewer"):
        prepare(rankstats, RunFolder(tmp_path), few_digits, tell=quiet)
    promptcal = tiny_config.changed(promptcal={"supervised_tokens": 4}, prompt={"tokens": 3})
    with pytest.raises(Misuse, match=r"`promptcal\.supervised_tokens` is 4, but there are 3 prompt tokens\."):
        prepare(promptcal.model_copy(update={"method": "promptcal"}), RunFolder(tmp_path), few_digits, tell=quiet)


def test_with_one_known_class_the_rule_of_cipr_has_nothing_to_hide(tiny_config, few_digits, tmp_path):
    image_set = few_digits.image_set
    one = SplitImages(image_set, make_split(image_set, 1), [])
    config = tiny_config.changed(cipr={"output": 16}).model_copy(update={"method": "cipr", "n_categories": "auto"})
    said = []
    state = prepare(config, RunFolder(tmp_path / "one"), one, tell=said.append)
    assert state.estimate is not None and any("are plausible" in line for line in said)
    said.clear()
    assert prepare(config, RunFolder(tmp_path / "five"), few_digits, tell=said.append).estimate is None
    assert any(line.startswith("cipr finds ") for line in said)
