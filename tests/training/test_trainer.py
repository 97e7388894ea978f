"""The training loop: gradients only where they belong, the optimiser by hand, and losses pinned to recorded ones.

`PYTHONPATH=tests python tests/training/test_trainer.py` records the losses anew, into golden_losses.json. Do that only
when a change of the numbers is meant, and say in the commit why they moved.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import SIZE, random_model
from helpers.rounding import AMPLIFICATION, LONGEST_SUM, assert_same, terms_of, training_rounding
from helpers.trainers import constant_plan, in_double, make_config, make_trainer, normalised, one_step
from sptnet.config import PromptSettings
from sptnet.losses import GcdLoss
from sptnet.methods import stages_of
from sptnet.methods.phases import JOINT, MODEL, PROMPT, RAW, Always
from sptnet.methods.stage_plan import Clock, StagePlan
from sptnet.training.batching.batches import EpochBatches
from sptnet.training.parameter_groups import parameter_groups
from sptnet.training.stage import in_words
from sptnet.training.step import step_loss
from sptnet.training.trainer import EpochReport, StageTrainer

GOLDEN = Path(__file__).with_name("golden_losses.json")
STEPS = 10
GOLDEN_TOLERANCE = training_rounding(rows=24)
"""Losses were recorded on one processor and may differ on another by what ten steps make of rounding: about 2e-4."""
KINDS = ("global", "shared", "spatial", "shared+global", "spatial+global", "vpt")


def state_of(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def changed(before, model):
    return {name for name, p in model.named_parameters() if not torch.equal(before[name], p)}


def names_with(model, *prefixes):
    return {name for name, _ in model.named_parameters() if name.startswith(prefixes)}


# --- gradients only where they belong ---


@pytest.mark.parametrize("kind", KINDS)
def test_the_prompt_phase_changes_the_prompts_alone(kind):
    trainer = make_trainer(make_config(kind=kind))
    model, before = trainer.model, state_of(trainer.model)
    one_step(trainer, PROMPT)
    prompts = names_with(model, "prompt.", "tokens.")
    assert len(prompts) == (2 if "+" in kind else 1)
    assert changed(before, model) == prompts
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == (name in prompts), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocks", [1, 2])
def test_the_model_phase_changes_last_blocks_and_head_alone(kind, blocks):
    trainer = make_trainer(make_config(kind=kind), trainable_blocks=blocks)
    model, before = trainer.model, state_of(trainer.model)
    one_step(trainer, MODEL)
    last = [f"backbone.vit.blocks.{i}." for i in range(4 - blocks, 4)]
    expected = names_with(model, "head.", *last)
    assert changed(before, model) == expected
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == (name in expected), name
    for frozen in ("patch_embed.proj.weight", "pos_embed", "cls_token", "norm.weight", "norm.bias"):
        assert f"backbone.vit.{frozen}" in before.keys() - expected


def test_simgcd_changes_last_block_and_head_alone():
    trainer = make_trainer(make_config("simgcd"))
    before = state_of(trainer.model)
    one_step(trainer, RAW)
    assert changed(before, trainer.model) == names_with(trainer.model, "head.", "backbone.vit.blocks.3.")


def test_end_to_end_changes_both():
    trainer = make_trainer(make_config(strategy="end-to-end"))
    before = state_of(trainer.model)
    one_step(trainer, JOINT)
    expected = names_with(trainer.model, "head.", "prompt.", "backbone.vit.blocks.3.")
    assert changed(before, trainer.model) == expected


@pytest.mark.parametrize(
    ("strategy", "moves"),
    [
        ("alternate", {"prompt.", "head.", "backbone.vit.blocks.3."}),
        ("prompts-only", {"prompt."}),
        ("random-prompts", {"head.", "backbone.vit.blocks.3."}),
        ("fine-tune", {"head.", "backbone.vit.blocks.3."}),
    ],
)
def test_a_whole_epoch_of_a_strategy(strategy, moves):
    trainer = make_trainer(make_config(strategy=strategy))
    before = state_of(trainer.model)
    trainer.run_epoch()
    assert changed(before, trainer.model) == names_with(trainer.model, *moves)


def test_a_step_of_one_phase_leaves_the_momentum_of_the_other():
    trainer = make_trainer()
    one_step(trainer, MODEL, 0)
    momenta = {n: t.clone() for n, t in trainer.checkpoint().tensors.items() if n.startswith("momentum.")}
    assert set(momenta) == {f"momentum.{n}" for n in names_with(trainer.model, "head.", "backbone.vit.blocks.3.")}
    before = state_of(trainer.model)
    one_step(trainer, PROMPT, 1)
    after = trainer.checkpoint().tensors
    assert all(torch.equal(after[name], momenta[name]) for name in momenta)
    assert changed(before, trainer.model) == names_with(trainer.model, "prompt.")


def test_too_many_trainable_blocks_are_refused():
    with pytest.raises(ValueError, match=r"from 1 to 4 .* Got 5"):
        make_trainer(trainable_blocks=5)


# --- which views the backbone gets ---


@pytest.fixture
def seen_by_backbone(monkeypatch):
    """Images that were embedded, and patches and tokens that went through the blocks, in order."""

    def watch(model):
        embedded, run = [], []
        embed, blocks = model.backbone.embed, model.backbone.run_to_last_block
        monkeypatch.setattr(model.backbone, "embed", lambda images: embedded.append(images) or embed(images))
        monkeypatch.setattr(
            model.backbone,
            "run_to_last_block",
            lambda patches, tokens=None: run.append((patches, tokens)) or blocks(patches, tokens),
        )
        return embedded, run

    return watch


def patches_of(trainer, images):
    return trainer.model.backbone.vit.patch_embed(images).detach()


def test_stage_two_pairs_view_one_raw_with_view_one_prompted(seen_by_backbone):
    trainer = make_trainer()
    delta = trainer.model.prompt.delta().detach().clone()
    assert delta.abs().max() > 1
    embedded, run = seen_by_backbone(trainer.model)
    batch, _ = one_step(trainer, MODEL)
    assert len(batch.draws) == 1
    assert len(embedded) == 1 and torch.equal(embedded[0], batch.draws[0]), "both views share the patch embedding"
    ((patches, tokens),) = run
    assert tokens is None and not patches.requires_grad
    raw, prompted = patches.chunk(2)
    assert torch.equal(raw, patches_of(trainer, batch.draws[0]))
    assert_same(prompted, patches_of(trainer, batch.draws[0] + delta), LONGEST_SUM, sums=2)


def test_stage_one_prompts_both_draws(seen_by_backbone):
    trainer = make_trainer()
    delta = trainer.model.prompt.delta().detach().clone()
    _, run = seen_by_backbone(trainer.model)
    batch, _ = one_step(trainer, PROMPT)
    ((patches, _),) = run
    assert_same(patches, patches_of(trainer, torch.cat(batch.draws) + delta), LONGEST_SUM, sums=2)
    assert patches.requires_grad
    assert not torch.equal(batch.draws[0], batch.draws[1])


def test_simgcd_sees_both_draws_as_they_are(seen_by_backbone):
    trainer = make_trainer(make_config("simgcd"))
    _, run = seen_by_backbone(trainer.model)
    batch, _ = one_step(trainer, RAW)
    ((patches, _),) = run
    assert torch.equal(patches, patches_of(trainer, torch.cat(batch.draws)))
    assert not patches.requires_grad


def test_deep_tokens_go_only_with_prompted_views(seen_by_backbone):
    trainer = make_trainer(make_config(kind="vpt"))
    _, run = seen_by_backbone(trainer.model)
    batch, _ = one_step(trainer, MODEL)
    (raw, nothing), (prompted, tokens) = run
    assert nothing is None
    assert torch.equal(raw, prompted), "tokens leave the pixels alone"
    assert torch.equal(raw, patches_of(trainer, batch.draws[0]))
    assert tokens.shape == (4, 2, 96)


def test_the_objective_gets_view_one_before_view_two_with_the_labels():
    got = {}

    def objective(step):
        got.update(step.rows, labels=step.labels, labelled=step.labelled, images=step.images, epoch=step.clock.epoch)
        return GcdLoss(*[step.logits.sum()] * 6)

    trainer = make_trainer(plan=StagePlan("x", 2, Always(MODEL), objective, prompt_kind="spatial"))
    batch = normalised(trainer, trainer.stage_batches().of_epoch(0)[0])
    step_loss(trainer.model, batch, MODEL, trainer.plan, Clock(1, 2, 5, 10), trainer.compute)
    model, images = trainer.model, batch.draws[0]
    for name, position in (("projections", 0), ("logits", 1)):
        expected = torch.cat([model(images, prompted=False)[position], model(images, prompted=True)[position]])
        assert_same(got[name], expected, terms_of(model))
    truth = trainer.data.labels[batch.indices.numpy()]
    assert got["labels"].tolist() == truth.tolist()
    assert got["labelled"].tolist() == (truth >= 0).tolist()
    assert 0 < got["labelled"].sum() < len(truth)
    assert got["epoch"] == 1


def test_no_label_of_an_unlabelled_image_reaches_a_batch():
    trainer = make_trainer()
    for epoch in range(3):
        for batch in trainer.stage_batches().of_epoch(epoch):
            unlabelled = np.isin(batch.indices.numpy(), trainer.data.unlabelled)
            assert (batch.labels.numpy()[unlabelled] == -1).all()
            assert (batch.labels.numpy()[~unlabelled] >= 0).all()


# --- the optimiser ---


def test_weight_decay_is_for_matrices_only():
    matrix, vector, scalar = (torch.nn.Parameter(torch.zeros(shape)) for shape in ((2, 3), (3,), ()))
    with_decay, without = parameter_groups([vector, matrix, scalar], 0.1)
    assert (with_decay["params"], with_decay["weight_decay"]) == ([matrix], 0.1)
    assert (without["params"], without["weight_decay"]) == ([vector, scalar], 0.0)


def test_weight_decay_by_group():
    trainer = make_trainer()
    decay = {}
    for optimiser in trainer.optimisers.values():
        for group in optimiser.param_groups:
            decay.update({id(p): group["weight_decay"] for p in group["params"]})
    for name, p in trainer.model.named_parameters():
        if id(p) in decay:
            of_the_model = name.startswith(("head.", "backbone."))
            assert decay[id(p)] == (5e-4 if of_the_model and p.ndim > 1 else 0.0), name
    trained = names_with(trainer.model, "prompt.", "head.", "backbone.vit.blocks.3.")
    assert len(decay) == len(trained)
    assert set(trainer.trained_names()) == trained


@pytest.mark.parametrize("phase", [MODEL, PROMPT, JOINT])
def test_sgd_with_momentum_by_hand(phase):
    """v = m v + g + decay w, w = w - rate v, in float64, for three steps."""
    rate, decay, momentum = 0.03, 0.1, 0.9
    trainer = make_trainer(plan=constant_plan(rate, decay, momentum, phase))
    moving = {n: p for n, p in trainer.model.named_parameters() if n in trainer.trained_names()}
    expected = {n: p.detach().double() for n, p in moving.items()}
    velocity = {n: torch.zeros_like(p) for n, p in expected.items()}
    for number in range(3):
        one_step(trainer, phase, number)
        for name, p in moving.items():
            if p.grad is None:
                continue
            gradient = p.grad.double() + (decay * expected[name] if p.ndim > 1 else 0.0)
            velocity[name] = momentum * velocity[name] + gradient
            expected[name] = expected[name] - rate * velocity[name]
            assert_same(p, expected[name], terms=4, sums=3)
    assert any(v.abs().max() > 1e-4 for v in velocity.values())


def test_the_gradients_of_one_step_are_not_added_to_the_next():
    """The gradient at the end of the second step is that of the second batch alone."""
    trainer = make_trainer(plan=constant_plan(0.0, 0.0, 0.0, MODEL))
    one_step(trainer, MODEL, 0)
    one_step(trainer, MODEL, 1)
    after_both = {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None}
    fresh = make_trainer(plan=constant_plan(0.0, 0.0, 0.0, MODEL))
    one_step(fresh, MODEL, 1)
    assert after_both
    for name, p in fresh.model.named_parameters():
        if p.grad is not None:
            assert torch.equal(after_both[name], p.grad), name


def test_learning_rates_through_both_phases():
    """Two epochs of five batches, warm-up of four steps: the prompt's rate moves in steps of the other phase too."""
    trainer = make_trainer(make_config(prompt_learning_rate=8.0, learning_rate=0.4, final_ratio=0.1))
    seen = []
    inner = trainer.train_step

    def watched(batch, phase, number):
        parts = inner(batch, phase, number)
        rates = {g: {x["lr"] for x in o.param_groups} for g, o in trainer.optimisers.items()}
        seen.append((phase.name, rates["prompt"], rates["model"]))
        return parts

    trainer.train_step = watched
    trainer.run_epoch()
    report = trainer.run_epoch()
    assert [phase for phase, *_ in seen] == ["prompt", "model", "model", "prompt", "prompt"] * 2
    down = [4 * (1 + math.cos(math.pi * i / 6)) for i in range(6)]
    assert down[3] == pytest.approx(4.0)
    prompt = [rates.pop() for _, rates, _ in seen]
    model = [rates.pop() for *_, rates in seen]
    assert prompt == pytest.approx([2.0, 4.0, 6.0, 8.0, *down])
    assert model == pytest.approx([0.4] * 5 + [0.22] * 5)
    assert not any(rates for _, *both in seen for rates in both), "one rate for all parameters of a group"
    assert report.learning_rates == {"prompt": pytest.approx(down[-1]), "model": pytest.approx(0.22)}


