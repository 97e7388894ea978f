"""Features of images: a backbone over their centre views, before any head or prompt is trained."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.data.image_file import ImageSource
from sptnet.data.loader import iterate_centre_views
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.model.backbone import Backbone
from sptnet.runtime.compute import Compute, eval_mode
from sptnet.runtime.distributed import World
from sptnet.runtime.memory import memory_kept

BATCH_SIZE = 64


@memory_kept()
@torch.inference_mode()
def extract_features(
    backbone: Backbone,
    sources: Sequence[ImageSource],
    crop_ratio: float,
    compute: Compute,
    workers: int = 0,
    on_progress: Callable[[int], None] = lambda done: None,
    world: World = World(),  # noqa: B008
) -> Float[Tensor, "n dim"]:
    """The class token of every image, in order, in float32 on the CPU; `on_progress` hears how many are done."""
    backbone = backbone.to(compute.device)
    store = ImageStore(sources, backbone.pixels, crop_ratio, cache_mb=0)
    features, done = [torch.empty(0, backbone.dim)], 0
    own = np.arange(len(sources))[world.share(len(sources))]
    views = iterate_centre_views(store, ViewMaker(backbone.pixels), own, BATCH_SIZE, workers)
    with eval_mode(backbone):
        for batch in views:
            with compute.autocast():
                features.append(backbone(batch.to(compute.device)).float().cpu())
            done += len(batch)
            on_progress(done * world.size)
    return world.gather(torch.cat(features), len(sources))
