"""Read the images of a run and split them, as the data settings say."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sptnet.config import DataSettings
from sptnet.data.benchmarks import BENCHMARKS, read_benchmark
from sptnet.data.benchmarks.counts import check_counts
from sptnet.data.benchmarks.digits import digits
from sptnet.data.benchmarks.domains import read_domains
from sptnet.data.check.duplicates import same_look
from sptnet.data.check.skip_duplicates import (
    Duplicate,
    ThumbnailReader,
    find_duplicates,
    tell_duplicates,
    without_duplicates,
)
from sptnet.data.folder import read_folder
from sptnet.data.image_file import UnreadableImage
from sptnet.data.image_set import ImageSet
from sptnet.data.readable import drop_unreadable
from sptnet.data.split import Split, make_split
from sptnet.data.split_file import read_split
from sptnet.errors import Misuse
from sptnet.runtime.progress import Say, say, tracker
from sptnet.runtime.text import printable

ALL_LABELLED = (
    "every image is labelled, so there is nothing to discover. Put the unsorted images in a folder called unlabelled "
    "(or name yours with `data.unlabelled`). If the sub-folders are not categories but sites, cameras or dates, give "
    "`data.folder_labels=false`. To hide categories for an experiment instead, use sptnet train with "
    "`data.known_classes=N`."
)
ALL_IN_FILE = (
    "every image has a label in {file}, so there is nothing to discover. Leave the label of unsorted images empty, or "
    "leave out their rows."
)


@dataclass(frozen=True)
class SplitImages:
    """Images, their split, the files that could not be read, and the duplicates if they were searched for."""

    image_set: ImageSet
    split: Split
    unreadable: list[UnreadableImage]
    duplicates: list[Duplicate] = field(default_factory=list)

    @property
    def n_skipped(self) -> int:
        """Number of duplicates that are left out of the image set."""
        return sum(duplicate.skipped for duplicate in self.duplicates)


def load_data(settings: DataSettings, tell: Say = say) -> SplitImages:
    """Read the images, skip unreadable files and, if asked, duplicates, and split."""
    image_set, unreadable, duplicates = _load(settings, tell)
    return SplitImages(image_set, split_image_set(settings, image_set), unreadable, duplicates)


def load_unsorted(settings: DataSettings, tell: Say = say) -> tuple[DataSettings, SplitImages]:
    """Read images that may have no labels; the settings are returned with what their labels say."""
    settings = with_folder_labels(settings, tell)
    return split_unsorted(settings, *_load(settings, tell))


def with_folder_labels(settings: DataSettings, tell: Say = say) -> DataSettings:
    """Clear `folder_labels` if the folder itself has the name of the folder of unsorted images."""
    if settings.source != "folder" or settings.folder is None or settings.labels is not None:
        return settings
    folder = Path(settings.folder)
    if not settings.folder_labels or folder.resolve().name != settings.unlabelled or not folder.is_dir():
        return settings
    if any(entry.is_dir() for entry in folder.iterdir()):
        tell(
            f"the folder is called {printable(settings.unlabelled)}, so the names of its sub-folders are not labels. "
            "If they are, give another name for the unsorted images with `data.unlabelled=NAME`."
        )
    return settings.model_copy(update={"folder_labels": False})


def split_unsorted(
    settings: DataSettings,
    image_set: ImageSet,
    unreadable: list[UnreadableImage],
    duplicates: Sequence[Duplicate] = (),
) -> tuple[DataSettings, SplitImages]:
    """Split images that may have no labels; the settings are returned with what their labels say."""
    settings = with_known_classes(settings, image_set)
    return settings, SplitImages(image_set, split_image_set(settings, image_set), unreadable, list(duplicates))


def with_known_classes(settings: DataSettings, image_set: ImageSet) -> DataSettings:
    """Set `known_classes` to 0 if no image has a label; refuse images that are all labelled."""
    if settings.known_classes is not None or settings.split is not None:
        return settings
    labels = image_set.labels[~image_set.test]
    if (labels >= 0).all():
        raise Misuse(ALL_LABELLED if settings.labels is None else ALL_IN_FILE.format(file=settings.labels))
    return settings.model_copy(update={"known_classes": 0}) if (labels < 0).all() else settings


def split_image_set(settings: DataSettings, image_set: ImageSet) -> Split:
    """Split as the settings say; a benchmark has its own known classes and labelled domain."""
    if settings.split is not None:
        return read_split(settings.split, image_set)
    benchmark = BENCHMARKS.get(settings.source)
    known, domain = settings.known_classes, settings.labelled_domain
    if benchmark is not None:
        known = benchmark.n_known if known is None else known
        domain = domain or benchmark.labelled_domain
    return make_split(image_set, known, settings.labelled_share, settings.split_seed, settings.holdout_share, domain)


def load_image_set(settings: DataSettings, tell: Say = say) -> tuple[ImageSet, list[UnreadableImage]]:
    """Read the images and drop unreadable ones, which are returned too; also duplicates, if the settings ask for it.

    A benchmark must be complete, since missing images would shift its split.
    """
    return _load(settings, tell)[:2]


def _load(settings: DataSettings, tell: Say) -> tuple[ImageSet, list[UnreadableImage], list[Duplicate]]:
    """Read the images without those that are skipped; returned are also the problems and all duplicates."""
    image_set = read_image_set(settings, tell)
    look = ThumbnailReader() if settings.skip_duplicates else None
    allowed, also = settings.max_unreadable, ""
    if settings.source in BENCHMARKS and settings.check_counts:
        allowed, also = 0.0, "`data.check_counts=false` "
    image_set, unreadable = drop_unreadable(image_set, allowed, tracker("reading images"), also, look)
    for problem in unreadable[:10]:
        tell(f"skipped {printable(problem.name)}: {problem.reason}")
    if unreadable:
        tell(f"skipped {len(unreadable)} unreadable of {len(image_set) + len(unreadable)} images")
    if look is None:
        return image_set, unreadable, []
    thumbnails = look.of(image_set.ids)
    duplicates = find_duplicates(image_set, thumbnails, same_look(thumbnails, tracker("comparing images")))
    tell_duplicates(duplicates, tell)
    return without_duplicates(image_set, duplicates), unreadable, duplicates


def read_image_set(settings: DataSettings, tell: Say = say) -> ImageSet:
    """Read the image set that the settings name, unreadable files and duplicates included."""
    if settings.skip_duplicates and settings.source != "folder":
        raise Misuse(
            f"`data.skip_duplicates` is for folders, but data.source is {settings.source}. Leave one of them out."
        )
    if settings.source == "digits":
        return digits()
    if settings.folder is None:
        raise Misuse("no images given. Give a folder with `data.folder=DIR`.")
    if settings.source == "folder":
        return read_folder(settings.folder, settings.labels, settings.unlabelled, tell, settings.folder_labels)
    if settings.labels is not None:
        raise Misuse(f"data.labels is for folders, but data.source is {settings.source}. Leave one of them out.")
    if settings.source == "domains":
        if settings.labelled_domain is None:
            raise Misuse("which domain has the labels? Name it with `data.labelled_domain=NAME`.")
        return read_domains(Path(settings.folder), settings.labelled_domain, tuple(settings.unlabelled_domains))
    image_set = read_benchmark(settings.source, Path(settings.folder))
    if settings.check_counts:
        check_counts(BENCHMARKS[settings.source], image_set)
    return image_set


def resolve_n_categories(asked: int | None, factor: float, split: Split) -> int:
    """Return the number asked for; without one the true number times a factor, if every true label is known."""
    if asked is None and (split.target < 0).any():
        raise Misuse(
            f"how many categories are there? {split.n_known} are known; give the number with the new ones, "
            f"such as `n_categories={split.n_known + 5}`."
        )
    n_categories = round(factor * len(split.classes)) if asked is None else asked
    if n_categories < split.n_known:
        name = "`n_categories`" if asked is not None else f"category_factor {factor:g} times {len(split.classes)}"
        raise Misuse(
            f"{name} is {n_categories}, but {split.n_known} categories are known already. "
            f"Give at least {split.n_known}: the known ones plus those to discover."
        )
    if n_categories > len(split.training):
        name = "`n_categories`" if asked is not None else f"category_factor {factor:g} times {len(split.classes)}"
        raise Misuse(
            f"{name} is {n_categories:.12g}, but there are only {len(split.training)} training images. "
            "Give at most that many."
        )
    return n_categories
