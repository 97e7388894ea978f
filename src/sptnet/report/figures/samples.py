"""Images that a figure shows: those asked for, or a few of different classes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sptnet.data.image_file import ImageSource, UnreadableImage, read_image
from sptnet.data.image_set import UNKNOWN, ImageSet
from sptnet.data.load import read_image_set
from sptnet.errors import Misuse, SptnetError
from sptnet.report.figures.chosen_runs import ChosenRun
from sptnet.runtime.seeds import seed_of
from sptnet.runtime.text import first_three, printable

N_SAMPLES = 3


@dataclass(frozen=True, eq=False)
class Samples:
    """Images of a figure."""

    sources: list[ImageSource]
    problems: list[str]
    """Reasons why the images of some runs could not be read."""


def find_samples(runs: Sequence[ChosenRun], asked: Sequence[str]) -> Samples:
    """Return the images asked for by id, each from the first run that has it; else a few of the first readable run.

    `sources` is empty if no run's images can be read.
    """
    problems: list[str] = []
    image_sets = _image_sets(runs, problems)
    first = next(image_sets, None)
    if first is None:
        return Samples([], problems)
    if not asked:
        chosen = choose_samples(first)
        if not chosen:
            problems.append(f"no image of {printable(first.name)} can be read. Repair them, or give a run of others.")
        return Samples([first.sources[i] for i in chosen], problems)
    source_of: dict[str, ImageSource] = {}
    for image_set in (first, *image_sets):
        wanted = set(asked) - source_of.keys()
        by_id = zip(image_set.ids, image_set.sources, strict=True)
        source_of |= {id_: source for id_, source in by_id if id_ in wanted}
    missing = [printable(id_) for id_ in asked if id_ not in source_of]
    if missing:
        raise Misuse(
            f"there is no image {first_three(missing)} in the runs{''.join(f' ({problem})' for problem in problems)}. "
            f"Give ids as in the first column of predictions.csv, such as `image={printable(first.ids[0])!r}`."
        )
    return Samples([source_of[id_] for id_ in asked], problems)


def _image_sets(runs: Sequence[ChosenRun], problems: list[str]) -> Iterator[ImageSet]:
    """Yield the images of each run; runs of the same data count once."""
    seen = []
    for run in runs:
        if run.config.data in seen:
            continue
        seen.append(run.config.data)
        try:
            image_set = read_image_set(run.config.data)
        except SptnetError as error:
            problems.append(f"the images of {run.label}: {error}")
            continue
        yield image_set


def choose_samples(image_set: ImageSet, n: int = N_SAMPLES) -> list[int]:
    """Choose n readable images in a fixed random order, of different classes if known; test images come last."""
    order = sorted(
        range(len(image_set)), key=lambda i: (bool(image_set.test[i]), seed_of("figures", ascii(image_set.ids[i])))
    )
    chosen: list[int] = []
    taken: set[int] = set()
    for i in order:
        label = int(image_set.labels[i])
        if len(chosen) == n:
            break
        if (label == UNKNOWN or label not in taken) and _readable(image_set.sources[i]):
            chosen.append(i)
            taken.add(label)
    return chosen


def _readable(source: ImageSource) -> bool:
    """Return False for an image that cannot be read, which runs skip too."""
    try:
        read_image(source)
    except UnreadableImage:
        return False
    return True
