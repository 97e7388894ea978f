"""From the data settings of a run to its pile and its split."""

from dataclasses import dataclass
from pathlib import Path

from sptnet.config import DataSettings
from sptnet.data.benchmarks import BENCHMARKS, read_benchmark
from sptnet.data.benchmarks.counts import check_counts
from sptnet.data.benchmarks.digits import digits
from sptnet.data.benchmarks.domains import read_domains
from sptnet.data.folder import read_folder
from sptnet.data.image_file import UnreadableImage
from sptnet.data.image_set import ImageSet
from sptnet.data.readable import LIMIT_SETTING, drop_unreadable
from sptnet.data.split import Split, make_split
from sptnet.data.split_file import read_split
from sptnet.errors import Misuse
from sptnet.runtime.progress import Say, say, tracker
from sptnet.runtime.text import printable


@dataclass(frozen=True)
class SplitImages:
    image_set: ImageSet
    split: Split
    unreadable: list[UnreadableImage]


def load_data(settings: DataSettings, tell: Say = say) -> SplitImages:
    """Reads the pile, skips and names what cannot be read, and says who is labelled."""
    image_set, unreadable = load_image_set(settings, tell)
    return SplitImages(image_set, split_image_set(settings, image_set), unreadable)


def split_image_set(settings: DataSettings, image_set: ImageSet) -> Split:
    """The split that the settings ask for; a benchmark brings its own known classes and labelled domain."""
    if settings.split is not None:
        return read_split(settings.split, image_set)
    benchmark = BENCHMARKS.get(settings.source)
    known, domain = settings.known_classes, settings.labelled_domain
    if benchmark is not None:
        known = benchmark.n_known if known is None else known
        domain = domain or benchmark.labelled_domain
    return make_split(image_set, known, settings.labelled_share, settings.split_seed, settings.holdout_share, domain)


def load_image_set(
    settings: DataSettings, tell: Say = say, limit_setting: str = LIMIT_SETTING
) -> tuple[ImageSet, list[UnreadableImage]]:
    """The pile without the images that cannot be read, and those; a benchmark must be whole, else its split shifts."""
    image_set = read_image_set(settings)
    allowed = settings.max_unreadable
    if settings.source in BENCHMARKS and settings.check_counts:
        allowed, limit_setting = 0.0, f"`data.check_counts=false` {limit_setting}"
    image_set, unreadable = drop_unreadable(image_set, allowed, tracker("reading images"), limit_setting)
    for problem in unreadable[:10]:
        tell(f"skipped {printable(problem.name)}: {problem.reason}")
    if unreadable:
        tell(f"skipped {len(unreadable)} unreadable of {len(image_set) + len(unreadable)} images")
    return image_set, unreadable


def read_image_set(settings: DataSettings) -> ImageSet:
    if settings.source == "digits":
        return digits()
    if settings.folder is None:
        raise Misuse("no images given. Give a folder with --data DIR.")
    if settings.source == "folder":
        return read_folder(settings.folder, settings.labels, settings.unlabelled)
    if settings.labels is not None:
        raise Misuse(f"data.labels is for folders, but data.source is {settings.source}. Leave one of them out.")
    if settings.source == "domains":
        if settings.labelled_domain is None:
            raise Misuse("which domain has the labels? Name it with --set data.labelled_domain=NAME.")
        return read_domains(Path(settings.folder), settings.labelled_domain, tuple(settings.unlabelled_domains))
    image_set = read_benchmark(settings.source, Path(settings.folder))
    if settings.check_counts:
        check_counts(BENCHMARKS[settings.source], image_set)
    return image_set


def check_count(asked: int | str | None, factor: float) -> None:
    if asked is not None and factor != 1:
        raise Misuse("n_categories and category_factor exclude each other. Give one of them.")


def resolve_n_categories(asked: int | None, factor: float, split: Split) -> int:
    """The number asked for, or the true number (times a factor) where every image's truth is known."""
    check_count(asked, factor)
    if asked is None and (split.target < 0).any():
        raise Misuse(
            f"how many categories are there? {split.n_known} are known; give the number with the new ones, "
            f"such as --set n_categories={split.n_known + 5}."
        )
    n_categories = round(factor * len(split.classes)) if asked is None else asked
    if n_categories < split.n_known:
        name = "n_categories" if asked is not None else f"category_factor {factor:g} times {len(split.classes)}"
        raise Misuse(
            f"{name} is {n_categories}, but {split.n_known} categories are known already. "
            f"Give at least {split.n_known}: the known ones plus those to discover."
        )
    return n_categories
