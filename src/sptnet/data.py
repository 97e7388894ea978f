"""From the data settings of a run to its pile and its split."""

from dataclasses import dataclass

from sptnet.config import Data
from sptnet.errors import Misuse
from sptnet.folder import read_folder
from sptnet.images import UnreadableImage
from sptnet.pile import Pile, digits
from sptnet.progress import Say, say, tracker
from sptnet.readable import drop_unreadable
from sptnet.split import Split, make_split, read_split
from sptnet.wording import printable


@dataclass(frozen=True)
class LoadedData:
    pile: Pile
    split: Split
    unreadable: list[UnreadableImage]


def load_data(settings: Data, tell: Say = say) -> LoadedData:
    """Reads the pile, skips and names what cannot be read, and says who is labelled."""
    pile, unreadable = load_pile(settings, tell)
    if settings.split is not None:
        return LoadedData(pile, read_split(settings.split, pile), unreadable)
    split = make_split(
        pile, settings.known_classes, settings.labelled_share, settings.split_seed, settings.holdout_share
    )
    return LoadedData(pile, split, unreadable)


def load_pile(
    settings: Data, tell: Say = say, limit_flag: str = "--set data.max_unreadable="
) -> tuple[Pile, list[UnreadableImage]]:
    if settings.source == "digits":
        return digits(), []
    if settings.folder is None:
        raise Misuse("no images given. Give a folder with --data DIR.")
    pile = read_folder(settings.folder, settings.labels, settings.unlabelled)
    pile, unreadable = drop_unreadable(pile, settings.max_unreadable, tracker("reading images"), limit_flag)
    for problem in unreadable[:10]:
        tell(f"skipped {printable(problem.name)}: {problem.reason}")
    if unreadable:
        tell(f"skipped {len(unreadable)} unreadable of {len(pile) + len(unreadable)} images")
    return pile, unreadable


def resolve_n_categories(asked: int | None, split: Split) -> int:
    """The number asked for, or the true number where every image's truth is known."""
    if asked is not None:
        if asked < split.n_known:
            raise Misuse(
                f"n_categories is {asked}, but {split.n_known} categories are known already. "
                f"Give at least {split.n_known}: the known ones plus those to discover."
            )
        return asked
    if (split.target < 0).any():
        raise Misuse(
            f"how many categories are there? {split.n_known} are known; give the number with the new ones, "
            f"such as --set n_categories={split.n_known + 5}."
        )
    return len(split.classes)
