"""Labelled and unlabelled images in balance."""

import numpy as np
import pytest
import torch

from sptnet.errors import Misuse
from sptnet.schedules import steps_per_epoch
from sptnet.training.batching.sampler import balanced_batches

LABELLED = np.arange(100, 200)
UNLABELLED = np.arange(1000, 1900)


def drawn(labelled, unlabelled, batch_size=50, seed=0):
    return torch.cat(balanced_batches(labelled, unlabelled, batch_size, seed)).numpy()


@pytest.mark.parametrize(("n_labelled", "n_unlabelled"), [(100, 900), (900, 100), (500, 500), (10, 990)])
def test_half_of_the_draws_are_labelled_whatever_their_number(n_labelled, n_unlabelled):
    labelled, unlabelled = np.arange(n_labelled), np.arange(5000, 5000 + n_unlabelled)
    draws = np.concatenate([drawn(labelled, unlabelled, seed=seed) for seed in range(10)])
    assert len(draws) == 10_000
    assert (draws < 5000).mean() == pytest.approx(0.5, abs=0.025)  # five standard deviations


def test_within_a_part_every_image_is_as_likely():
    draws = np.concatenate([drawn(LABELLED, UNLABELLED, seed=seed) for seed in range(40)])
    labelled = np.bincount(draws[draws < 1000] - 100, minlength=100)
    unlabelled = np.bincount(draws[draws >= 1000] - 1000, minlength=900)
    for counts in (labelled, unlabelled):
        expected = counts.mean()
        statistic = ((counts - expected) ** 2 / expected).sum()
        freedom = len(counts) - 1
        assert abs(statistic - freedom) < 5 * (2 * freedom) ** 0.5


def test_draws_are_with_replacement():
    draws = drawn(LABELLED, UNLABELLED)
    assert len(draws) == 1000
    assert len(np.unique(draws)) < 900
    labelled = draws[draws < 1000]
    assert len(labelled) > 100, "more labelled draws than labelled images"


def test_only_images_that_were_given_are_drawn():
    draws = drawn(LABELLED, UNLABELLED)
    assert set(draws) <= set(LABELLED) | set(UNLABELLED)


@pytest.mark.parametrize(("batch_size", "batches"), [(64, 15), (1000, 1), (999, 1), (501, 1), (2, 500)])
def test_the_last_short_batch_is_dropped(batch_size, batches):
    made = balanced_batches(LABELLED, UNLABELLED, batch_size, 0)
    assert [len(batch) for batch in made] == [batch_size] * batches
    assert steps_per_epoch(1000, batch_size) == batches


def test_the_seed_decides_everything():
    again, other = drawn(LABELLED, UNLABELLED, seed=3), drawn(LABELLED, UNLABELLED, seed=4)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert np.array_equal(drawn(LABELLED, UNLABELLED, seed=3), again)
    assert not np.array_equal(again, other)
    assert torch.equal(torch.get_rng_state(), state), "nobody else's randomness is touched"


def test_a_batch_larger_than_the_data_is_refused_with_a_size_that_works():
    with pytest.raises(Misuse, match=r"batch_size is 1001, but there are only 1000 .*training\.batch_size=250"):
        balanced_batches(LABELLED, UNLABELLED, 1001, 0)
    assert len(balanced_batches(LABELLED, UNLABELLED, 250, 0)) == 4


@pytest.mark.parametrize("which", [0, 1])
def test_one_part_alone_works(which):
    parts = [np.empty(0, dtype=np.int64)] * 2
    parts[which] = UNLABELLED
    draws = drawn(*parts)
    assert len(draws) == 900
    assert set(draws) <= set(UNLABELLED)
    assert len(np.unique(draws)) > 450
