"""Predict image files batch by batch; unreadable files are reported and left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset

from sptnet.data.image_file import UnreadableImage
from sptnet.data.loader import ignore_broken_pipes, n_workers
from sptnet.data.store import ImageStore
from sptnet.data.views import CentreViews, ViewMaker
from sptnet.inference.features import Outputs, compute_outputs
from sptnet.inference.predictor import Predictor


@dataclass(frozen=True, eq=False)
class PredictedBatch:
    """Predictions for the readable files of a batch of `n` files, and the errors of the others."""

    n: int
    files: list[Path]
    outputs: Outputs
    problems: list[UnreadableImage]


class _ViewsOrProblems(Dataset[Tensor | UnreadableImage]):
    """Centre views; the item of an unreadable file is its error instead."""

    def __init__(self, views: CentreViews):
        self.views = views

    def __len__(self) -> int:
        return len(self.views)

    def __getitem__(self, position: int) -> Tensor | UnreadableImage:
        try:
            return self.views[position]
        except UnreadableImage as problem:
            return problem


def predict_batches(predictor: Predictor, files: Sequence[Path]) -> Iterator[PredictedBatch]:
    """Predict batch by batch in the order of the files; each file is decoded once, a few batches are in memory."""
    pixels, size = predictor.model.backbone.pixels, predictor.batch_size
    maker = ViewMaker(pixels)
    store = ImageStore(files, pixels, predictor.card.crop_ratio, cache_mb=0)
    loader: DataLoader[Tensor | UnreadableImage] = DataLoader(
        _ViewsOrProblems(CentreViews(store, maker, range(len(files)))),
        batch_size=size,
        num_workers=n_workers("auto", len(files)),
        collate_fn=list,
        generator=Generator(),
        worker_init_fn=ignore_broken_pipes,
    )
    for number, views in enumerate(loader):
        batch = files[number * size : number * size + len(views)]
        readable = [(file, view) for file, view in zip(batch, views, strict=True) if isinstance(view, Tensor)]
        normal = [maker.normalise(torch.stack([view for _, view in readable]))] if readable else []
        outputs = compute_outputs(predictor.folded, normal, predictor.compute)
        problems = [view for view in views if isinstance(view, UnreadableImage)]
        yield PredictedBatch(len(views), [file for file, _ in readable], outputs, problems)