# --- epochs and reports ---


def test_the_report_has_means_by_phase():
    report = EpochReport(1)
    for value in (1.0, 2.0, 6.0):
        report.add(PROMPT, {"total": value, "info_nce": 2 * value})
    report.add(MODEL, {"total": 5.0, "info_nce": 0.0})
    assert report.steps == {"prompt": 3, "model": 1}
    assert report.losses["prompt"] == {"total": pytest.approx(3.0), "info_nce": pytest.approx(6.0)}
    assert report.losses["model"] == {"total": 5.0, "info_nce": 0.0}


def test_an_epoch_counts_itself_and_its_steps():
    trainer, seen = make_trainer(), []
    report = trainer.run_epoch(lambda done, total: seen.append((done, total)))
    assert seen == [(i, 5) for i in range(1, 6)]
    assert (report.epoch, trainer.epoch) == (1, 1)
    assert report.steps == {"prompt": 3, "model": 2}
    assert report.images_per_second * report.seconds == pytest.approx(60)
    assert trainer.run_epoch().epoch == 2


def test_an_epoch_knows_how_long_it_waited_for_images(monkeypatch):
    trainer, now = make_trainer(), [0.0]

    def taking(seconds, work):
        def slow(*words):
            now[0] += seconds
            return work(*words)

        return slow

    monkeypatch.setattr("sptnet.training.trainer.time.perf_counter", lambda: now[0])
    monkeypatch.setattr(EpochBatches, "__getitem__", taking(3, EpochBatches.__getitem__))
    monkeypatch.setattr(StageTrainer, "train_step", taking(1, StageTrainer.train_step))
    report = trainer.run_epoch()
    assert (report.seconds, report.waiting) == (20.0, 0.75)
    monkeypatch.setattr(StageTrainer, "refresh_memory", taking(20, StageTrainer.refresh_memory))
    report = trainer.run_epoch()
    assert (report.seconds, report.waiting) == (40.0, 0.375), "work before the epoch is no waiting"


