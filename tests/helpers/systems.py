"""Trainers of the systems that SPTNet is compared with: a small seeded model on sixty digits."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from conftest import fill, random_backbone, subset_of_digits, training_data
from sptnet.config import Config
from sptnet.inference.features import Outputs
from sptnet.methods import method_of, stages_of
from sptnet.model.gcd_model import GcdModel
from sptnet.runtime.compute import choose_compute
from sptnet.training.trainer import StageTrainer

N_KNOWN, N_CATEGORIES = 5, 10
SHORT = {"epochs": 2, "learning_rate": 0.05}
WIDE = SHORT | {"output": 48, "n_init": 2}
SETTINGS = {
    "rankstats": {"rankstats": SHORT | {"top": 2, "ramp_up": 2}},
    "uno": {"uno": SHORT},
    "orca": {"orca": SHORT},
    # The random backbone makes all images alike, so that neighbours are nearer than in practice.
    "dccl": {"dccl": WIDE | {"neighbors": 4, "least_size": 2, "instances": 3, "warm_up": 1, "weight_epochs": 2}},
    "promptcal": {
        "promptcal": WIDE,
        "promptcal_calibrated": SHORT | {"bank": 40, "negatives": 8, "neighbors": 3, "ramp_up": 1, "decay": 0.9},
    },
    "cipr": {"cipr": SHORT | {"output": 48}},
    "gpc": {"gpc": WIDE | {"first_epoch": 0}},
    "mugcd": {"gcd": WIDE, "mugcd": SHORT | {"teacher_warm_up": 2}},
}
SYSTEMS = tuple(SETTINGS)


def system_config(method: str, **sections: dict[str, object]) -> Config:
    """Settings of a short training of a system."""
    config = Config(
        method=method,
        device="cpu",
        prompt={"tokens": 3},
        head={"hidden": 64, "bottleneck": 32},
        **SETTINGS[method],
    )
    return config.changed(**sections)


def system_trainer(method: str, stage: int = -1, batch_size: int = 12, seed: int = 5, **sections) -> StageTrainer:
    """Trainer of a stage of a system, with weights drawn by NumPy; sixty images, five batches of twelve."""
    config = system_config(method, **sections)
    plan, backbone = stages_of(config)[stage], random_backbone()
    head = method_of(config).head(config, backbone.dim, N_CATEGORIES)
    if plan.head is not None:
        head = plan.head(head, backbone.dim, N_CATEGORIES)
    fill(head, 1)
    model = GcdModel(backbone, head)
    model.n_token_outputs = plan.token_outputs
    prompt = config.prompt.model_copy(update={"kind": plan.prompt_kind})
    model.attach_prompt(prompt, torch.Generator().manual_seed(3))
    data = training_data(subset_of_digits(), backbone)
    compute = choose_compute("cpu", "float32")

    def look(indices):
        views = torch.stack([data.maker.centre_view(data.store[int(i)]) for i in indices])
        pixels = data.maker.normalise(views).to(next(model.parameters()).dtype)
        with torch.no_grad():
            features = model.features(pixels)
            return Outputs(features, model.head.classify(features))

    return StageTrainer(
        model, plan, data, compute, stage=1, batch_size=batch_size, seed=seed, n_known=N_KNOWN, look=look
    )


def write_pictures(folder: Path, n: int = 7) -> Path:
    """Write a few noisy pictures, the same for every folder."""
    random = np.random.RandomState(0)
    for i in range(n):
        Image.fromarray(random.randint(0, 256, (40, 44, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return folder


def state_of(trainer: StageTrainer) -> dict[str, torch.Tensor]:
    """Weights of model and teacher, and the memory, by name."""
    tensors = {f"model.{name}": value.detach().clone() for name, value in trainer.model.state_dict().items()}
    if trainer.teacher is not None:
        weights = trainer.teacher.model.state_dict()
        tensors |= {f"teacher.{name}": value.detach().clone() for name, value in weights.items()}
    return tensors | {f"memory.{name}": value.clone() for name, value in trainer.memory.items()}
