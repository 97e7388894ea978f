"""Training of the systems that SPTNet is compared with: recorded losses, resuming, memory, teacher, groups that train.

`PYTHONPATH=tests python tests/training/test_systems.py` records the losses anew, into golden_systems.json. Do that only
after a change that is meant to change them.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.rounding import training_rounding
from helpers.systems import SETTINGS, SYSTEMS, state_of, system_config, system_trainer
from sptnet.methods import NAMES, stages_of
from sptnet.training.checkpoint import load_checkpoint, save_checkpoint

GOLDEN = Path(__file__).with_name("golden_systems.json")
STAGES = {f"{system}, stage {n}": (system, n) for system in SYSTEMS for n in range(len(SETTINGS[system]))}
TOLERANCE = training_rounding(rows=48)


def trained_losses(trainer):
    """Every part of the loss in ten steps: two epochs of five."""
    steps, inner = [], trainer.train_step

    def watched(batch, phase, number):
        steps.append(inner(batch, phase, number))
        return steps[-1]

    trainer.train_step = watched
    for _ in range(2):
        trainer.run_epoch()
    return [{name: float(value) for name, value in parts.items()} for parts in steps]


def golden_trainer(name):
    """Trainer of a stage whose views are the same on every processor: strong views may differ by a level of a pixel."""
    trainer = system_trainer(*STAGES[name])
    trainer.data.maker.strong_view = trainer.data.maker.random_view
    return trainer


def record_golden_losses():
    """Write golden_systems.json from the code as it is."""
    torch.set_num_threads(1)
    recorded = {name: trained_losses(golden_trainer(name)) for name in STAGES}
    GOLDEN.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


@pytest.mark.numerical
@pytest.mark.parametrize("name", STAGES)
def test_ten_steps_give_the_recorded_losses(name):
    recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
    made = trained_losses(golden_trainer(name))
    assert len(made) == len(recorded) == 10
    for ours, expected in zip(made, recorded, strict=True):
        assert ours == pytest.approx(expected, abs=TOLERANCE)


def test_the_recorded_runs_differ():
    recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert set(recorded) == set(STAGES)
    finals = sorted(run[-1]["total"] for run in recorded.values())
    assert np.diff(finals).min() > 2 * TOLERANCE, "else a recorded loss would not notice a mix-up"


def test_every_stage_has_settings_and_a_name():
    for system in SYSTEMS:
        config = system_config(system)
        for plan in stages_of(config):
            assert getattr(config, plan.name).epochs == plan.epochs
            assert plan.name in NAMES


@pytest.mark.parametrize("name", STAGES)
def test_a_restored_stage_goes_on_bit_for_bit(name, tmp_path):
    whole = system_trainer(*STAGES[name])
    whole.run_epoch()
    path = save_checkpoint(tmp_path, whole.checkpoint())
    whole.run_epoch()
    other = system_trainer(*STAGES[name])
    other.restore(load_checkpoint(path))
    other.run_epoch()
    expected, made = state_of(whole), state_of(other)
    assert expected.keys() == made.keys()
    assert [n for n in expected if not torch.equal(expected[n], made[n])] == []


@pytest.mark.parametrize("name", STAGES)
def test_only_the_groups_of_the_phase_train(name):
    trainer = system_trainer(*STAGES[name])
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    trainer.run_epoch()
    moved = {n for n, p in trainer.model.named_parameters() if not torch.equal(p, before[n])}
    phases = trainer.plan.turns.phases
    groups = {group for phase in phases for group in phase.trains}
    allowed = {id(p) for group in groups for p in trainer.model.group(group)}
    names = {n for n, p in trainer.model.named_parameters() if id(p) in allowed}
    assert moved <= names
    assert any(n.startswith("backbone.vit.blocks.3.") for n in moved), "the last block learns"
    assert any(n.startswith("head.") for n in moved)


def test_a_teacher_follows_the_student_and_shares_what_is_frozen():
    trainer = system_trainer("mugcd")
    student, teacher = trainer.model, trainer.teacher.model
    assert teacher.backbone.vit.blocks[0].attn.qkv.weight is student.backbone.vit.blocks[0].attn.qkv.weight
    assert teacher.backbone.vit.blocks[-1].attn.qkv.weight is not student.backbone.vit.blocks[-1].attn.qkv.weight
    before = {n: p.detach().clone() for n, p in teacher.named_parameters()}
    trainer.run_epoch()
    decays = [trainer.plan.teacher(step, trainer.planned_steps) for step in range(trainer.batches)]
    assert decays[0] == pytest.approx(0.699) and decays == sorted(decays)
    moved = [n for n, p in teacher.named_parameters() if not torch.equal(p, before[n])]
    assert moved == [n for n in before if n in trainer.trained_names()]
    trainer.teacher.follow(0.0)
    assert all(torch.equal(p, dict(student.named_parameters())[n]) for n, p in teacher.named_parameters())


def test_the_student_sees_strong_views_and_the_teacher_weak_ones():
    trainer = system_trainer("mugcd")
    batch = trainer.stage_batches().of_epoch(0)[0]
    assert len(batch.draws) == 4
    image, maker = trainer.data.store[int(batch.indices[0])], trainer.data.maker
    from sptnet.runtime.seeds import seed_of

    seeds = [seed_of(trainer.stage_batches().of_epoch(0).seed, 0, 0, draw) for draw in range(4)]
    weak, strong = maker.random_view(image, seeds[0]), maker.strong_view(image, seeds[2])
    assert torch.equal(batch.draws[0][0], weak)
    assert torch.equal(batch.draws[2][0], strong)
    assert not torch.equal(maker.random_view(image, seeds[2]), strong)


def test_conceptions_add_images_to_every_batch():
    trainer = system_trainer("dccl")
    trainer.refresh_memory()
    targets = trainer.memory["targets"]
    seen = []
    inner = trainer.train_step
    trainer.train_step = lambda batch, phase, number: (seen.append(batch), inner(batch, phase, number))[1]
    trainer.run_epoch()
    for batch in seen:
        added = batch.indices[batch.n_main :]
        assert batch.n_main == 12 and len(added) == 12, "as many again"
        assert (targets[added] >= 0).all()
        groups = targets[added].unflatten(0, (-1, 3))
        assert (groups == groups[:, :1]).all(), "three images per conception"


if __name__ == "__main__":
    record_golden_losses()