@pytest.mark.parametrize(("waiting", "told"), [(0.099, ""), (0.35, ", 35% waiting for images")])
def test_waiting_is_told_where_it_matters(waiting, told):
    report = EpochReport(2, losses={"raw": {"total": 1.25}}, images_per_second=240.4, waiting=waiting)
    assert in_words({"stage": "simgcd", **vars(report)}, 20) == f"simgcd epoch 2/20  loss raw 1.250  240 images/s{told}"


def test_only_the_draws_that_a_phase_needs_are_made():
    trainer = make_trainer()
    assert [phase.name for phase in trainer.phases_of(0)] == ["prompt", "model", "model", "prompt", "prompt"]
    assert [len(batch.draws) for batch in trainer.stage_batches().of_epoch(0)] == [2, 1, 1, 2, 2]


def test_epochs_stages_and_seeds_show_other_batches():
    trainer = make_trainer()
    first = torch.cat(trainer.stage_batches().of_epoch(0).batches)
    assert torch.equal(first, torch.cat(make_trainer().stage_batches().of_epoch(0).batches))
    assert not torch.equal(first, torch.cat(trainer.stage_batches().of_epoch(1).batches))
    assert not torch.equal(first, torch.cat(make_trainer(seed=6).stage_batches().of_epoch(0).batches))
    trainer.stage = 0
    assert not torch.equal(first, torch.cat(trainer.stage_batches().of_epoch(0).batches))


