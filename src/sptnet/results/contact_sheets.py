"""Contact sheets: one picture per category that shows its most certain images."""

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from sptnet.data.image_file import read_image
from sptnet.data.image_set import ImageSet
from sptnet.runtime.files import make_folder, write_atomically

TILE, PER_ROW, MOST = 64, 8, 24


def contact_sheet(image_set: ImageSet, indices: npt.NDArray[np.int64]) -> Image.Image:
    """Draw thumbnails of the images on a grid, eight per row."""
    rows = max(1, -(-len(indices) // PER_ROW))
    sheet = Image.new("RGB", (PER_ROW * (TILE + 2), rows * (TILE + 2)), "white")
    for position, index in enumerate(indices):
        thumbnail = read_image(image_set.sources[int(index)]).resize((TILE, TILE), Image.Resampling.BICUBIC)
        row, column = divmod(position, PER_ROW)
        sheet.paste(thumbnail, (column * (TILE + 2) + 1, row * (TILE + 2) + 1))
    return sheet


def write_contact_sheets(
    folder: Path,
    image_set: ImageSet,
    names: tuple[str, ...],
    categories: npt.NDArray[np.int64],
    certainty: npt.NDArray[np.float32],
) -> list[Path]:
    """Write one sheet per category that has images, its most certain images first."""
    make_folder(folder)
    written = []
    for category, name in enumerate(names):
        members = np.flatnonzero(categories == category)
        if len(members):
            best = members[np.argsort(-certainty[members], kind="stable")][:MOST]
            path = folder / f"{category:03d}-{safe_file_name(name)}.png"
            write_atomically(path, partial(contact_sheet(image_set, best).save, format="png"))
            written.append(path)
    return written


def safe_file_name(name: str) -> str:
    """Replace characters that file names should not contain, and cut the name to 60 characters."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:60]
