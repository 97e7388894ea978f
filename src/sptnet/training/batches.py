"""All batches of a stage in a row, from its first epoch to its last."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from sptnet.data.load import SplitImages
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.methods.phases import Phase, Turns
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.distributed import World
from sptnet.runtime.seeds import seed_of
from sptnet.training.epoch_batches import Batch, EpochBatches
from sptnet.training.sampler import balanced_batches, n_batches


@dataclass(frozen=True)
class TrainingData:
    """What a stage trains on: images by index, and the labels a learner may see (-1 elsewhere)."""

    store: ImageStore
    maker: ViewMaker
    labels: npt.NDArray[np.int64]
    labelled: npt.NDArray[np.int64]
    unlabelled: npt.NDArray[np.int64]
    ids: tuple[str, ...]

    @staticmethod
    def of(data: SplitImages, store: ImageStore, maker: ViewMaker) -> "TrainingData":
        split, image_set = data.split, data.image_set
        labels = np.full(len(image_set), -1, dtype=np.int64)
        labels[split.labelled] = split.target[split.labelled]
        return TrainingData(store, maker, labels, split.labelled, split.unlabelled, image_set.ids)

    @property
    def n_images(self) -> int:
        return len(self.labelled) + len(self.unlabelled)


class StageBatches(Dataset[Batch]):
    """Batch b of epoch e has the number e * batches + b. It needs no epoch before it to have been asked for."""

    def __init__(
        self,
        data: TrainingData,
        turns: Turns,
        epochs: int,
        batch_size: int,
        seed: int,
        stage: int = 0,
        bank: TokenBank | None = None,
        world: World = World(),  # noqa: B008
    ):
        self.data, self.turns, self.epochs, self.batch_size = data, turns, epochs, batch_size
        self.seed, self.stage, self.bank, self.world = seed, stage, bank, world
        self.batches = n_batches(data.n_images, batch_size)
        self._latest: tuple[int, EpochBatches] | None = None

    def __len__(self) -> int:
        return self.epochs * self.batches

    def __getitem__(self, number: int) -> Batch:
        epoch, batch = divmod(number, self.batches)
        if self._latest is None or self._latest[0] != epoch:
            self._latest = epoch, self.of_epoch(epoch)
        return self._latest[1][batch]

    def phases(self, epoch: int) -> list[Phase]:
        return [self.turns.at(epoch, batch, self.epochs, self.batches) for batch in range(self.batches)]

    def of_epoch(self, epoch: int) -> EpochBatches:
        seed, data, phases = seed_of(self.seed, "epoch", self.stage, epoch), self.data, self.phases(epoch)
        batches = balanced_batches(data.labelled, data.unlabelled, self.batch_size, seed)
        draws, whole = [phase.draws for phase in phases], [phase.prompted_draws for phase in phases]
        return EpochBatches(
            data.store,
            data.maker,
            data.labels,
            batches,
            draws,
            seed,
            self.bank,
            whole,
            self.world,
        )