def test_a_trainer_can_be_given_back_its_state():
    """Three epochs in a row, and three with a checkpoint and a new trainer after each: bitwise the same."""
    straight = make_trainer()
    for _ in range(3):
        straight.run_epoch()
    model = make_trainer()
    for _ in range(3):
        model.run_epoch()
        saved = model.checkpoint(frozen="x")
        copies = {name: value.detach().clone() for name, value in saved.tensors.items()}
        model = make_trainer()
        model.restore(type(saved)(saved.stage, saved.epoch, copies, saved.facts))
    assert model.epoch == 3
    assert changed(state_of(straight.model), model.model) == set()


# --- learning ---


@pytest.mark.parametrize(
    ("config", "phase"),
    [(make_config("simgcd"), "raw"), (make_config(strategy="prompts-only", prompt_learning_rate=1.0), "prompt")],
    ids=["simgcd", "prompts"],
)
def test_a_few_epochs_reduce_the_loss(config, phase):
    trainer = make_trainer(config)
    trainer.plan = StagePlan(
        trainer.plan.name, 5, trainer.plan.turns, stages_of(config)[-1].objective, trainer.plan.optimisers
    )
    trainer.epoch = 0
    # The batches of the same epoch before and after: other batches, and a sharper teacher, have other losses.
    batches = [normalised(trainer, batch) for batch in trainer.stage_batches().of_epoch(100)]
    phases = trainer.phases_of(0)

    def loss_now():
        with torch.no_grad():
            losses = [
                step_loss(trainer.model, batch, which, trainer.plan, Clock(100, 101, 0, 1), trainer.compute).total
                for batch, which in zip(batches, phases, strict=True)
            ]
        return float(torch.stack(losses).mean())

    before = loss_now()
    reports = [trainer.run_epoch() for _ in range(5)]
    assert loss_now() < 0.95 * before
    assert reports[-1].losses[phase]["total"] < reports[0].losses[phase]["total"]


