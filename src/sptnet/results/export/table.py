"""Export as a table of one row per image, which is a labels file too."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import ExifTags

from sptnet.data.check.skip_duplicates import duplicate_files
from sptnet.data.folder import EXPORTED, EXPORTED_DETAILS
from sptnet.data.image_file import read_exif
from sptnet.results.categories import doubtful_images
from sptnet.results.predictions import prediction_rows
from sptnet.results.run_result import RunResult
from sptnet.runtime.files import write_csv_atomically
from sptnet.runtime.progress import tracker
from sptnet.runtime.text import for_spreadsheet

Track = Callable[[str], Callable[..., Iterable[Any]]]
RANK = {"labelled": 0, "holdout": 0, "unlabelled": 1, "test": 2}
"""Order of the parts of a run in the choice of the original of a group of duplicates."""


@dataclass(frozen=True, eq=False)
class ImageDetails:
    """What a table says of the images beside their result."""

    second: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Second choice per image, an index into the names of shape (n,); -1 where there is none. Empty if there are no
    second choices."""
    second_certainty: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    """Probability that the second choice is right, of shape (n,)."""
    duplicate_of: Mapping[str, str] | None = None
    """Image that an image duplicates, by id; None if duplicates are not known, and the table has no column for them."""


def write_csv(path: Path, result: RunResult, details: ImageDetails, track: Track = tracker) -> None:
    """Write one row per image, without dropped images; a labels file that `data.labels` reads.

    Text has an apostrophe where a spreadsheet would take it for a formula.
    """
    left_out = () if details.duplicate_of is not None else ("duplicate_of",)
    columns = (*EXPORTED, *(column for column in EXPORTED_DETAILS if column not in left_out))
    kept = np.flatnonzero(result.category >= 0)
    rows = track("writing the table")(_rows(result, kept, details), total=len(kept))
    write_csv_atomically(path, columns, ([for_spreadsheet(row[column]) for column in columns] for row in rows))


def _rows(result: RunResult, kept: npt.NDArray[np.int64], details: ImageDetails) -> Iterator[dict[str, str]]:
    """Yield the cells of each image by column."""
    ids = [result.ids[i] for i in kept]
    present, doubts = set(ids), doubtful_images(result)
    first = prediction_rows(ids, result.category[kept], result.certainty[kept], result.names, result.n_known)
    for i, row in zip(kept.tolist(), first, strict=True):
        id_, source = result.ids[i], result.sources[i]
        second = int(details.second[i]) if len(details.second) else -1
        original = (details.duplicate_of or {}).get(id_, "")
        time, camera = ("", "") if source is None else time_and_camera(Path(source))
        yield dict(zip(EXPORTED, row, strict=True)) | {
            "labelled": _yes_no(result.part[i] == "labelled" or id_ in result.confirmed),
            "doubtful": _yes_no(bool(doubts[i])),
            "guess": result.names[result.guess[i]] if result.guess[i] >= 0 else "",
            "guess_certainty": f"{result.guess_certainty[i]:.4f}" if result.guess[i] >= 0 else "",
            "second": result.names[second] if second >= 0 else "",
            "second_certainty": f"{details.second_certainty[i]:.4f}" if second >= 0 else "",
            "duplicate_of": original if original in present else "",
            "time": time,
            "camera": camera,
        }


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def search_duplicates(result: RunResult, track: Track = tracker) -> dict[str, str]:
    """Read the files of all images that were not dropped; return the image that each duplicate resembles, by id."""
    kept = [i for i in np.flatnonzero(result.category >= 0).tolist() if result.sources[i] is not None]
    files, ranks = [Path(str(result.sources[i])) for i in kept], [RANK[result.part[i]] for i in kept]
    return duplicate_files(files, [result.ids[i] for i in kept], ranks, track)


def time_and_camera(path: Path) -> tuple[str, str]:
    """Return when and with which camera a photo was taken, as its EXIF tags say; empty where they do not."""
    tags = read_exif(path)
    make, model = (_plain(tags.get(tag)) for tag in (ExifTags.Base.Make, ExifTags.Base.Model))
    named_twice = model.casefold().startswith(make.casefold())
    return _time(tags.get(ExifTags.Base.DateTimeOriginal)), model if named_twice else f"{make} {model}".strip()


def _plain(value: object) -> str:
    """Return a tag as text on one line."""
    text = value if isinstance(value, str) else ""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _time(value: object) -> str:
    """Return an EXIF time such as 2024:05:01 12:30:00 with hyphens in its date; empty if it is none."""
    parts = re.fullmatch(r"(\d{4}):(\d\d):(\d\d) (\d\d:\d\d:\d\d)", _plain(value), re.ASCII)
    try:
        return "" if parts is None else str(datetime.fromisoformat("{}-{}-{} {}".format(*parts.groups())))
    except ValueError:
        return ""  # such as the zeros of a camera whose clock was never set
