"""Features of a folder of images that stay as they were, for PromptCAL: cost, gradient, epochs, resuming."""

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.rounding import DOUBLE, training_rounding
from helpers.systems import state_of, system_config, system_trainer, write_pictures
from sptnet.config import Config
from sptnet.errors import Failure, Misuse
from sptnet.methods import METHODS, stages_of
from sptnet.methods.promptcal import distillation_weight
from sptnet.methods.stage_plan import Clock
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.distributed import World
from sptnet.training.anchor import FeatureAnchor
from sptnet.training.checkpoint import load_checkpoint, save_checkpoint
from sptnet.training.prepare import check

CLOCK = Clock(epoch=1, epochs=2, step=7, steps=10)
CPU = choose_compute("cpu", "float32")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pictures").mkdir()
    return str(write_pictures(tmp_path / "pictures"))


@pytest.fixture
def trainer(folder):
    """Trainer of the first stage after one epoch, in float64, with the images as they were before it."""
    made = system_trainer("promptcal", 0, promptcal={"distil_folder": folder})
    made.model.double()
    normalise = made.data.maker.normalise
    made.data.maker.normalise = lambda views: normalise(views).double()
    made.anchor = FeatureAnchor(made.plan.anchor, made.model, made.trained_names(), made.data, batch_size=12)
    made.run_epoch()
    return made


def gradients(trainer, n_parts=1, clock=CLOCK):
    """Cost of a step and the gradients that it adds to zero."""
    trainer.model.zero_grad()
    trainer.model.train_only(frozenset({"prompt", "model"}))
    parts = trainer.anchor.add_gradient(clock, 3, CPU.scaler(), CPU, World(), n_parts)
    return parts, {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}


def test_no_method_reads_other_images_unless_asked(folder):
    assert [plan.name for method in METHODS for plan in stages_of(Config(method=method)) if plan.anchor] == []
    first, second = stages_of(system_config("promptcal", promptcal={"distil_folder": folder}))
    assert first.anchor.folder == folder and second.anchor is None


def test_the_weight_falls_for_five_epochs():
    made = [distillation_weight(Config().promptcal, epoch) for epoch in range(7)]
    assert made == pytest.approx([0.5, 0.402, 0.304, 0.206, 0.108, 0, 0])


def test_cost_and_gradient_are_those_of_the_loop(trainer, monkeypatch):
    seen = []
    views = trainer.anchor.views
    monkeypatch.setattr(trainer.anchor, "views", lambda *asked: seen.append(views(*asked)) or seen[-1])
    parts, made = gradients(trainer)
    fresh = system_trainer("promptcal", 0).model.double().backbone
    (pixels,) = seen
    assert len(pixels) == 12
    with torch.no_grad():
        now, before = trainer.model.features(pixels).numpy(), fresh(pixels).numpy()
    total = 0.0
    for a, b in zip(now, before, strict=True):
        for x, y in zip(a / np.linalg.norm(a), b / np.linalg.norm(b), strict=True):
            total += (x - y) ** 2
    cost = total / now.size
    assert parts["distillation"] == pytest.approx(cost, rel=DOUBLE) and cost > 1e-6
    weight = distillation_weight(Config().promptcal, CLOCK.epoch)
    assert parts["total"] == pytest.approx(weight * cost, rel=DOUBLE)
    unit = torch.nn.functional.normalize(trainer.model.features(pixels), dim=1)
    target = torch.from_numpy(before / np.linalg.norm(before, axis=1, keepdims=True))
    trainer.model.zero_grad()
    (weight * torch.nn.functional.mse_loss(unit, target)).backward()
    expected = {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}
    assert made.keys() == expected.keys() and "tokens.values" in made
    assert not any(name.startswith("head.") for name in made)
    for name, gradient in expected.items():
        torch.testing.assert_close(made[name], gradient, rtol=0, atol=DOUBLE * float(gradient.abs().max()))


def test_parts_of_the_batch_add_up(trainer):
    whole, expected = gradients(trainer)
    in_parts, made = gradients(trainer, n_parts=5)
    assert in_parts == pytest.approx(whole, rel=DOUBLE)
    for name, gradient in expected.items():
        torch.testing.assert_close(made[name], gradient, rtol=0, atol=DOUBLE * float(gradient.abs().max()))


def test_before_training_features_differ_by_the_prompts_alone(folder):
    trainer = system_trainer("promptcal", 0, prompt={"noise": 0.0}, promptcal={"distil_folder": folder})
    trainer.model.tokens.values.data.fill_(0.0)
    with_zeros, _ = gradients(trainer)
    trainer.model.tokens = None
    without, _ = gradients(trainer)
    assert without["distillation"] == 0.0 < with_zeros["distillation"]


