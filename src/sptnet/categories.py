"""What was found, for people: names of categories, a table of predictions, a picture of each category."""

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from sptnet.data.image_file import read_image
from sptnet.data.image_set import Pile
from sptnet.data.split import Split
from sptnet.outputs import Outputs
from sptnet.runtime.files import write_atomically

TILE, PER_ROW, MOST = 64, 8, 24


def category_names(known_classes: tuple[str, ...], n_categories: int) -> tuple[str, ...]:
    """Known categories keep their names; the others are new-1, new-2 and so on until someone names them."""
    taken = set(known_classes)
    numbers = iter(range(1, n_categories + len(taken) + 1))
    fresh = (f"new-{i}" for i in numbers)
    new = [name for name in fresh if name not in taken][: n_categories - len(known_classes)]
    return (*known_classes, *new)


def write_predictions(path: Path, pile: Pile, split: Split, names: tuple[str, ...], outputs: Outputs) -> None:
    """One row an image: what it was taken for, how sure that is, and what was known about it."""
    part_of = np.full(len(pile), "unlabelled", dtype=object)
    for part in ("labelled", "holdout", "test"):
        part_of[getattr(split, part)] = part
    certainty = outputs.probabilities.max(1)

    def write(target: Path) -> None:
        with target.open("w", encoding="utf-8", errors="surrogatepass", newline="") as stream:
            table = csv.writer(stream)
            table.writerow(["image", "category", "is_new", "certainty", "part", "truth"])
            for i, category in enumerate(outputs.categories):
                truth = split.classes[split.target[i]] if split.target[i] >= 0 else ""
                is_new = "yes" if category >= split.n_known else "no"
                table.writerow([pile.ids[i], names[category], is_new, f"{certainty[i]:.4f}", part_of[i], truth])

    write_atomically(path, write)


def contact_sheet(pile: Pile, indices: npt.NDArray[np.int64]) -> Image.Image:
    """A grid of thumbnails."""
    rows = max(1, -(-len(indices) // PER_ROW))
    sheet = Image.new("RGB", (PER_ROW * (TILE + 2), rows * (TILE + 2)), "white")
    for position, index in enumerate(indices):
        thumbnail = read_image(pile.sources[int(index)]).resize((TILE, TILE), Image.Resampling.BICUBIC)
        row, column = divmod(position, PER_ROW)
        sheet.paste(thumbnail, (column * (TILE + 2) + 1, row * (TILE + 2) + 1))
    return sheet


def write_category_pictures(folder: Path, pile: Pile, names: tuple[str, ...], outputs: Outputs) -> list[Path]:
    """For every category that has images, its most certain ones in one picture."""
    folder.mkdir(parents=True, exist_ok=True)
    certainty = outputs.probabilities.max(1)
    written = []
    for category, name in enumerate(names):
        members = np.flatnonzero(outputs.categories == category)
        if len(members):
            best = members[np.argsort(-certainty[members], kind="stable")][:MOST]
            path = folder / f"{category:03d}-{safe_file_name(name)}.png"
            contact_sheet(pile, best).save(path)
            written.append(path)
    return written


def safe_file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:60]
