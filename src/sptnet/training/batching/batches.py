"""Batches of a stage: the views of the images of each step.

A `Batch` holds the images of one step as bytes; `EpochBatches` makes those of an epoch, `StageBatches` those of all
epochs.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from sptnet.data.load import SplitImages
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.methods.phases import Phase
from sptnet.methods.stage_plan import StagePlan
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.distributed import World
from sptnet.runtime.seeds import seed_of
from sptnet.schedules import steps_per_epoch
from sptnet.training.batching.sampler import balanced_batches


@dataclass(frozen=True)
class TrainingData:
    """Images by index, and the labels that the learner may see (-1 elsewhere)."""

    store: ImageStore
    maker: ViewMaker
    labels: npt.NDArray[np.int64]
    labelled: npt.NDArray[np.int64]
    unlabelled: npt.NDArray[np.int64]
    ids: tuple[str, ...]

    @staticmethod
    def of(images: SplitImages, store: ImageStore, maker: ViewMaker) -> "TrainingData":
        """Collect images and labels of a split."""
        split, image_set = images.split, images.image_set
        labels = np.full(len(image_set), -1, dtype=np.int64)
        labels[split.labelled] = split.target[split.labelled]
        return TrainingData(store, maker, labels, split.labelled, split.unlabelled, image_set.ids)

    @property
    def n_images(self) -> int:
        """Number of training images."""
        return len(self.labelled) + len(self.unlabelled)


@dataclass(frozen=True)
class BankedDraw:
    """One draw of a batch: the view of the token bank per image, and whether its pixels were made."""

    views: Int64[Tensor, " b"]
    made: Bool[Tensor, " b"]


@dataclass(frozen=True)
class Batch:
    """Images of one training step: `draws[i]` holds the i-th random view per image of this rank's share.

    The loader makes bytes; `to` moves them to the device and normalises them there.
    """

    draws: list[UInt8[Tensor, "own 3 size size"] | Float[Tensor, "own 3 size size"]]
    labels: Int64[Tensor, " b"]
    labelled: Bool[Tensor, " b"]
    indices: Int64[Tensor, " b"]
    banked: list[BankedDraw] = field(default_factory=list)
    """With a token bank: its view per image and draw. Draws then hold pixels only where `made` is true."""
    share: slice = field(default_factory=lambda: slice(None))
    n_main: int | None = None
    """Number of images before those that the stage adds to every batch; None if it adds none."""

    @property
    def own(self) -> Int64[Tensor, " own"]:
        """Indices of this rank's share; `labels` and `indices` are those of the whole batch."""
        return self.indices[self.share]

    def to(self, device: torch.device, maker: ViewMaker) -> "Batch":
        """Move to the device and normalise."""

        def move(x: Tensor) -> Tensor:
            return x.to(device, non_blocking=True)

        draws = [maker.normalise(move(draw)) for draw in self.draws]
        return replace(self, draws=draws, labels=move(self.labels), labelled=move(self.labelled))

    def pin_memory(self) -> "Batch":
        """Copy to pinned memory; called by the loader."""
        return replace(
            self,
            draws=[d.pin_memory() for d in self.draws],
            labels=self.labels.pin_memory(),
            labelled=self.labelled.pin_memory(),
        )


