"""Preparing a run: prototypes from clusters, and enough steps for small image sets."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from conftest import quiet
from helpers.rounding import SINGLE
from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.errors import Misuse
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.seeds import seed_of
from sptnet.training.prepare import prepare, with_enough_epochs


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