# --- losses pinned to recorded ones ---

GOLDEN_RUNS = {
    "SimGCD": make_config("simgcd"),
    "SPTNet": make_config(kind="spatial+global"),
    "SPTNet-S": make_config(kind="shared"),
    "SPTNet-P": make_config(kind="spatial"),
    "end-to-end": make_config(strategy="end-to-end"),
    "VPT, prompts only": make_config(kind="vpt", strategy="prompts-only"),
}


def losses_of(config):
    """Phase and total loss of ten steps: two epochs of five."""
    return trained_losses(make_trainer(config))


def trained_losses(trainer):
    steps = []
    inner = trainer.train_step

    def watched(batch, phase, number):
        parts = inner(batch, phase, number)
        steps.append((phase.name, parts["total"]))
        return parts

    trainer.train_step = watched
    while len(steps) < STEPS:
        trainer.run_epoch()
    return {"phases": [name for name, _ in steps], "losses": [loss for _, loss in steps]}


def record_golden_losses():
    """Writes golden_losses.json from the code as it is."""
    torch.set_num_threads(1)
    recorded = {name: losses_of(config) for name, config in GOLDEN_RUNS.items()}
    GOLDEN.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


@pytest.mark.parametrize("name", GOLDEN_RUNS)
def test_ten_steps_give_the_recorded_losses(name):
    recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
    made = losses_of(GOLDEN_RUNS[name])
    assert made["phases"] == recorded["phases"]
    assert len(made["losses"]) == STEPS
    assert made["losses"] == pytest.approx(recorded["losses"], abs=GOLDEN_TOLERANCE)


