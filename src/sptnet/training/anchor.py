"""Images of a folder whose features are to stay as they were before a stage: their cost in a step, and its gradient."""

import math
from pathlib import Path

import torch
from torch import Tensor

from sptnet.data.image_file import UnreadableImage
from sptnet.data.listing import list_folder
from sptnet.data.readable import in_threads
from sptnet.data.store import ImageStore
from sptnet.errors import Failure, Misuse
from sptnet.losses import unit_rows
from sptnet.methods.stage_plan import Anchor, Clock
from sptnet.model.gcd_model import GcdModel
from sptnet.model.mean_teacher import MeanTeacher
from sptnet.runtime.compute import Compute
from sptnet.runtime.distributed import World
from sptnet.runtime.progress import say
from sptnet.runtime.seeds import seed_of
from sptnet.runtime.text import printable
from sptnet.training.batching.batches import TrainingData


def check_anchor(anchor: Anchor) -> None:
    """Raise if there is no such folder."""
    if not Path(anchor.folder).is_dir():
        raise Misuse(f"there is no folder {anchor.folder}. Give a folder of images with `promptcal.distil_folder`.")


class FeatureAnchor:
    """Holds the features of some images near those of the backbone as it is when this is built."""

    def __init__(self, anchor: Anchor, model: GcdModel, trained: list[str], data: TrainingData, batch_size: int):
        check_anchor(anchor)
        images = list_folder(Path(anchor.folder)).images
        if not images:
            raise Misuse(f"no images found in {anchor.folder}. Give another folder with `promptcal.distil_folder`.")
        self.weight, self.model, self.maker, self.batch_size = anchor.weight, model, data.maker, batch_size
        self.folder, self.unreadable = anchor.folder, set[int]()
        self.store = ImageStore(images, data.store.pixels, data.store.crop_ratio, cache_mb=0)
        # A teacher that never follows; only the backbone is asked, so only its trained weights are copied.
        self.before = MeanTeacher(model, [name for name in trained if name.startswith("backbone.")]).model

    def views(self, numbers: list[int], images: list[int], seed: int) -> Tensor:
        """Return a random view per image, normalised; `numbers` are their places in the batch."""
        decoded = in_threads(self._readable, images)  # views are cut one by one: they seed torch's generator
        cut = [self.maker.random_view(image, seed_of(seed, n)) for n, image in zip(numbers, decoded, strict=True)]
        return self.maker.normalise(torch.stack(cut).to(next(self.model.parameters()).device))

    def _readable(self, number: int) -> Tensor:
        """Read an image, or the next one that can be read."""
        for other in range(number, number + len(self.store)):
            image = other % len(self.store)
            try:
                return self.store[image]
            except UnreadableImage as problem:
                if image not in self.unreadable:
                    self.unreadable.add(image)
                    say(f"skipped {printable(problem.name)}: {problem.reason}")
        raise Failure(f"none of the images in {self.folder} can be read. Repair them, or give another folder.")

    def add_gradient(
        self, clock: Clock, seed: int, scaler: torch.amp.GradScaler, compute: Compute, world: World, n_parts: int
    ) -> dict[str, float]:
        """Add the gradient of a step to those of the weights; return the cost, and its share of the total loss.

        The cost is the mean of (u - u')^2 over a batch of images and all values of their unit features, now and before
        the stage. The images of this rank are processed in `n_parts`.
        """
        weight, n = self.weight(clock.epoch), self.batch_size
        if weight == 0:
            return {"distillation": 0.0, "total": 0.0}
        seed = seed_of(seed, "anchor", clock.step)
        drawn = torch.randint(len(self.store), (n,), generator=torch.Generator().manual_seed(seed)).tolist()
        own = torch.arange(n)[world.share(n)]
        costs = [torch.zeros(0, device=next(self.model.parameters()).device)]
        for numbers in own.split(math.ceil(len(own) / n_parts)) if len(own) else ():
            pixels = self.views(numbers.tolist(), [drawn[i] for i in numbers], seed)
            with compute.autocast():
                now = self.model.features(pixels)
                with torch.no_grad():
                    before = self.before.features(pixels, prompted=False)
            cost = (unit_rows(now) - unit_rows(before)).square().mean(1) / n
            scaler.scale(weight * cost.sum()).backward()
            costs.append(cost.detach())
        whole = float(world.gather(torch.cat(costs)[:, None], n).sum())
        return {"distillation": whole, "total": weight * whole}