def test_steps_draw_other_images_and_later_epochs_none(trainer, monkeypatch):
    drawn = []
    monkeypatch.setattr(trainer.anchor, "views", lambda numbers, images, seed: drawn.append(images) or 1 / 0)
    for step in (7, 8, 7):
        with pytest.raises(ZeroDivisionError):
            gradients(trainer, clock=Clock(epoch=1, epochs=9, step=step, steps=99))
    assert drawn[0] == drawn[2] != drawn[1]
    parts, made = gradients(trainer, clock=Clock(epoch=5, epochs=9, step=60, steps=99))
    assert parts == {"distillation": 0.0, "total": 0.0} and made == {}


def test_the_features_stay_nearer_if_they_are_held(folder):
    moved = []
    for weight in (0.0, 1000.0):
        settings = {"distil_folder": folder, "distil_first": weight, "distil_last": weight}
        trainer = system_trainer("promptcal", 0, promptcal=settings)
        report = trainer.run_epoch()
        trainer.anchor.weight = lambda epoch: 1.0
        moved.append(gradients(trainer)[0]["distillation"])
    assert moved[1] < 0.5 * moved[0]
    losses = report.losses["joint"]
    assert losses["total"] > weight * losses["distillation"] > 0


def test_a_weight_of_zero_trains_as_if_there_were_no_folder(folder):
    settings = {"distil_folder": folder, "distil_first": 0.0, "distil_last": 0.0}
    made, plain = system_trainer("promptcal", 0, promptcal=settings), system_trainer("promptcal", 0)
    made.run_epoch(), plain.run_epoch()
    expected = state_of(plain)
    assert all(torch.equal(value, expected[name]) for name, value in state_of(made).items())


def test_a_restored_stage_goes_on_bit_for_bit(folder, tmp_path):
    whole, other = (system_trainer("promptcal", 0, promptcal={"distil_folder": folder}) for _ in range(2))
    whole.run_epoch()
    path = save_checkpoint(tmp_path, whole.checkpoint())
    whole.run_epoch()
    other.restore(load_checkpoint(path))
    other.run_epoch()
    expected, made = state_of(whole), state_of(other)
    assert [name for name in expected if not torch.equal(expected[name], made[name])] == []
    plain = system_trainer("promptcal", 0)
    plain.run_epoch(), plain.run_epoch()
    moved = (state_of(plain)["model.tokens.values"] - expected["model.tokens.values"]).abs().max()
    assert float(moved) > training_rounding(rows=48), "else nothing was held"


def test_a_run_takes_the_folder(folder, tiny_config, few_digits, run_it, tmp_path):
    sections = {
        "promptcal": {"epochs": 1, "output": 48, "distil_folder": folder},
        "promptcal_calibrated": {"epochs": 1},
    }
    config = tiny_config.changed(prompt={"tokens": 3}, **sections).model_copy(update={"method": "promptcal"})
    assert (run_it(tmp_path / "run", config, few_digits) / "run.json").is_file()


def test_a_folder_that_is_missing_or_empty_is_refused(few_digits, tmp_path):
    config = system_config("promptcal", promptcal={"distil_folder": str(tmp_path / "none")})
    with pytest.raises(Misuse, match=r"there is no folder .*none.* `promptcal\.distil_folder`"):
        check(config.changed(training={"batch_size": 12}), few_digits.split)
    with pytest.raises(Misuse, match="no images found"):
        system_trainer("promptcal", 0, promptcal={"distil_folder": str(tmp_path)})


def test_an_image_that_cannot_be_read_is_replaced_by_the_next_and_named_once(folder, capsys):
    trainer = system_trainer("promptcal", 0, promptcal={"distil_folder": folder})
    anchor, whole = trainer.anchor, trainer.anchor.store[3]
    Path(folder, "2.png").write_bytes(b"no picture")
    assert torch.equal(anchor._readable(2), whole) and torch.equal(anchor._readable(2), whole)
    trainer.run_epoch()
    assert capsys.readouterr().err.count("skipped") == 1
    for file in Path(folder).iterdir():
        file.write_bytes(b"no picture")
    with pytest.raises(Failure, match=r"none of the images in .* can be read"):
        anchor._readable(0)


def test_a_process_without_a_share_of_the_batch_adds_nothing(trainer):
    class Third(World):
        def share(self, n):
            return slice(n, n)

        def gather(self, rows, n):
            return rows

    trainer.model.train_only(frozenset({"prompt", "model"}))
    parts = trainer.anchor.add_gradient(CLOCK, 3, CPU.scaler(), CPU, Third(), 2)
    assert parts == {"distillation": 0.0, "total": 0.0}
