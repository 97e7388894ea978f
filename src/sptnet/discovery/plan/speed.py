"""How fast this machine is with this backbone and these images, measured in a few seconds."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sptnet.config import HeadSettings, PromptSettings
from sptnet.data.image_file import ImageSource
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.head import PrototypeHead
from sptnet.model.backbone import Backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.runtime.compute import Compute

SECONDS, LEAST_CALLS, MOST_SECONDS = 0.6, 4, 3.0  # for each measurement; a slow machine makes fewer calls
BATCH = {"cpu": 16, "mps": 16, "cuda": 64}
TOKEN_BATCH = 16  # the last block alone is so quick that small batches measure the calls
MOST_READ = 16
TYPICAL_CATEGORIES = 10


@dataclass(frozen=True)
class Speed:
    """Views a second of each kind of work, and the sizes that a plan reckons with."""

    device: str
    forward: float
    """Through the whole backbone, no gradient."""
    prompted: float
    """Through the whole backbone and back to pixel prompts."""
    last_block: float
    """Through last block and head and back, from stored tokens."""
    decode: float
    """Images read from their file, resized and cropped."""
    image_size: int
    token_bytes: int
    """What a token bank keeps for one view."""

    def of_processes(self, n: float) -> "Speed":
        """Of so many processes that share all of this work, each as quick as one alone."""
        rates = {kind: n * getattr(self, kind) for kind in ("forward", "prompted", "last_block", "decode")}
        return replace(self, **rates)


def measure_speed(
    backbone: Backbone,
    compute: Compute,
    sources: Sequence[ImageSource],
    crop_ratio: float = 0.875,
    head: HeadSettings | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Speed:
    """Runs each kind of work for a moment on some of the images themselves."""
    settings = head or HeadSettings()
    size = backbone.pixels.image_size
    model = GcdModel(backbone, PrototypeHead(backbone.dim, TYPICAL_CATEGORIES, settings.hidden, settings.bottleneck))
    model.attach_prompt(PromptSettings(border=scaled_border(size)))
    model.to(compute.device).train()
    images = torch.zeros(1, 3, size, size, device=compute.device)

    @torch.no_grad()
    def forward() -> Tensor:
        with compute.autocast():
            total: Tensor = backbone(images).sum()
        return total

    # Batches are quicker than single images, but not on a machine where they take seconds.
    at_once = int(rate(forward, 1, clock) * SECONDS / 3)
    images = images.expand(min(max(1, at_once), BATCH[compute.device.type]), -1, -1, -1).contiguous()

    def prompted() -> Tensor:
        model.train_only(frozenset({"prompt"}))
        with compute.autocast():
            loss: Tensor = model(images)[1].float().sum()
        loss.backward()
        return loss.detach()

    with torch.no_grad():
        one = backbone.enter_last_block(images[:1]).half().cpu()
    stored = one.expand(TOKEN_BATCH, -1, -1).contiguous()

    def last_block() -> Tensor:
        model.train_only(frozenset({"model"}))
        with compute.autocast():
            projections, logits = model.finish(stored.clone().to(compute.device).float())
            loss = projections.float().sum() + logits.float().sum()
        loss.backward()
        return loss.detach()

    store = ImageStore(_spread(sources), backbone.pixels, crop_ratio, cache_mb=0)
    maker = ViewMaker(backbone.pixels)

    def decode() -> Tensor:
        views = [maker.random_view(store[i], seed=i) for i in range(len(store))]
        return maker.normalise(torch.stack(views)).sum()

    back = rate(prompted, len(images), clock)
    through = max(back, rate(forward, len(images), clock))  # going back includes going forward
    speed = Speed(
        device=compute.device.type,
        forward=through,
        prompted=back,
        last_block=max(through, rate(last_block, TOKEN_BATCH, clock)),
        decode=rate(decode, len(store), clock),
        image_size=size,
        token_bytes=one.numel() * one.element_size(),
    )
    model.requires_grad_(False)
    model.zero_grad(set_to_none=True)
    return speed


def rate(work: Callable[[], Tensor], n: int, clock: Callable[[], float]) -> float:
    """How many of the `n` items that a call of `work` handles are done in a second.

    The quickest call counts: the first ones warm up, and other programs may hold up any of them.
    """
    times: list[float] = []
    while sum(times) < SECONDS or (len(times) < LEAST_CALLS and sum(times) < MOST_SECONDS):
        start = clock()
        float(work())  # reading a number waits for the device
        times.append(clock() - start)
    return n / max(min(times), 1e-9)


def scaled_border(image_size: int) -> int:
    """The published border of 30 for 224 pixels, at the same share of another size."""
    return max(1, round(30 * image_size / 224))


def _spread(sources: Sequence[ImageSource]) -> list[ImageSource]:
    """A few images from all over the pile."""
    step = max(1, len(sources) // MOST_READ)
    return list(sources[::step][:MOST_READ])