class EpochBatches(Dataset[Batch]):
    """Batches of one epoch, each with as many random views per image as its step needs.

    Every view has its own seed, so the result depends neither on the order of work nor on the number of processes.
    With a token bank an image has V fixed views, and pixels are made only for draws with prompts and for views that are
    not yet in the bank.
    """

    def __init__(
        self,
        data: TrainingData,
        batches: list[Tensor],
        phases: list[Phase],
        seed: int,
        bank: TokenBank | None = None,
        world: World = World(),  # noqa: B008
        extra: list[Tensor] | None = None,
    ):
        """`batches` are the images of each step, `phases` what it needs of them, `extra` images to add."""
        self.data, self.batches, self.phases, self.seed = data, batches, phases, seed
        self.bank, self.world, self.extra = bank, world, extra

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Batch:
        everyone, phase = self.batches[number], self.phases[number]
        n_main = None if self.extra is None else len(everyone)
        if self.extra is not None:
            everyone = torch.cat([everyone, self.extra[number]])
        labels = torch.from_numpy(self.data.labels[everyone.numpy()])
        share = self.world.share(len(everyone))
        indices, positions = everyone[share], range(share.start, share.stop)
        if self.bank is None:
            images = [self.data.store[int(i)] for i in indices]
            draws = [
                self._views(images, [seed_of(self.seed, number, position, draw) for position in positions], phase, draw)
                for draw in range(phase.draws)
            ]
            return Batch(draws, labels, labels >= 0, everyone, share=share, n_main=n_main)
        banked, draws = [], []
        for draw in range(phase.draws):
            chosen = self._from_bank(self.bank, number, draw, indices, positions)
            images = [self.data.store[int(i)] for i in indices[chosen.made]]
            pairs = zip(indices[chosen.made].tolist(), chosen.views[chosen.made].tolist(), strict=True)
            draws.append(self._views(images, [seed_of("bank", image, view) for image, view in pairs], phase, draw))
            banked.append(chosen)
        return Batch(draws, labels, labels >= 0, everyone, banked, share, n_main)

    def _views(self, images: list[Tensor], seeds: list[int], phase: Phase, draw: int) -> UInt8[Tensor, "n 3 size size"]:
        maker = self.data.maker
        make = maker.strong_view if draw in phase.strong_draws else maker.random_view
        views = [make(image, seed) for image, seed in zip(images, seeds, strict=True)]
        return torch.stack(views) if views else torch.empty(0, 3, maker.size, maker.size, dtype=torch.uint8)

    def _from_bank(self, bank: TokenBank, number: int, draw: int, indices: Tensor, positions: range) -> BankedDraw:
        """Choose a view of the bank per image; draws of one image differ as long as the bank has enough views."""
        phase = self.phases[number]
        bank = bank.of(draw in phase.strong_draws)
        n, views = bank.n_views, torch.empty(len(indices), dtype=torch.int64)
        for i, position in enumerate(positions):
            first = seed_of(self.seed, number, position) % n
            stride = 1 + seed_of(self.seed, number, position, "stride") % max(1, n - 1)
            views[i] = (first + draw * stride) % n
        if draw in phase.prompted_draws:
            return BankedDraw(views, torch.ones(len(indices), dtype=torch.bool))
        return BankedDraw(views, torch.from_numpy(~bank.filled(indices, views)))


class StageBatches(Dataset[Batch]):
    """All batches of a stage, in any order: batch b of epoch e has number e * batches + b."""

    def __init__(
        self,
        data: TrainingData,
        plan: StagePlan,
        batch_size: int,
        seed: int,
        stage: int = 0,
        bank: TokenBank | None = None,
        world: World = World(),  # noqa: B008
        extra: list[Tensor] | None = None,
    ):
        """`extra` are images to add to each batch, the same for all epochs."""
        self.data, self.turns, self.epochs, self.batch_size = data, plan.turns, plan.epochs, batch_size
        self.seed, self.stage, self.bank, self.world, self.extra = seed, stage, bank, world, extra
        self.batches = steps_per_epoch(data.n_images, batch_size)
        self._latest: tuple[int, EpochBatches] | None = None

    def __len__(self) -> int:
        return self.epochs * self.batches

    def __getitem__(self, number: int) -> Batch:
        epoch, batch = divmod(number, self.batches)
        if self._latest is None or self._latest[0] != epoch:
            self._latest = epoch, self.of_epoch(epoch)
        return self._latest[1][batch]

    def phases(self, epoch: int) -> list[Phase]:
        """Phase of each step of an epoch."""
        return [self.turns.at(epoch, batch, self.epochs, self.batches) for batch in range(self.batches)]

    def of_epoch(self, epoch: int) -> EpochBatches:
        """Batches of an epoch."""
        seed, data = seed_of(self.seed, "epoch", self.stage, epoch), self.data
        batches = balanced_batches(data.labelled, data.unlabelled, self.batch_size, seed)
        return EpochBatches(data, batches, self.phases(epoch), seed, self.bank, self.world, self.extra)
