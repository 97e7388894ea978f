"""What each part of a run takes on this machine: seconds from the size of the pile and the measured speed."""

from dataclasses import dataclass

from sptnet.config import Config
from sptnet.data.loader import n_workers
from sptnet.discovery.plan.speed import Speed
from sptnet.model.token_bank import places
from sptnet.training.sampler import n_batches

COUNTING_SECONDS = 0.01  # an image, for trying counts once the features are there
CLUSTERING_SECONDS = 0.0005  # an image and start of k-means
REPORT_SECONDS = 10.0, 0.01  # at all, and an image


@dataclass(frozen=True)
class ImageSetFacts:
    """What a plan has to know about the images."""

    images: int
    """All of them, those kept aside too."""
    labelled: int
    unlabelled: int
    known: int
    """Categories that have labels."""
    free_disk: int
    """Bytes left where the run will be."""

    @property
    def training(self) -> int:
        return self.labelled + self.unlabelled


@dataclass(frozen=True)
class Costs:
    """Expected seconds, for one batch size and image store."""

    config: Config
    facts: ImageSetFacts
    speed: Speed

    @property
    def batches(self) -> int:
        """Steps of an epoch."""
        return max(1, n_batches(self.facts.training, self.config.training.batch_size))

    @property
    def drawn(self) -> int:
        """Images that an epoch shows, each in two views."""
        return self.batches * self.config.training.batch_size

    def look(self, images: int) -> float:
        """Every image once through the backbone."""
        return images / self.speed.forward + self._loading(images, 1)

    def counting(self) -> float:
        return self.look(self.facts.training) + self.counting_alone() if self.config.n_categories == "auto" else 0.0

    def counting_alone(self) -> float:
        """Once the features are there."""
        return COUNTING_SECONDS * self.facts.training if self.config.n_categories == "auto" else 0.0

    def clustering(self, n_init: int) -> float:
        """Of features that are there."""
        return CLUSTERING_SECONDS * n_init * self.facts.training

    def sorting(self) -> float:
        return self.look(self.facts.images)

    def report(self) -> float:
        at_all, an_image = REPORT_SECONDS
        return at_all + an_image * self.facts.images

    def raw_epochs(self, epochs: int, bank: int) -> float:
        """Training last block and head on two raw views, as SimGCD and GCD do; a bank is filled on the way."""
        views, speed = 2 * self.drawn * epochs, self.speed
        if bank == 0:
            return self._together(views / speed.forward + views / speed.last_block, epochs)
        filled = min(bank * self.facts.training, views)
        return self._together(filled / speed.forward + views / speed.last_block, 1)

    def sptnet_epochs(self, epochs: int, bank: int) -> float:
        """Prompts and model by turns: half of the steps go back to the pixels, half train the last block."""
        half, speed, training = self.drawn * epochs / 2, self.speed, self.config.training
        forward_again = (training.accumulate > 1) + training.checkpointing
        prompt_steps = 2 * half / speed.prompted + forward_again * 2 * half / speed.forward
        forwards = half if bank else 2 * half
        return self._together(prompt_steps + forwards / speed.forward + 2 * half / speed.last_block, epochs)

    def bank_bytes(self, bank: int) -> int:
        return places(bank) * self.facts.training * self.speed.token_bytes

    def _together(self, computing: float, epochs: int) -> float:
        """Computing and loading: one after the other, or side by side where processes load in the background."""
        loading = self._loading(self.facts.training, epochs)
        return max(computing, loading) if self._workers else computing + loading

    def _loading(self, images: int, epochs: int) -> float:
        views = self.config.views
        side = self.speed.image_size / views.crop_ratio
        kept = not self._workers and images * 3 * 1.4 * side * side <= views.cache_mb * 2**20
        return images * (1 if kept else epochs) / (self.speed.decode * max(1, self._workers))

    @property
    def _workers(self) -> int:
        return n_workers(self.config.views.workers, self.facts.images)
