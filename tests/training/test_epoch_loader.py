"""Batches of a stage in a row: those of each epoch, whoever makes them, and by processes that start once."""

import pickle
from multiprocessing import active_children

import pytest
import torch

from helpers.trainers import make_config, make_trainer
from sptnet.training.batching.loader import EpochLoader, iterate_batches

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def same(one, other):
    draws = zip(one.draws, other.draws, strict=True)
    return torch.equal(one.indices, other.indices) and all(torch.equal(a, b) for a, b in draws)


def test_a_batch_is_numbered_through_all_epochs():
    stage = make_trainer(make_config(counter="continuous")).stage_batches()
    assert (len(stage), stage.batches, stage.epochs) == (10, 5, 2)
    for number in (7, 0, 4, 5, 9):  # in any order
        epoch, batch = divmod(number, 5)
        assert same(stage[number], stage.of_epoch(epoch)[batch])
        assert len(stage[number].draws) == stage.phases(epoch)[batch].draws
    assert not same(stage[1], stage[6])


def test_a_process_can_be_sent_the_batches_of_a_stage():
    stage = make_trainer().stage_batches()
    assert same(pickle.loads(pickle.dumps(stage))[6], stage[6])


def test_an_epoch_is_drawn_once_for_all_of_its_batches(monkeypatch):
    stage = make_trainer().stage_batches()
    drawn, original = [], stage.of_epoch
    monkeypatch.setattr(stage, "of_epoch", lambda epoch: drawn.append(epoch) or original(epoch))
    list(iterate_batches(stage, 0, pin=False))
    assert drawn == [0, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_epochs_are_those_of_the_stage(workers):
    stage = make_trainer().stage_batches()
    loader = EpochLoader(stage, workers, pin=False)
    for epoch in (0, 1):
        loaded = list(loader.epoch(epoch))
        assert len(loaded) == 5
        assert all(same(one, other) for one, other in zip(loaded, stage.of_epoch(epoch), strict=True))


@pytest.mark.parametrize("epochs", [(1, 0), (0, 0), (5, 6, 0)], ids=["back", "again", "beyond the plan"])
def test_any_epoch_can_be_asked_for(epochs):
    stage = make_trainer().stage_batches()
    loader = EpochLoader(stage, 0, pin=False)
    for epoch in epochs:
        loaded = loader.epoch(epoch)
        assert all(same(one, other) for one, other in zip(loaded, stage.of_epoch(epoch), strict=True))


def test_an_epoch_that_was_left_in_the_middle_begins_anew():
    stage = make_trainer().stage_batches()
    loader = EpochLoader(stage, 0, pin=False)
    assert same(next(loader.epoch(0)), stage[0])
    assert same(next(loader.epoch(0)), stage[0])
    assert same(next(loader.epoch(1)), stage[5])


def test_processes_start_once_and_end_with_the_last_epoch():
    before, seen = set(active_children()), []
    loader = EpochLoader(make_trainer().stage_batches(), 2, pin=False)
    for epoch in (0, 1):
        seen += [set(active_children()) - before for _ in loader.epoch(epoch)]
    assert len(seen) == 10 and len(seen[0]) == 2
    assert all(processes == seen[0] for processes in seen)
    assert set(active_children()) <= before


def test_a_trainer_goes_on_with_the_loader_it_has():
    trainer = make_trainer()
    trainer.run_epoch()
    loader = trainer._loader
    trainer.run_epoch()
    assert trainer._loader is loader


def test_a_loader_whose_images_change_with_every_epoch_does_not_work_ahead():
    made, extra = [], [torch.tensor([0])] * 5
    stage = make_trainer().stage_batches(extra)
    inner = type(stage).__getitem__
    type(stage).__getitem__ = lambda self, number: made.append(number) or inner(self, number)
    try:
        loader = EpochLoader(stage, 0, pin=False)
        loaded = list(loader.epoch(0))
    finally:
        type(stage).__getitem__ = inner
    assert [batch.indices[-1].item() for batch in loaded] == [0] * 5
    assert made == [0, 1, 2, 3, 4] and loader._stream is None
