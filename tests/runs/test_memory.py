"""Training in less memory: batches in parts, blocks computed twice; the numbers stay."""

from contextlib import contextmanager
from functools import cache

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import sptnet.training.trainer
from conftest import SIZE
from helpers.rounding import MARGIN, PASSES, assert_same, assert_same_training, terms_of, training_rounding
from helpers.trainers import constant_plan, in_double, make_config, make_trainer, normalised, one_step
from sptnet.config import Config
from sptnet.data.pixel_format import PixelFormat
from sptnet.head import ContrastiveHead
from sptnet.methods.phases import JOINT, MODEL, PROMPT, RAW
from sptnet.model.backbone import Backbone, build_backbone
from sptnet.model.token_bank import TokenBank
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.compute import Compute
from sptnet.training.accumulate import InParts, join_views, split_batch, split_views
from sptnet.training.batching.batches import BankedDraw, Batch
from sptnet.training.step import enter_last_block, leave_last_block

CASES = {
    "simgcd": make_config("simgcd"),
    "gcd": make_config("gcd"),
    "sptnet": make_config(),
    "end-to-end": make_config(strategy="end-to-end"),
    "vpt": make_config(kind="vpt"),
}
ROWS = 24
"""Two views of each of twelve images."""


@cache
def trained(case, accumulate=1, checkpointing=False, trainable_blocks=1):
    """Weights before and after five steps in double precision, and losses; in turns, prompts have three of them."""
    config = CASES[case]
    trainer = make_trainer(config, trainable_blocks=trainable_blocks)
    if config.method == "gcd":
        torch.manual_seed(0)
        trainer.model.head = ContrastiveHead(trainer.model.backbone.dim, 10, hidden=16, bottleneck=8, output=32)
        trainer = type(trainer)(
            trainer.model, trainer.plan, trainer.data, trainer.compute, stage=1, batch_size=12, seed=5
        )
    trainer.accumulate, trainer.model.backbone.checkpointing = accumulate, checkpointing
    return epoch_of(in_double(trainer))


def epoch_of(trainer):
    start = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    losses = trainer.run_epoch().losses
    return start, trainer.model.state_dict(), losses


def assert_alike(one, other):
    (_, weights, losses), (start, expected, expected_losses) = one, other
    assert_same_training(weights, expected, start, steps=5, rows=ROWS)
    assert losses.keys() == expected_losses.keys()
    dtype = next(iter(expected.values())).dtype
    for phase, parts in expected_losses.items():
        assert losses[phase] == pytest.approx(parts, abs=training_rounding(ROWS, dtype))


# --- a batch in parts ---


@pytest.mark.parametrize("case", CASES)
def test_parts_train_what_the_whole_batch_trains(case):
    assert_alike(trained(case, accumulate=5), trained(case))  # of twelve images: two or three a part


def test_parts_with_blocks_that_train_before_the_last():
    assert_alike(trained("sptnet", 4, trainable_blocks=2), trained("sptnet", trainable_blocks=2))


def test_more_parts_than_images_are_one_image_each():
    assert_alike(trained("simgcd", 1000), trained("simgcd"))


def test_parts_of_batches_from_a_bank(tmp_path):
    results = []
    for accumulate in (1, 5):
        trainer = make_trainer(make_config())
        backbone = trainer.model.backbone
        # The second finds the bank filled, as a token may round up or down depending on the size of its batch.
        trainer.bank = TokenBank(tmp_path, len(trainer.data.ids), 2, 5, backbone.dim, "")
        trainer.accumulate = accumulate
        results.append(epoch_of(trainer))
    assert_alike(*results)


@pytest.mark.parametrize("phase", [RAW, PROMPT, MODEL, JOINT], ids=lambda phase: phase.name)
@pytest.mark.parametrize("kind", ["spatial+global", "vpt"])
def test_the_last_pass_repeats_the_first(phase, kind):
    trainer = in_double(make_trainer(make_config(kind=kind)))
    trainer.model.train()
    trainer.model.train_only(phase.trains)
    batches = trainer.stage_batches().of_epoch(0)
    batches.phases = [phase] * len(batches)
    parts = InParts(trainer.model, normalised(trainer, batches[0]), phase, trainer.compute, None, 3)
    again = []
    for part in parts.parts:
        entering = enter_last_block(trainer.model, part, phase.views, trainer.compute)
        again.append(leave_last_block(trainer.model, entering, phase.views, trainer.compute))
    assert set(parts.outputs) == {"projections", "logits", "features"}
    for name, made in parts.outputs.items():
        assert_same(made, join_views([rows[name] for rows in again]), terms_of(trainer.model))


def test_no_backbone_draws_anything_at_random():
    """Dropout or stochastic depth would make the last pass another one than the first."""
    for name in ("vit_base_patch16_224.dino", "vit_base_patch14_dinov2.lvd142m", "vit_small_patch16_dinov3.lvd1689m"):
        with torch.device("meta"):
            backbone = build_backbone(name, pretrained=False)
        rates = [module.p for module in backbone.modules() if isinstance(module, nn.Dropout)]
        assert rates and set(rates) == {0.0}
        assert not [module for module in backbone.modules() if "DropPath" in type(module).__name__]


