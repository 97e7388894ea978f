"""Trainers of a small seeded model on sixty digits, and single steps of them."""

import torch

from conftest import random_model, subset_of_digits, training_data
from sptnet.config import Config
from sptnet.methods import stages_of
from sptnet.methods.phases import Always
from sptnet.methods.stage_plan import Optimiser, StagePlan
from sptnet.runtime.compute import choose_compute
from sptnet.training.trainer import StageTrainer


def make_config(method="sptnet", kind="spatial+global", strategy="alternate", **sptnet):
    """Settings of a short training."""
    return Config(
        method=method,
        device="cpu",
        prompt={"kind": kind, "border": 4, "tokens": 2},
        simgcd={"epochs": 2, "learning_rate": 0.05, "teacher_warm_up": 2},
        sptnet={"strategy": strategy, "epochs": 2, "k": 2, "learning_rate": 0.05, "teacher_warm_up": 2}
        | {"prompt_learning_rate": 0.5, "prompt_warm_up": 4}
        | sptnet,
    )


def make_trainer(config=None, plan=None, trainable_blocks=1, batch_size=12, seed=5):
    """Trainer of the last stage of a method, with new prompts; sixty images, five batches of twelve."""
    config = config or make_config()
    plan = plan or stages_of(config)[-1]
    model = random_model(trainable_blocks)
    prompt = config.prompt.model_copy(update={"kind": plan.prompt_kind})
    model.attach_prompt(prompt, torch.Generator().manual_seed(3))
    data = training_data(subset_of_digits(), model.backbone)
    compute = choose_compute("cpu", "float32")
    return StageTrainer(model, plan, data, compute, stage=1, batch_size=batch_size, seed=seed)


def in_double(trainer):
    """Make a trainer compute in float64."""
    trainer.model.double()
    normalise = trainer.data.maker.normalise
    trainer.data.maker.normalise = lambda views: normalise(views).double()
    return trainer


def one_step(trainer, phase, number=0):
    """Train one step of a phase; returns the normalised batch, and the result."""
    batches = trainer.stage_batches().of_epoch(0)
    batches.phases = [phase] * len(batches)
    batch = batches[number]
    return normalised(trainer, batch), trainer.train_step(batch, phase, number)


def normalised(trainer, batch):
    """The batch as the trainer uses it."""
    return batch.to(trainer.compute.device, trainer.data.maker)


def constant_plan(rate, weight_decay, momentum, phase, kind="spatial"):
    """Plan of one phase with a constant learning rate."""
    settings = Optimiser(lambda epoch, step, epochs, steps: rate, weight_decay, momentum)
    plan = stages_of(make_config(kind=kind))[-1]
    optimisers = {"prompt": settings, "model": settings}
    return StagePlan("x", 2, Always(phase), plan.objective, optimisers, kind)
