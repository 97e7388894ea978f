"""Batches of an epoch: their views, labels and indices, and the workers that make them."""

import multiprocessing
import os
import time
from multiprocessing.connection import Client
from multiprocessing.resource_sharer import DupFd

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from helpers.pictures import picture
from sptnet.data.pixel_format import PixelFormat
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.methods.phases import MODEL, RAW
from sptnet.runtime.seeds import seed_of
from sptnet.training.batching.batches import EpochBatches, TrainingData
from sptnet.training.batching.loader import iterate_batches

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PIXELS = PixelFormat(32)


@pytest.fixture
def make_batches():
    sources = [picture(40, 60, seed) for seed in range(6)]
    labels = np.array([0, 1, -1, -1, 2, -1])
    known, ids = labels >= 0, tuple("abcdef")
    numbers = [torch.tensor([0, 0, 3]), torch.tensor([5, 4, 2]), torch.tensor([0, 0, 3])]

    def make(seed=11, phases=(RAW, MODEL, RAW), flip=0.5):
        store, maker = ImageStore(sources, PIXELS), ViewMaker(PIXELS, flip)
        data = TrainingData(store, maker, labels, np.flatnonzero(known), np.flatnonzero(~known), ids)
        return EpochBatches(data, numbers, list(phases), seed)

    return make


def same(one, other):
    return len(one.draws) == len(other.draws) and all(
        torch.equal(a, b) for a, b in zip(one.draws, other.draws, strict=True)
    )


def test_a_batch_has_its_labels_and_indices(make_batches):
    batch = make_batches()[1]
    assert batch.indices.tolist() == [5, 4, 2]
    assert batch.labels.tolist() == [-1, 2, -1]
    assert batch.labelled.tolist() == [False, True, False]


def test_a_batch_has_as_many_draws_as_asked_for(make_batches):
    batches = make_batches()
    assert len(batches) == 3
    assert [len(batches[i].draws) for i in range(3)] == [2, 1, 2]
    assert batches[0].draws[0].shape == (3, 3, 32, 32)


def test_every_view_is_made_from_seed_batch_position_and_draw(make_batches):
    batches = make_batches()
    batch = batches[2]
    for draw in range(2):
        for position, index in enumerate([0, 0, 3]):
            view = batches.data.maker.random_view(batches.data.store[index], seed_of(11, 2, position, draw))
            assert torch.equal(batch.draws[draw][position], view)


def test_a_batch_arrives_normalised(make_batches):
    batches = make_batches()
    sent = batches[1]
    arrived = sent.to(torch.device("cpu"), batches.data.maker)
    assert [draw.dtype for draw in sent.draws] == [torch.uint8]
    assert torch.equal(arrived.draws[0], batches.data.maker.normalise(sent.draws[0]))
    assert torch.equal(arrived.labels, sent.labels) and torch.equal(arrived.indices, sent.indices)


def test_no_two_views_are_drawn_alike(make_batches):
    batches = make_batches()
    first, third = batches[0], batches[2]  # the same images
    assert not torch.equal(first.draws[0], first.draws[1]), "second draw"
    assert not torch.equal(first.draws[0][0], first.draws[0][1]), "the same image at another position"
    assert not torch.equal(first.draws[0], third.draws[0]), "another batch"
    assert not same(first, make_batches(seed=12)[0]), "another seed"


def test_a_second_draw_does_not_change_the_first(make_batches):
    one_draw, two_draws = make_batches(phases=[MODEL] * 3)[0], make_batches(phases=[RAW] * 3)[0]
    assert torch.equal(one_draw.draws[0], two_draws.draws[0])


def test_batches_do_not_depend_on_the_number_of_workers(make_batches):
    without, with_two = (list(iterate_batches(make_batches(), workers, pin=False)) for workers in (0, 2))
    assert len(without) == len(with_two) == 3
    for one, other in zip(without, with_two, strict=True):
        assert same(one, other)
        assert torch.equal(one.indices, other.indices)
        assert torch.equal(one.labels, other.labels)
    assert same(without[1], make_batches()[1]), "nor on the order in which they are asked for"


class Offers(Dataset[object]):
    """Each item is the address at which a thread of the worker offers a file."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> tuple[str, int]:
        offer = DupFd(0)._id  # type: ignore[attr-defined]
        return offer[0], os.getpid()


def test_a_worker_is_silent_when_its_parent_stops_reading(capfd: pytest.CaptureFixture[str]) -> None:
    """As when Ctrl-C reaches the main process while it reads a batch."""
    key = multiprocessing.current_process().authkey
    for address, worker in iterate_batches(Offers(), 1, pin=False):  # type: ignore[arg-type,misc]
        assert worker != os.getpid()
        Client(address, authkey=key).close()
        Client(address).close()  # before authentication
    time.sleep(0.2)
    assert capfd.readouterr().err == ""
