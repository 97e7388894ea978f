"""Compute features and logits of images: the only loop over images outside training."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sptnet.config import Config
from sptnet.data.image_file import ImageSource
from sptnet.data.image_set import ImageSet
from sptnet.data.loader import iterate_centre_views, n_workers
from sptnet.data.pixel_format import PixelFormat
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.head import Head
from sptnet.losses import STUDENT_TEMPERATURE
from sptnet.model.backbone import Backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.compute import Compute, eval_mode
from sptnet.runtime.distributed import World
from sptnet.runtime.memory import memory_kept
from sptnet.runtime.progress import bar

BATCH_SIZE = 64

Indices = npt.NDArray[np.int64]
OnProgress = Callable[[int], None]
"""Called with the number of images done."""


@dataclass(frozen=True)
class Outputs:
    """Features and logits of images, in their order."""

    features: Float[Tensor, "n dim"]
    logits: Float[Tensor, "n k"]

    @property
    def categories(self) -> npt.NDArray[np.int64]:
        """The most likely category per image."""
        return self.logits.argmax(1).numpy()

    @property
    def probabilities(self) -> npt.NDArray[np.float32]:
        """Probability per image and category, n x k."""
        return (self.logits / STUDENT_TEMPERATURE).softmax(1).numpy()

    @property
    def unit_features(self) -> npt.NDArray[np.float32]:
        """Features of length one."""
        return F.normalize(self.features, dim=1).numpy()


@memory_kept()
@torch.inference_mode()
def compute_features(
    model: GcdModel | Backbone, views: Iterable[Float[Tensor, "b 3 h w"]], compute: Compute, prompted: bool = True
) -> Float[Tensor, "n dim"]:
    """Features of normalised views, batch by batch, in float32 on the CPU; a backbone alone has no prompts."""
    backbone = model if isinstance(model, Backbone) else model.backbone
    features = [torch.empty(0, backbone.dim)]
    with eval_mode(model):
        for batch in views:
            images = batch.to(compute.device)
            with compute.autocast():
                made = model(images) if isinstance(model, Backbone) else model.features(images, prompted)
            features.append(made.float().cpu())
    return torch.cat(features)


@torch.inference_mode()
def classify(head: Head, features: Float[Tensor, "n dim"], compute: Compute, rows: int = 4096) -> Float[Tensor, "n k"]:
    """Logits of features on the CPU, some rows at a time; in full precision, since the largest logit decides."""
    return torch.cat([head.classify(part.to(compute.device)).float().cpu() for part in features.split(rows)])


def compute_outputs(model: GcdModel, views: Iterable[Tensor], compute: Compute, prompted: bool = True) -> Outputs:
    """Features and logits of normalised views."""
    features = compute_features(model, views, compute, prompted)
    return Outputs(features, classify(model.head, features, compute))


def with_top(logits: Float[Tensor, "n k"], categories: Int[Tensor, " n"]) -> Float[Tensor, "n k"]:
    """Swap the largest logit of each row with that of a given category; rows with category -1 stay as they are."""
    swapped, rows = logits.clone(), (categories >= 0).nonzero()[:, 0]
    top, given = logits[rows].argmax(1), categories[rows]
    swapped[rows, top], swapped[rows, given] = logits[rows, given], logits[rows, top]
    return swapped


@dataclass
class FeatureCache:
    """Features of the images of a run by the present model; those of all images are cached until `forget`."""

    store: ImageStore
    maker: ViewMaker
    compute: Compute
    workers: int
    batch_size: int
    world: World
    kept: Float[Tensor, "n dim"] | None = field(default=None, init=False)
    """Cached features of all images, if they were computed since the model last changed."""

    def forget(self) -> None:
        """Drop the cached features. Call this whenever the model has changed."""
        self.kept = None

    def compute_all(
        self,
        model: GcdModel | Backbone,
        bank: TokenBank | None = None,
        on_progress: OnProgress | None = None,
    ) -> Float[Tensor, "n dim"]:
        """Features of all images, computed unless cached; `on_progress` replaces the progress bar."""
        if self.kept is None:
            everything = np.arange(len(self.store.sources))
            if on_progress is not None:
                self.kept = self._compute(model, everything, bank, on_progress)
            else:
                with bar("computing features", len(everything)) as update:
                    self.kept = self._compute(model, everything, bank, update)
        return self.kept

    def outputs(self, model: GcdModel, indices: Indices, bank: TokenBank | None = None) -> Outputs:
        """Features and logits of some images. Without prompts, a bank saves the frozen blocks."""
        features = self._compute(model, indices, bank) if self.kept is None else self.kept[indices]
        return Outputs(features, classify(model.head, features, self.compute))

    def _compute(
        self,
        model: GcdModel | Backbone,
        indices: Indices,
        bank: TokenBank | None = None,
        on_progress: OnProgress = lambda done: None,
    ) -> Float[Tensor, "n dim"]:
        own = indices[self.world.share(len(indices))]
        if bank is None or isinstance(model, Backbone) or model.has_prompts:
            features = compute_features(model, self._views(own, on_progress), self.compute)
        else:
            features = self._through_bank(model, own, bank)
        return self.world.gather(features, len(indices))

    def _views(self, indices: Indices, on_progress: OnProgress) -> Iterator[Tensor]:
        done = 0
        for views in iterate_centre_views(self.store, self.maker, indices, self.batch_size, self.workers):
            yield views
            done += len(views)
            on_progress(done * self.world.size)

    @memory_kept()
    @torch.inference_mode()
    def _through_bank(self, model: GcdModel, indices: Indices, bank: TokenBank) -> Float[Tensor, "n dim"]:
        """Run the last block on the tokens of the bank; missing ones are computed and stored first."""
        backbone, images = model.backbone, torch.from_numpy(indices)
        centre = torch.full_like(images, bank.centre)
        missing = images[torch.from_numpy(~bank.filled(images, centre))]
        views = self._views(missing.numpy(), lambda done: None)
        with eval_mode(model), self.compute.autocast():
            for start, pixels in zip(range(0, len(missing), self.batch_size), views, strict=True):
                part = missing[start : start + self.batch_size]
                tokens = backbone.enter_last_block(pixels.to(self.compute.device))
                bank.write(part, centre[: len(part)], tokens.half().cpu())
            features = [torch.empty(0, backbone.dim)]
            for part in images.split(self.batch_size):
                tokens = bank.read(part, centre[: len(part)]).to(self.compute.device).float()
                features.append(backbone.finish(tokens).float().cpu())
        return torch.cat(features)


def feature_cache(
    config: Config, image_set: ImageSet, pixels: PixelFormat, compute: Compute, world: World
) -> FeatureCache:
    """Feature cache for the images of a run, with its settings for reading and cropping."""
    views = config.views
    workers = n_workers(views.workers, len(image_set))
    cache_mb = views.cache_mb // max(1, workers)  # every worker has one of its own
    store = ImageStore(image_set.sources, pixels, views.crop_ratio, cache_mb)
    size = max(BATCH_SIZE, config.training.batch_size)
    return FeatureCache(store, ViewMaker(pixels, views.flip), compute, workers, size, world)


def extract_features(
    backbone: Backbone,
    sources: Sequence[ImageSource],
    crop_ratio: float,
    compute: Compute,
    on_progress: OnProgress = lambda done: None,
) -> Float[Tensor, "n dim"]:
    """Class token per image by a backbone, in float32 on the CPU."""
    pixels = backbone.pixels
    store, maker = ImageStore(sources, pixels, crop_ratio, cache_mb=0), ViewMaker(pixels)
    cache = FeatureCache(store, maker, compute, workers=0, batch_size=BATCH_SIZE, world=World())
    return cache.compute_all(backbone.to(compute.device), on_progress=on_progress)
