"""Peak memory of the most expensive step: two prompted views per image, a graph through all blocks.

    python benchmarks/memory.py
    python benchmarks/memory.py --steps 16 128/accumulate=8

A step is written BATCH or BATCH/setting=value/... with `accumulate` and `checkpointing`. Each is measured in a
separate process, which also holds model, optimiser and images; the peak is that of the whole process.
"""

import argparse
import subprocess
import sys
import time

import numpy as np
import torch
from steps import BORDER, BOTTLENECK, CATEGORIES, CPU, HIDDEN, fresh_backbone, peak_bytes

from sptnet.config import PromptSettings
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.head import PrototypeHead
from sptnet.losses import gcd_loss
from sptnet.methods.phases import PROMPT, Always
from sptnet.methods.stage_plan import Optimiser, StagePlan
from sptnet.model.gcd_model import GcdModel
from sptnet.runtime.memory import memory_kept
from sptnet.training.batching.batches import TrainingData
from sptnet.training.trainer import StageTrainer

STEPS = ["16", "16/accumulate=4", "16/checkpointing=1", "16/accumulate=4/checkpointing=1", "128/accumulate=8"]


def measure(name: str, batch: int, accumulate: int, checkpointing: bool) -> None:
    """Print the peak in bytes and the seconds of one step."""
    torch.manual_seed(0)
    backbone = fresh_backbone(name)
    backbone.checkpointing = checkpointing
    model = GcdModel(backbone, PrototypeHead(backbone.dim, CATEGORIES, HIDDEN, BOTTLENECK))
    model.attach_prompt(PromptSettings(kind="spatial+global", border=BORDER), torch.Generator().manual_seed(0))
    images = [np.random.RandomState(i).randint(0, 256, (256, 256, 3), dtype=np.uint8) for i in range(batch)]
    indices = np.arange(batch)
    data = TrainingData(
        ImageStore(images, backbone.pixels),
        ViewMaker(backbone.pixels),
        np.where(indices % 2 == 0, indices % 100, -1),
        indices[::2],
        indices[1::2],
        tuple(map(str, indices)),
    )
    plan = StagePlan(
        "memory",
        1,
        Always(PROMPT),
        lambda s: gcd_loss(s.projections, s.logits, s.labels, s.labelled, 0.07),
        {"prompt": Optimiser(lambda *_: 1.0, 0.0, 0.9)},
        "spatial+global",
    )
    trainer = StageTrainer(model, plan, data, CPU, stage=0, batch_size=batch, seed=0, accumulate=accumulate)
    views = trainer.stage_batches().of_epoch(0)[0]
    start = time.perf_counter()
    with memory_kept():
        trainer.train_step(views, PROMPT, 0)
    print(peak_bytes(), time.perf_counter() - start)


def measure_elsewhere(step: str, name: str, threads: int) -> tuple[float, float]:
    """Measure a step in a separate process; return peak bytes and seconds."""
    words = [sys.executable, __file__, "--name", name, "--threads", str(threads), "--measure", step]
    peak, seconds = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return float(peak), float(seconds)


def parsed(step: str) -> tuple[int, int, bool]:
    """Batch size, accumulation and checkpointing of a step written as text."""
    batch, *settings = step.split("/")
    given = dict(setting.split("=") for setting in settings)
    return int(batch), int(given.get("accumulate", 1)), given.get("checkpointing", "0") == "1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="vit_base_patch16_224")
    parser.add_argument("--steps", nargs="+", default=STEPS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    if settings.measure:
        measure(settings.name, *parsed(settings.measure))
        return
    print("| step | peak | seconds |\n|---|---|---|")
    for step in settings.steps:
        peak, seconds = measure_elsewhere(step, settings.name, settings.threads)
        print(f"| {step} | {peak / 1e9:.2f} GB | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