@pytest.mark.parametrize(("phase", "prefix_runs"), [(RAW, 3), (MODEL, 3), (PROMPT, 6), (JOINT, 6)])
def test_frozen_blocks_run_twice_only_where_a_prompt_trains_before_them(phase, prefix_runs, monkeypatch):
    trainer, runs = make_trainer(), []
    trainer.accumulate = 3
    original = trainer.model.backbone.run_to_last_block
    monkeypatch.setattr(
        trainer.model.backbone, "run_to_last_block", lambda *words: runs.append(len(words[0])) or original(*words)
    )
    one_step(trainer, phase)
    assert runs == [8] * prefix_runs  # two views of four images


@contextmanager
def kept_bytes(model):
    """What graphs keep beside the weights: a list that grows by the bytes of each tensor."""
    weights, kept = {p.untyped_storage().data_ptr() for p in model.parameters()}, []

    def keep(tensor):
        kept.append(0 if tensor.untyped_storage().data_ptr() in weights else tensor.nbytes)
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept


def test_parts_need_a_share_of_the_memory(monkeypatch):
    """The graph of a quarter of the batch is the largest there is; it is gone when the next begins."""
    trainer, graphs = make_trainer(plan=constant_plan(0.0, 0.0, 0.0, PROMPT)), []
    with kept_bytes(trainer.model) as kept:
        one_step(trainer, PROMPT)
    whole = sum(kept)
    trainer.accumulate, original = 4, torch.autograd.backward
    with kept_bytes(trainer.model) as kept:

        def backward(*words, **keywords):
            graphs.append(sum(kept))
            kept.clear()
            original(*words, **keywords)

        monkeypatch.setattr(torch.autograd, "backward", backward)
        one_step(trainer, PROMPT)
    loss, *parts = graphs
    assert len(parts) == 4 and loss < whole / 10
    # A part keeps a quarter, and a few per cent that do not depend on its size, such as the picture of the prompts.
    assert whole / 4 < max(parts) < 1.1 * whole / 4


def test_loss_scaling_reaches_the_weights_through_the_parts():
    class Scaler:
        def scale(self, loss):
            return loss * 1024.0

        def step(self, optimiser):
            pass

        def update(self):
            pass

    gradients = []
    for accumulate in (1, 3):
        trainer = in_double(make_trainer(plan=constant_plan(0.1, 0.0, 0.0, JOINT)))
        trainer.accumulate = accumulate
        trainer.scalers = dict.fromkeys(trainer.scalers, Scaler())
        one_step(trainer, JOINT)
        gradients.append({n: p.grad for n, p in trainer.model.named_parameters() if p.grad is not None})
    whole, in_parts = gradients
    assert whole.keys() == in_parts.keys() and len(whole) > 10
    largest = max(float(gradient.abs().max()) for gradient in whole.values())  # some are zero but for rounding
    for name, gradient in whole.items():
        assert_same(in_parts[name], gradient, terms_of(trainer.model), PASSES, scale=largest)


def test_parts_in_half_precision():
    """As on a graphics card: outputs, and so their gradients, are in the format of the autocast."""
    gradients = []
    for accumulate in (1, 3):
        trainer = make_trainer(plan=constant_plan(0.1, 0.0, 0.0, PROMPT))
        trainer.compute, trainer.accumulate = Compute(torch.device("cpu"), torch.bfloat16), accumulate
        one_step(trainer, PROMPT)
        gradients.append(torch.cat([p.grad.flatten() for p in trainer.model.group("prompt")]))
    whole, in_parts = gradients
    # Every product is rounded to bfloat16 once per pass. With errors of relative size e the cosine is 1 - e^2 / 2.
    products = sum(parameter.ndim > 1 for parameter in trainer.model.backbone.parameters())
    error = (2 * PASSES * products) ** 0.5 * torch.finfo(torch.bfloat16).eps / 2
    assert torch.cosine_similarity(whole, in_parts, dim=0) > 1 - MARGIN * error**2 / 2


def test_a_batch_is_split_with_all_that_belongs_to_it():
    made = [torch.tensor([True, False, True, True, False]), torch.tensor([False] * 4 + [True])]
    draws = [torch.arange(3.0).view(3, 1, 1, 1), torch.full((1, 1, 1, 1), 9.0)]
    banked = [BankedDraw(torch.arange(5) + 10 * i, m) for i, m in enumerate(made)]
    labels = torch.arange(7)
    batch = Batch(draws, labels, labels >= 3, labels + 100, banked, slice(2, 7))
    first, second = split_batch(batch, 2)
    assert (first.own.tolist(), second.own.tolist()) == ([102, 103], [104, 105, 106])
    assert (first.share, second.share) == (slice(2, 4), slice(4, 7))
    assert [d.flatten().tolist() for d in first.draws] == [[0.0], []]
    assert [d.flatten().tolist() for d in second.draws] == [[1.0, 2.0], [9.0]]
    assert [d.views.tolist() for d in second.banked] == [[2, 3, 4], [12, 13, 14]]
    assert [d.made.tolist() for d in first.banked] == [[True, False], [False, False]]
    for part in (first, second):
        assert part.labels is labels and part.indices is batch.indices


