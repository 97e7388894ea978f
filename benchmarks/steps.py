"""Time and memory of training steps, predictions and the loader: the published form compared with this package.

    python benchmarks/steps.py
    python benchmarks/steps.py --name vit_small_patch16_224 --repeats 3

Both forms run in alternation in one process, after one untimed call each; the result is the median of the ratios of the
pairs. The ratio of the best times is printed too, since other work on the machine can only make a call longer. The
limit is the time of the matrix products that a step must compute. Use an idle machine. Memory is measured in a separate
process per form.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from plain_form import PlainModel, plain_views
from torch import Tensor, nn

from sptnet.config import PromptSettings
from sptnet.data.pixel_format import PixelFormat
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.head import PrototypeHead
from sptnet.losses import gcd_loss
from sptnet.methods.phases import MODEL, PROMPT, RAW, Always, Phase
from sptnet.methods.stage_plan import Clock, StagePlan
from sptnet.model.backbone import Backbone
from sptnet.model.folding import fold_prompt
from sptnet.model.gcd_model import GcdModel
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.memory import memory_kept
from sptnet.training.batching.batches import BankedDraw, Batch, EpochBatches, TrainingData
from sptnet.training.batching.loader import iterate_batches
from sptnet.training.step import step_loss

CATEGORIES, HIDDEN, BOTTLENECK, BORDER = 200, 2048, 256, 30
CPU = choose_compute("cpu", "float32")
PRODUCTS = "the products of all blocks but the last"


class Forms:
    """One model in both forms, with the same weights, prompts and images."""

    def __init__(self, settings: argparse.Namespace, folder: Path):
        torch.manual_seed(0)
        size, n = 224, settings.batch
        kind = PromptSettings(kind="spatial+global", border=BORDER)
        prompt = GcdModel(fresh_backbone(settings.name), PrototypeHead(8, 2, 8, 8))
        prompt.attach_prompt(kind, torch.Generator().manual_seed(0))
        self.plain = PlainModel(settings.name, prompt.prompt.delta().detach(), CATEGORIES, HIDDEN, BOTTLENECK)
        backbone = fresh_backbone(settings.name)
        backbone.vit.load_state_dict(self.plain.vit.state_dict())
        self.ours = GcdModel(backbone, PrototypeHead(backbone.dim, CATEGORIES, HIDDEN, BOTTLENECK))
        self.ours.head.load_state_dict(self.plain.head.state_dict())
        self.ours.attach_prompt(kind, torch.Generator().manual_seed(0))
        self.one, self.two = torch.randn(n, 3, size, size), torch.randn(n, 3, size, size)
        self.labels = torch.where(torch.arange(n) % 2 == 0, torch.arange(n) % 100, -1)
        self.plan = StagePlan(
            "x", 1, Always(MODEL), lambda s: gcd_loss(s.projections, s.logits, s.labels, s.labelled, 0.07)
        )
        length = (size // backbone.patch_size) ** 2 + 1
        self.bank = TokenBank(folder / "bank", n, 2, length, backbone.dim, "benchmark")
        images, views = torch.arange(n), torch.zeros(n, dtype=torch.int64)
        with torch.no_grad():
            for view, pixels in enumerate((self.one, self.two)):
                self.bank.write(images, views + view, backbone.enter_last_block(pixels).half())

    def step(self, phase: Phase, banked: bool = False) -> Callable[[], float]:
        """A training step of this package in a phase, optionally from stored tokens."""
        made = [torch.full((len(self.one),), view.prompted) for view in phase.views]
        draws = [BankedDraw(torch.full((len(self.one),), i), made[i]) for i in range(phase.draws)]
        pixels = [self.one, self.two][: phase.draws]
        batch = Batch(pixels, self.labels, self.labels >= 0, torch.arange(len(self.one)), draws if banked else [])
        update = descent([p for group in phase.trains for p in self.ours.group(group)], fused=True)

        def run() -> float:
            self.ours.train_only(phase.trains)
            update.zero_grad()
            loss = step_loss(self.ours, batch, phase, self.plan, Clock(0, 1, 0, 1), CPU, self.bank if banked else None)
            loss.total.backward()
            update.step()
            return float(loss.total.detach())

        return run

    def read_bank(self) -> list[Tensor]:
        """Read the tokens of both views."""
        images, first = torch.arange(len(self.one)), torch.zeros(len(self.one), dtype=torch.int64)
        return [self.bank.read(images, first + view).float() for view in (0, 1)]

    def plain_step(self, loss: Callable[[], Tensor], trains: list[nn.Parameter]) -> Callable[[], float]:
        """A training step of the published form."""
        update = descent(trains)

        def run() -> float:
            for parameter in self.plain.parameters():  # in stage one the heads have gradients too
                parameter.grad = None
            total = loss()
            total.backward()
            update.step()
            return float(total.detach())

        return run

    def plain_stage_one(self) -> Callable[[], float]:
        """Stage-one step of the published form."""
        return self.plain_step(lambda: self.plain.stage_one(self.one, self.two, self.labels).total, [self.plain.prompt])

    def plain_stage_two(self) -> Callable[[], float]:
        """Stage-two step of the published form."""
        return self.plain_step(
            lambda: self.plain.stage_two(self.one, self.labels).total, self.plain.last_block_and_head()
        )

    def plain_simgcd(self) -> Callable[[], float]:
        """SimGCD step of the published form."""
        trains = self.plain.last_block_and_head()
        return self.plain_step(lambda: self.plain.simgcd(self.one, self.two, self.labels).total, trains)


def descent(parameters: list[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
    """SGD with learning rate 0: the work of an update, with the same weights in every step."""
    return torch.optim.SGD(parameters, lr=0.0, momentum=0.9, weight_decay=5e-5, fused=fused)


def fresh_backbone(name: str) -> Backbone:
    """Backbone with random weights."""
    import timm

    return Backbone(name, timm.create_model(name, pretrained=False, num_classes=0), PixelFormat(224)).eval()


def compare(
    name: str,
    plain: Callable[[], object],
    ours: Callable[[], object],
    repeats: int,
    keep: tuple[bool, bool] = (False, True),
) -> float:
    """Time both in alternating order, so that a busy moment affects both; print the median of the ratios of the pairs.

    `keep` selects for which of them freed memory is kept, as the package does while it trains and predicts.
    """
    times: tuple[list[float], list[float]] = ([], [])
    both = list(zip((plain, ours), keep, times, strict=True))
    for _ in range(repeats + 1):
        both.reverse()
        for work, kept, taken in both:
            with memory_kept() if kept else nullcontext():
                if kept:
                    work()  # the first call allocates the memory that later calls reuse
                start = time.perf_counter()
                work()
                taken.append(time.perf_counter() - start)
    slow, quick = (statistics.median(taken[1:]) for taken in times)
    ratios = sorted(a / b for a, b in zip(times[0][1:], times[1][1:], strict=True))
    best = min(times[0][1:]) / min(times[1][1:])
    spread = f"({ratios[0]:.2f} to {ratios[-1]:.2f}), best times {best:.2f} x"
    print(
        f"{name:<48} {slow * 1e3:9.0f} ms {quick * 1e3:9.0f} ms {statistics.median(ratios):7.2f} x {spread}", flush=True
    )
    return quick


def products_alone(forms: Forms, views: int, backward: bool, repeats: int) -> float:
    """Seconds of the matrix products of all blocks but the last, forward and optionally backward."""
    backbone = forms.ours.backbone
    length, dim, blocks = (224 // backbone.patch_size) ** 2 + 1, backbone.dim, backbone.depth - 1
    heads = int(backbone.vit.blocks[0].attn.num_heads)
    x, wide = torch.randn(views * length, dim), torch.randn(views * length, 4 * dim)
    weights = [torch.randn(dim, 3 * dim), torch.randn(dim, dim), torch.randn(dim, 4 * dim), torch.randn(4 * dim, dim)]
    q, scores = torch.randn(views * heads, length, dim // heads), torch.randn(views * heads, length, length)

    def one_block() -> None:
        for weight in weights:
            (wide if weight.shape[0] == 4 * dim else x) @ weight
        q @ q.mT, scores @ q

    with memory_kept():
        return median_time(one_block, 3 * repeats) * blocks * (2 if backward else 1)


def median_time(work: Callable[[], object], repeats: int) -> float:
    """Median seconds of a call, after one untimed call."""
    taken = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])


def tell_limit(what: str, least: float, quick: float) -> None:
    """Print the limit and the distance from it."""
    print(
        f"    limit, {what} alone: {least * 1e3:.0f} ms; this package takes {quick / least:.2f} times that", flush=True
    )


def write_jpegs(folder: Path, n: int) -> list[Path]:
    """Write images with detail at every scale, like photographs: a sum of noise of several sizes."""
    random, files = np.random.RandomState(0), []
    for number in range(n):
        picture = np.zeros((375, 500, 3))
        for scale in (2, 5, 15, 50):
            small = random.uniform(size=(375 // scale + 2, 500 // scale + 2, 3)) * 255
            whole = Image.fromarray(small.astype(np.uint8)).resize((500, 375), Image.Resampling.BICUBIC)
            picture += np.asarray(whole) * scale**0.5
        picture = picture / picture.max() * 255
        files.append(folder / f"{number:04d}.jpg")
        Image.fromarray(picture.astype(np.uint8)).save(files[-1], quality=90)
    return files


def compare_loaders(folder: Path, n: int, repeats: int) -> None:
    """Compare the loaders on JPEG files."""
    files, size = write_jpegs(folder, n), 224
    pixels = PixelFormat(size)

    def ours(store: ImageStore, phase: Phase) -> Callable[[], object]:
        batches, maker, all_images = list(torch.arange(n).split(8)), ViewMaker(pixels), np.arange(n)
        data = TrainingData(store, maker, np.zeros(n, np.int64), all_images, all_images[:0], tuple(map(str, files)))
        epoch = EpochBatches(data, batches, [phase] * len(batches), 0)
        return lambda: [batch.to(CPU.device, maker) for batch in iterate_batches(epoch, 0, False)]

    def plain() -> None:
        for start in range(0, n, 8):
            plain_views(files[start : start + 8], size)

    for name, cache, phase in (
        ("two views, nothing kept", 0, RAW),
        ("one view, nothing kept", 0, MODEL),
        ("kept", 4096, RAW),
    ):
        taken = compare(
            f"loader, 500 x 375 JPEG: {name}",
            plain,
            ours(ImageStore(files, pixels, 0.875, cache), phase),
            repeats,
        )
        print(f"    {n / taken:.0f} images per second")
    decoding = median_time(lambda: [Image.open(file).convert("RGB") for file in files], repeats)
    print(f"    limit, decoding alone: {n / decoding:.0f} images per second")


def measure_memory(settings: argparse.Namespace) -> None:
    """Print the growth of the peak by one stage-one step; called in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        forms = Forms(settings, Path(folder))
        before = peak_bytes()
        if settings.memory_of == "plain":
            forms.plain_stage_one()()
        else:
            with memory_kept():
                forms.step(PROMPT)()
        print(peak_bytes() - before)


