"""A few steps of every method and strategy on a shared global batch; run by torchrun, or called for one process."""

import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[1]))  # torchrun starts this file by itself

from helpers.systems import SYSTEMS, system_config, system_trainer, write_pictures
from helpers.trainers import make_config, make_trainer
from sptnet.model.mean_teacher import MeanTeacher
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.distributed import World, world
from sptnet.training.anchor import FeatureAnchor
from sptnet.training.trainer import StageTrainer

STRATEGIES = ("alternate", "end-to-end", "data-first", "model-first", "prompts-only", "random-prompts", "fine-tune")
CASES = {
    "simgcd": make_config("simgcd"),
    "gcd": make_config("gcd"),
    "vpt": make_config(kind="vpt"),
    "bank": make_config("simgcd"),
    "in parts": make_config(),
    **{f"sptnet-{strategy}": make_config(strategy=strategy) for strategy in STRATEGIES},
    **{system: system_config(system) for system in SYSTEMS},
    "distilled": system_config("promptcal"),
}
PICTURES = tempfile.TemporaryDirectory()  # of each process, with the same pictures; removed when it ends
PRECISIONS = {"float64": torch.float64, "float32": torch.float32}
BATCH = 13  # shares differ in size


def trainer_of(case: str) -> StageTrainer:
    """Trainer of a case; of a system, that of its last stage."""
    if case == "distilled":
        folder = write_pictures(Path(PICTURES.name))
        return system_trainer("promptcal", 0, batch_size=BATCH, promptcal={"distil_folder": str(folder)})
    if case in SYSTEMS:
        return system_trainer(case, batch_size=BATCH)
    trainer: StageTrainer = make_trainer(CASES[case], batch_size=BATCH)
    return trainer


def train(
    case: str, dtype: torch.dtype, processes: World, tokens: Path
) -> tuple[dict[str, torch.Tensor], list[object]]:
    """Train two epochs; returns the weights, and the losses per epoch."""
    trainer = trainer_of(case)
    trainer.world = processes
    trainer.accumulate = 4 if case == "in parts" else 1
    trainer.model.to(dtype)
    if trainer.teacher is not None:
        trainer.teacher = MeanTeacher(trainer.model, trainer.trained_names())
    if trainer.anchor is not None:
        anchor = trainer.plan.anchor
        trainer.anchor = FeatureAnchor(anchor, trainer.model, trainer.trained_names(), trainer.data, BATCH)
    normalise = trainer.data.maker.normalise
    trainer.data.maker.normalise = lambda views: normalise(views).to(dtype)
    if case == "bank":
        backbone = trainer.model.backbone
        tokens_per_view = (backbone.pixels.image_size // backbone.patch_size) ** 2 + 1
        trainer.bank = processes.local_rank_zero_first(
            lambda: TokenBank(tokens, len(trainer.data.ids), 2, tokens_per_view, backbone.dim, str(dtype))
        )
    losses = [trainer.run_epoch().losses for _ in range(2)]
    return {name: value.detach().contiguous() for name, value in trainer.model.state_dict().items()}, losses


def main() -> None:
    """Train all cases and write the weights of this rank."""
    out, processes = Path(sys.argv[1]), world()
    torch.set_num_threads(1)
    for case in CASES:
        for name, dtype in PRECISIONS.items():
            if case == "bank" and name == "float64":
                continue  # the tokens are always float16
            weights, losses = train(case, dtype, processes, out / f"tokens-{name}")
            save_file(weights, out / f"{case}-{name}-{processes.rank}.safetensors", {"losses": repr(losses)})


if __name__ == "__main__":
    main()
