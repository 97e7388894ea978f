"""Time float32 and bfloat16 on the CPU, by turns: a step from stored tokens, frozen blocks, a step of prompts.

    python benchmarks/precision.py
    OMP_NUM_THREADS=1 python benchmarks/precision.py --name vit_base_patch16_224 --size 224 --batch 32

The ratio is the median of those of the pairs. bfloat16 is quicker only on processors with instructions for it, such as
AVX512-BF16 or AMX. Use an idle machine.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import timm
import torch
from torch import Tensor

from sptnet.config import PromptSettings
from sptnet.data.pixel_format import PixelFormat
from sptnet.head import PrototypeHead
from sptnet.losses import gcd_loss
from sptnet.methods.phases import MODEL, PROMPT, RAW, Always, Phase
from sptnet.methods.stage_plan import Clock, StagePlan
from sptnet.model.backbone import Backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.compute import Compute, choose_compute
from sptnet.runtime.memory import memory_kept
from sptnet.training.batching.batches import BankedDraw, Batch
from sptnet.training.step import step_loss

CATEGORIES, HIDDEN, BOTTLENECK = 100, 2048, 256
FORMATS = [choose_compute("cpu", "float32"), choose_compute("cpu", "bf16")]


class Works:
    """A SimGCD model with random weights, a batch of random images, and their tokens in a bank."""

    def __init__(self, name: str, size: int, n: int, folder: Path):
        torch.manual_seed(0)
        vit = timm.create_model(name, pretrained=False, num_classes=0, img_size=size)
        backbone = Backbone(name, vit, PixelFormat(size)).eval()
        self.model = GcdModel(backbone, PrototypeHead(backbone.dim, CATEGORIES, HIDDEN, BOTTLENECK))
        self.model.attach_prompt(PromptSettings(kind="spatial"), torch.Generator().manual_seed(0))
        self.views = [torch.randn(n, 3, size, size) for _ in range(2)]
        self.labels = torch.where(torch.arange(n) % 2 == 0, torch.arange(n) % 50, -1)
        self.plan = StagePlan(
            "x", 1, Always(MODEL), lambda s: gcd_loss(s.projections, s.logits, s.labels, s.labelled, 0.07)
        )
        self.bank = TokenBank(folder, n, 2, backbone.tokens_per_view, backbone.dim, "benchmark")
        for view, pixels in enumerate(self.views):
            slots = torch.full((n,), view)
            self.bank.write(torch.arange(n), slots, self.frozen(pixels, FORMATS[0]).half())

    @torch.no_grad()
    def frozen(self, pixels: Tensor, compute: Compute) -> Tensor:
        """Tokens that enter the last block."""
        with compute.autocast():
            return self.model.backbone.enter_last_block(pixels)

    def step(self, phase: Phase, banked: bool, compute: Compute) -> Callable[[], None]:
        """Return a function that runs a training step, with learning rate 0."""
        n = len(self.labels)
        draws = [BankedDraw(torch.full((n,), i), torch.zeros(n, dtype=torch.bool)) for i in range(phase.draws)]
        batch = Batch(self.views, self.labels, self.labels >= 0, torch.arange(n), draws if banked else [])
        update = torch.optim.SGD([p for group in phase.trains for p in self.model.group(group)], lr=0.0, fused=True)

        def run() -> None:
            self.model.train_only(phase.trains)
            update.zero_grad()
            bank = self.bank if banked else None
            step_loss(self.model, batch, phase, self.plan, Clock(0, 1, 0, 1), compute, bank).total.backward()
            update.step()

        return run


def by_turns(what: str, make: Callable[[Compute], Callable[[], object]], repeats: int) -> None:
    """Time both formats by turns and print the medians and the ratio."""
    works = [make(compute) for compute in FORMATS]
    times: list[list[float]] = [[], []]
    with memory_kept():
        for _ in range(repeats + 1):
            for work, taken in zip(works, times, strict=True):
                start = time.perf_counter()
                work()
                taken.append(time.perf_counter() - start)
    ratios = sorted(slow / quick for slow, quick in zip(times[0][1:], times[1][1:], strict=True))
    slow, quick = (1000 * statistics.median(taken[1:]) for taken in times)
    spread = f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
    print(f"{what:<34} {slow:8.0f} ms {quick:8.0f} ms {statistics.median(ratios):6.2f} x {spread}", flush=True)


def main() -> None:
    """Print one line per kind of work: float32, bfloat16, ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="vit_small_patch14_dinov2", help="timm name of the backbone")
    parser.add_argument("--size", type=int, default=112, help="pixels per side of a view")
    parser.add_argument("--batch", type=int, default=128, help="images per step, with two views each")
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    with tempfile.TemporaryDirectory() as folder:
        works = Works(given.name, given.size, given.batch, Path(folder) / "bank")
        by_turns("SimGCD step from stored tokens", lambda c: works.step(RAW, True, c), 3 * given.repeats)
        by_turns("frozen blocks of one view", lambda c: lambda: works.frozen(works.views[0], c), given.repeats)
        by_turns("SPTNet step of the prompts", lambda c: works.step(PROMPT, False, c), given.repeats)


if __name__ == "__main__":
    main()
