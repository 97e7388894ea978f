"""Measure the speed of this machine with a backbone, on a few of the images."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.config import Config
from sptnet.data.image_file import ImageSource
from sptnet.data.pixel_format import PixelFormat
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.head import PrototypeHead
from sptnet.losses import gcd_loss
from sptnet.methods.phases import Phase
from sptnet.methods.stage_plan import StagePlan
from sptnet.model.backbone import Backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.runtime.compute import Compute
from sptnet.runtime.memory import memory_kept

SECONDS = 1.0  # per measurement, about
SAMPLE, BATCH = 32, 8  # images at most, images per batch
STEPS = 6  # training steps at most
CATEGORIES = 10  # of the head that is measured


@dataclass(frozen=True)
class Pace:
    """Seconds per image, view and training step."""

    device: str
    read: float
    """Decode, resize and crop one image."""
    forward: float
    """Take one view through the backbone, without a gradient."""
    step: float
    """Train last block and head for one step, from stored tokens."""
    crowding: float = 1.0
    """Wall-clock time as a multiple of the time on idle cores."""

    def step_seconds(self, stage: StagePlan, batch_size: int, banked: bool, backward: float) -> float:
        """Seconds per step of a stage, the mean over its phases.

        `banked` views skip the frozen blocks; `backward` is the cost of going back to the prompts of a view, in forward
        passes. Images that a stage adds to its batches double them.
        """
        phases = [self._phase_seconds(phase, batch_size, banked, backward) for phase in stage.turns.phases]
        return (2 if stage.extra else 1) * sum(phases) / len(phases)

    def _phase_seconds(self, phase: Phase, batch_size: int, banked: bool, backward: float) -> float:
        prompted = backward if "prompt" in phase.trains else 1
        passes = sum(prompted if view.prompted else not banked for view in phase.all_views)
        trained = len(phase.all_views) / 2 if "model" in phase.trains else 0
        return batch_size * passes * self.forward + trained * self.step

    def quickest(self, other: "Pace") -> "Pace":
        """Pace without what kept the cores busy in only one of two measurements."""
        names = ("read", "forward", "step", "crowding")
        return replace(self, **{name: min(getattr(self, name), getattr(other, name)) for name in names})

    def shared(self, processes: float) -> "Pace":
        """Pace of several processes that share the work."""
        return replace(self, read=self.read / processes, forward=self.forward / processes, step=self.step / processes)


def measure_pace(
    backbone: Backbone,
    compute: Compute,
    sources: Sequence[ImageSource],
    config: Config,
    clock: Callable[[], float] = time.perf_counter,
) -> Pace:
    """Take a few images through the backbone, then make a few training steps with a fresh head."""
    chosen = sources[:: max(1, len(sources) // SAMPLE)][:SAMPLE]
    images, read = _measure_reading(backbone.pixels, chosen, config.views.crop_ratio, clock)
    tokens, forward = _measure_forward(backbone.to(compute.device), compute, images, clock)
    step, crowding = _measure_step(backbone, compute, tokens.float(), config, clock)
    return Pace(compute.device.type, read, forward, step, crowding)


def _measure_reading(
    pixels: PixelFormat, sources: Sequence[ImageSource], crop_ratio: float, clock: Callable[[], float]
) -> tuple[Float[Tensor, "n 3 h w"], float]:
    """Read images until the time is over; returns their normalised views and the seconds per image."""
    store, maker = ImageStore(sources, pixels, crop_ratio, cache_mb=0), ViewMaker(pixels)
    batches: list[Tensor] = []
    done, seconds = 0, 0.0
    while done < len(sources) and seconds < SECONDS:
        begun = clock()
        views = [maker.centre_view(store[i]) for i in range(done, min(done + BATCH, len(sources)))]
        batches.append(maker.normalise(torch.stack(views)))
        done, seconds = done + len(views), seconds + clock() - begun
    return torch.cat(batches), seconds / done


def _measure_forward(
    backbone: Backbone, compute: Compute, images: Float[Tensor, "n 3 h w"], clock: Callable[[], float]
) -> tuple[Float[Tensor, "b length dim"], float]:
    """Take two batches of views or more through the backbone; returns tokens, and the least seconds per view."""
    done, seconds, per_view = 0, 0.0, float("inf")
    with memory_kept(), torch.no_grad(), compute.autocast():
        tokens = backbone.enter_last_block(images[:1].to(compute.device))  # warms up
        while done < len(images) and (done <= BATCH or seconds < SECONDS):
            # After a quick start the rest at once: on busy cores threads wait less per image in a larger batch.
            size = len(images) if 0 < seconds < SECONDS else BATCH
            begun = clock()
            batch = images[done : done + size].to(compute.device)
            tokens = backbone.enter_last_block(batch)
            float(backbone.finish(tokens).sum())  # reading a number waits for the device
            took = clock() - begun
            done, seconds, per_view = done + len(batch), seconds + took, min(per_view, took / len(batch))
    return tokens, per_view


def _measure_step(
    backbone: Backbone,
    compute: Compute,
    tokens: Float[Tensor, "n length dim"],
    config: Config,
    clock: Callable[[], float],
) -> tuple[float, float]:
    """Seconds per step, and how crowded the cores are."""
    n, head = config.training.batch_size, config.head
    model = GcdModel(backbone, PrototypeHead(backbone.dim, CATEGORIES, head.hidden, head.bottleneck))
    model.to(compute.device).train_only(frozenset({"model"}))
    update = torch.optim.SGD(model.group("model"), lr=0.0, momentum=0.9, fused=True)  # changes no weight
    entering = tokens.repeat(-(-2 * n // len(tokens)), 1, 1)[: 2 * n]
    labels = torch.arange(n, device=compute.device) % CATEGORIES
    times: list[float] = []
    worked = time.process_time()
    with memory_kept():
        while len(times) < 2 or (len(times) < STEPS and sum(times) < SECONDS):
            begun = clock()
            with compute.autocast():
                rows = model.finish(entering)
            known = labels < CATEGORIES // 2
            loss = gcd_loss(rows["projections"], rows["logits"], labels, known, teacher_temperature=0.07).total
            update.zero_grad()
            loss.backward()
            update.step()
            float(loss.detach())
            times.append(clock() - begun)
    worked = time.process_time() - worked
    update.zero_grad()
    model.requires_grad_(False)
    crowding = sum(times) * torch.get_num_threads() / max(worked, 1e-9) if compute.device.type == "cpu" else 1.0
    return sum(times[1:]) / len(times[1:]), max(1.0, crowding)  # the first step warms up