@pytest.mark.parametrize("name", GOLDEN_RUNS)
def test_training_amplifies_no_more_than_assumed(name):
    """Change all weights by one part in a billion: losses, and how far weights move, change by few parts."""
    part, runs = 1e-9, []
    for change in (0.0, part):
        trainer, generator = in_double(make_trainer(GOLDEN_RUNS[name])), torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in trainer.model.parameters():
                noise = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
                parameter.mul_(1 + change * noise)
        start = state_of(trainer.model)
        losses = torch.tensor(trained_losses(trainer)["losses"], dtype=torch.float64)
        runs.append((losses, {name: p - start[name] for name, p in state_of(trainer.model).items()}))
    (losses, moves), (other_losses, other_moves) = runs
    changes = [(other_losses - losses).abs().max()]
    changes += [(other_moves[n] - move).abs().max() / move.abs().max() for n, move in moves.items() if move.any()]
    assert 1 < max(changes) / part < AMPLIFICATION


def test_the_recorded_runs_differ():
    recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert set(recorded) == set(GOLDEN_RUNS)
    finals = [run["losses"][-1] for run in recorded.values()]
    gaps = np.diff(sorted(finals))
    assert gaps.min() > 2 * GOLDEN_TOLERANCE, "else a pinned loss would not notice a mix-up"
    assert set(recorded["SPTNet"]["phases"]) == {"prompt", "model"}


def test_the_prompt_settings_are_those_asked_for():
    model = random_model()
    model.attach_prompt(PromptSettings(kind="spatial", width=2), torch.Generator().manual_seed(0))
    assert sum(p.numel() for p in model.group("prompt")) == (SIZE // 16) ** 2 * 6 * 2 * (16 + 16 - 4)


if __name__ == "__main__":
    record_golden_losses()


def ratio_trainer(ratio):
    plan = constant_plan(0.1, 0.0, 0.9, RAW)
    optimisers = {group: replace(settings, backbone_ratio=ratio) for group, settings in plan.optimisers.items()}
    return make_trainer(plan=replace(plan, optimisers=optimisers))


def test_the_backbone_learns_at_its_share_of_the_learning_rate():
    """The first step without momentum is the gradient times the learning rate, so a tenth of the rate moves a tenth."""
    moves = []
    for ratio in (1.0, 0.1, 0.0):
        trainer = in_double(ratio_trainer(ratio))
        before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
        one_step(trainer, RAW)
        moves.append({name: value.detach() - before[name] for name, value in trainer.model.named_parameters()})
    for name, whole in moves[0].items():
        share, size = (
            0.1 if name.startswith("backbone") else 1.0,
            float(before[name].abs().max()),
        )  # weights are rounded
        assert_same(moves[1][name], share * whole, terms=10, scale=size + 1e-3)
        assert not name.startswith("backbone") or not moves[2][name].any()
    assert any(whole.any() for name, whole in moves[0].items() if name.startswith("backbone"))


def test_a_ratio_of_one_is_the_published_optimiser():
    groups = ratio_trainer(1.0).optimisers["model"].param_groups
    assert len(groups) == 2 and "ratio" not in groups[0]
    slower = ratio_trainer(0.1)
    slower.set_learning_rates(0)
    assert [group["lr"] for group in slower.optimisers["model"].param_groups] == pytest.approx([0.1, 0.1, 0.01, 0.01])
