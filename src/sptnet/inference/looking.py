"""Looking at a pile with the model as it is now: what it makes of each image's centre view, each looked at once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.data.loader import iterate_centre_views
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.inference.outputs import Outputs, classify, model_features
from sptnet.model.gcd_model import GcdModel
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.compute import Compute, eval_mode
from sptnet.runtime.distributed import World
from sptnet.runtime.memory import memory_kept

Indices = npt.NDArray[np.int64]
Told = Callable[[int], None]  # hears how many images are done


@dataclass
class Looker:
    """Features and logits of a pile's images. What all images look like is kept until the model changes."""

    store: ImageStore
    maker: ViewMaker
    compute: Compute
    workers: int
    batch_size: int
    world: World
    seen: Float[Tensor, "n dim"] | None = field(default=None, init=False)
    """Features of all images by the model as it is, if it has looked at them."""

    def forget(self) -> None:
        """To be said whenever the model has changed."""
        self.seen = None

    def look_at_all(self, model: GcdModel, bank: TokenBank | None = None, told: Told = lambda done: None) -> None:
        self.seen = self._look(model, np.arange(len(self.store.sources)), bank, told)

    def outputs(self, model: GcdModel, indices: Indices, bank: TokenBank | None = None) -> Outputs:
        """Of some images. The bank serves a model without prompts, whose frozen blocks then see an image only once."""
        features = self._look(model, indices, bank) if self.seen is None else self.seen[indices]
        return Outputs(features, classify(model.head, features, self.compute))

    def _look(
        self, model: GcdModel, indices: Indices, bank: TokenBank | None, told: Told = lambda done: None
    ) -> Float[Tensor, "n dim"]:
        own = indices[self.world.share(len(indices))]
        if bank is None or model.has_prompts:
            features = model_features(model, self._views(own, told), self.compute)
        else:
            features = self._through_bank(model, own, bank)
        return self.world.gather(features, len(indices))

    def _views(self, indices: Indices, told: Told) -> Iterator[Tensor]:
        done = 0
        for views in iterate_centre_views(self.store, self.maker, indices, self.batch_size, self.workers):
            yield views
            done += len(views)
            told(done * self.world.size)

    @memory_kept()
    @torch.inference_mode()
    def _through_bank(self, model: GcdModel, indices: Indices, bank: TokenBank) -> Float[Tensor, "n dim"]:
        """The last block on tokens that the bank holds; those it lacks are computed first."""
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
