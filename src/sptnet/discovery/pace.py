"""How fast this machine is with this backbone and these images, measured on a few of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.config import Config
from sptnet.data.image_file import ImageSource
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.head import PrototypeHead
from sptnet.losses import gcd_loss
from sptnet.model.backbone import Backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.runtime.compute import Compute
from sptnet.runtime.memory import memory_kept

SECONDS = 1.5  # of each of the two measurements, about
SAMPLE, BATCH = 32, 8  # images at most, and at once
STEPS = 6  # training steps at most
CATEGORIES = 10  # of the head that is timed


@dataclass(frozen=True)
class Pace:
    """Seconds that single pieces of work take."""

    device: str
    read: float
    """Decode, resize and crop one image."""
    forward: float
    """Take one view through the backbone, without a gradient."""
    step: float
    """Train last block and head for one step, from stored tokens."""
    crowding: float = 1.0
    """Wall-clock time as a multiple of the time on idle cores."""

    def shared(self, processes: float) -> "Pace":
        """The pace of so many processes that share all of the work."""
        return replace(self, read=self.read / processes, forward=self.forward / processes, step=self.step / processes)


def measure_pace(
    backbone: Backbone,
    compute: Compute,
    sources: Sequence[ImageSource],
    config: Config,
    clock: Callable[[], float] = time.perf_counter,
) -> Pace:
    """Take a few images through the backbone, then make a few training steps with a fresh head."""
    pixels, chosen = backbone.pixels, sources[:: max(1, len(sources) // SAMPLE)][:SAMPLE]
    store, maker = ImageStore(chosen, pixels, config.views.crop_ratio, cache_mb=0), ViewMaker(pixels)
    backbone = backbone.to(compute.device)
    read, forward, done = 0.0, 0.0, 0
    with memory_kept(), torch.no_grad(), compute.autocast():
        tokens = backbone.enter_last_block(torch.zeros(1, 3, *[pixels.image_size] * 2, device=compute.device))
        while done < len(chosen) and read + forward < SECONDS:
            begun = clock()
            views = [maker.centre_view(store[i]) for i in range(done, min(done + BATCH, len(chosen)))]
            images = maker.normalise(torch.stack(views))
            decoded = clock()
            tokens = backbone.enter_last_block(images.to(compute.device))
            float(backbone.finish(tokens).sum())  # reading a number waits for the device
            read, forward, done = read + decoded - begun, forward + clock() - decoded, done + len(views)
    step, crowding = _measure_step(backbone, compute, tokens.float(), config, clock)
    return Pace(compute.device.type, read / done, forward / done, step, crowding)


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
                projections, logits = model.finish(entering)
            loss = gcd_loss(projections, logits, labels, labels < CATEGORIES // 2, teacher_temperature=0.07).total
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