def peak_bytes() -> int:
    """Peak memory of this process; `ru_maxrss` would include that of the process that started it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def compare_steps(forms: Forms, only: str, repeats: int) -> None:
    """Compare training steps, and print their limits."""
    n, stage_two = len(forms.one), forms.plain_stage_two()
    rows: list[tuple[str, Callable[[], object], Callable[[], object], int, bool]] = [
        ("stage-one step", forms.plain_stage_one(), forms.step(PROMPT), 2 * n, True),
        ("stage-two step, no cache", stage_two, forms.step(MODEL), 2 * n, False),
        ("stage-two step, raw half cached", stage_two, forms.step(MODEL, banked=True), n, False),
        ("SimGCD step, cache warm", forms.plain_simgcd(), forms.step(RAW, banked=True), 0, False),
    ]
    for name, published, ours, views, backward in rows:
        if only not in name:
            continue
        quick = compare(name, published, ours, repeats)
        if views:
            tell_limit(PRODUCTS, products_alone(forms, views, backward, repeats), quick)
        else:
            tell_limit("reading the tokens from the bank", median_time(forms.read_bank, repeats), quick)


@torch.inference_mode()
def compare_inference(forms: Forms, repeats: int) -> None:
    """Compare predictions with prompts, and prompts against none."""
    forms.plain.eval(), forms.ours.eval()
    plain, ours, folded, images = forms.plain, forms.ours, fold_prompt(forms.ours), forms.one
    quick = compare(
        "inference with prompts",
        lambda: plain.head(plain.features(images + plain.prompt)),
        lambda: folded(images),
        repeats,
    )
    tell_limit(PRODUCTS, products_alone(forms, len(images), False, repeats), quick)
    name = "inference: without prompts, against with"
    compare(name, lambda: ours(images, False), lambda: folded(images), 4 * repeats, keep=(True, True))


def compare_memory(repeats: int) -> None:
    """Compare the peak memory of a stage-one step."""

    def grown(form: str) -> float:
        words = [sys.executable, __file__, *sys.argv[1:], "--memory-of", form]
        runs = [subprocess.run(words, capture_output=True, text=True, check=True) for _ in range(repeats)]
        return statistics.median(int(run.stdout) for run in runs)

    plain, ours = grown("plain"), grown("ours")
    used = f"{plain / 1e6:9.0f} MB {ours / 1e6:9.0f} MB {ours / plain:7.2f} of it"
    print(f"{'peak memory of a stage-one step':<48} {used}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="vit_base_patch16_224")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--images", type=int, default=64, help="JPEGs for the loader")
    parser.add_argument("--only", default="", help="rows whose name contains this text, such as stage-two")
    parser.add_argument("--memory-of", choices=["plain", "ours"], help=argparse.SUPPRESS)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    if settings.memory_of:
        measure_memory(settings)
        return
    repeats, only = settings.repeats, settings.only
    print(f"{settings.name} at 224 px, batch {settings.batch}, {settings.threads} threads, medians of {repeats}")
    print(f"{'':<48} {'published form':>14} {'this package':>12}   ratio")
    with tempfile.TemporaryDirectory() as folder:
        forms = Forms(settings, Path(folder))
        compare_steps(forms, only, repeats)
        if only in "inference":
            compare_inference(forms, repeats)
        if only in "loader":
            compare_loaders(Path(folder), settings.images, repeats)
    if only in "memory":
        compare_memory(repeats)


if __name__ == "__main__":
    main()