@pytest.mark.parametrize(("images", "parts", "sizes"), [(5, 2, [2, 3]), (3, 8, [1, 1, 1]), (4, 1, [4]), (0, 3, [0])])
def test_parts_are_nearly_equal_and_never_empty_for_nothing(images, parts, sizes):
    labels = torch.arange(images)
    batch = Batch([torch.rand(images, 3, 2, 2)], labels, labels >= 0, labels)
    split = split_batch(batch, parts)
    assert [len(part.own) for part in split] == [len(part.draws[0]) for part in split] == sizes
    assert torch.equal(torch.cat([part.draws[0] for part in split]), batch.draws[0])


def test_rows_of_views_come_apart_and_together_again():
    parts = [torch.tensor([[1.0], [2.0], [11.0], [12.0]]), torch.tensor([[3.0], [13.0]])]
    joined = join_views(parts)
    assert joined.flatten().tolist() == [1.0, 2.0, 3.0, 11.0, 12.0, 13.0]
    for part, again in zip(parts, split_views(joined, [2, 1]), strict=True):
        assert torch.equal(part, again)


# --- blocks computed twice ---


@pytest.mark.parametrize("case", ["sptnet", "end-to-end", "vpt"])
def test_blocks_computed_twice_give_the_same_numbers(case):
    assert_alike(trained(case, checkpointing=True), trained(case))


def test_both_ways_to_save_memory_together():
    assert_alike(trained("sptnet", 3, checkpointing=True), trained("sptnet"))


def deep_backbone():
    vit = VisionTransformer(img_size=SIZE, patch_size=8, embed_dim=24, depth=12, num_heads=3, num_classes=0)
    return Backbone("deep", vit, PixelFormat(SIZE))


@pytest.mark.parametrize("tokens", [None, torch.randn(12, 2, 24).double()], ids=["pixels", "tokens"])
def test_blocks_computed_twice_keep_less_than_half(tokens):
    backbone, images = deep_backbone().double(), torch.randn(4, 3, SIZE, SIZE).double()
    images.requires_grad_(tokens is None)
    tokens = None if tokens is None else tokens.requires_grad_()
    kept, gradients = [], []
    for backbone.checkpointing in (False, True):
        with kept_bytes(backbone) as saved:
            loss = backbone(images, tokens).square().sum()
        loss.backward()
        source = images if tokens is None else tokens
        gradients.append(source.grad.clone())
        source.grad = None
        kept.append(sum(saved))
    assert kept[1] < kept[0] / 2
    assert_same(gradients[1], gradients[0], terms_of(backbone), PASSES)


def test_nothing_is_set_aside_where_no_gradient_is_wanted(monkeypatch):
    backbone = deep_backbone()
    backbone.checkpointing = True
    monkeypatch.setattr("sptnet.model.backbone.checkpoint", lambda *_, **__: pytest.fail("no gradient goes back"))
    with torch.no_grad():
        assert backbone(torch.randn(1, 3, SIZE, SIZE)).shape == (1, 24)


# --- whole runs ---


def test_a_run_takes_its_settings(tiny_config, few_digits, tmp_path, monkeypatch, run_it):
    seen = set()
    original = sptnet.training.trainer.StageTrainer.train_step

    def watched(self, *words):
        backbone = self.model.backbone
        seen.add((self.plan.name, self.accumulate, backbone.checkpointing))
        return original(self, *words)

    monkeypatch.setattr(sptnet.training.trainer.StageTrainer, "train_step", watched)
    saving = {"accumulate": 3, "checkpointing": True}
    short = {"simgcd": {"epochs": 1}, "sptnet": {"epochs": 1}}
    folder = run_it(tmp_path / "run", tiny_config.changed(training=saving, **short), few_digits)
    assert seen == {("simgcd", 3, True), ("sptnet", 3, True)}
    training = RunFolder(folder).config().training
    assert (training.accumulate, training.checkpointing) == (3, True)
    plain = run_it(tmp_path / "plain", tiny_config.changed(**short), few_digits)
    for one, other in zip(RunFolder(folder).metrics(), RunFolder(plain).metrics(), strict=True):
        for phase, parts in other["losses"].items():
            assert one["losses"][phase] == pytest.approx(parts, abs=training_rounding(ROWS))


def test_nothing_is_saved_unasked():
    training = Config().training
    assert (training.accumulate, training.checkpointing) == (1, False)
