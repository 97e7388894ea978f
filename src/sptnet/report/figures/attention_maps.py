"""The most attended patches of the last block, head by head: from the class token, and from one patch."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from sptnet.errors import Misuse, SptnetError
from sptnet.inference.attention import AttentionMaps, last_block_attention, most_attended
from sptnet.model.model_folder import load_model
from sptnet.report.figures.canvas import PAGE_WIDTH, Drawn, short
from sptnet.report.figures.chosen_runs import ChosenRun
from sptnet.report.figures.samples import find_samples
from sptnet.report.figures.tiles import BETWEEN, GAP, MARGIN, Tile, TileGroup, tile_sheet
from sptnet.runtime.compute import Compute

CLASS_TOKEN, PATCH = "attention-class-token", "attention-patch"
CLASS_TOKEN_SHARE, PATCH_SHARE = 0.1, 0.6
"""As in the paper."""
RED, GREEN = (230, 20, 20), (0, 200, 60)
STRENGTH = 0.6
LARGEST_TILE, TILES_A_BAND = 0.9, 14
LETTER = 0.076
"""Inches; the width of a letter of a title."""
WITH_AND_WITHOUT = ((True, ", with prompts"), (False, ", without prompts"))

PatchPosition = tuple[int, int]
"""Row and column of a patch, from 1 at the top left."""
Maps = dict[tuple[str, str], list[AttentionMaps]]
"""By the run and by the words that say whether its prompts were applied: the attention of every image."""


def parse_patch(text: str) -> PatchPosition:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise Misuse(f"--patch {text} is not ROW,COLUMN. Give two whole numbers from 1, such as --patch 4,5.")
    return int(parts[0]), int(parts[1])


def draw_attention(
    runs: Sequence[ChosenRun], asked: Sequence[str], patch: PatchPosition | None, share: float | None, compute: Compute
) -> Drawn:
    """Both figures: a group of rows for every run, with its prompts and without; a row an image, a column a head."""
    samples = find_samples(runs, asked)
    if not samples.sources:
        return Drawn(left_out=[f"attention: {problem}" for problem in samples.problems])
    maps: Maps = {}
    left_out = []
    for run in runs:
        try:
            model, card = load_model(run.path)
        except SptnetError as error:
            left_out.append(f"attention of {run.label}: {error}")
            continue
        for prompted, words in WITH_AND_WITHOUT if model.has_prompts else ((False, ""),):
            found = last_block_attention(model, samples.sources, card.crop_ratio, compute, prompted)
            maps[run.label, words] = found
    if not maps:
        return Drawn(left_out=left_out)
    places = {key: _place(patch, key[0], found[0].grid) for key, found in maps.items()}
    of_class = share or CLASS_TOKEN_SHARE
    of_patch = share or PATCH_SHARE
    figures = {
        CLASS_TOKEN: _sheet(maps, dict.fromkeys(maps), of_class, "from the class token"),
        PATCH: _sheet(maps, places, of_patch, "from the patch in green"),
    }
    return Drawn(figures, left_out)


def _place(asked: PatchPosition | None, label: str, grid: int) -> int:
    """The position of the patch, line by line from 0; the middle of the image if none is asked for."""
    row, column = asked or (grid // 2 + 1, grid // 2 + 1)
    if max(row, column) > grid:
        raise Misuse(
            f"there is no patch {row},{column}: the images of {label} have {grid} x {grid} patches. "
            f"Give --patch 1,1 to {grid},{grid}."
        )
    return (row - 1) * grid + column - 1


def _sheet(maps: Maps, places: Mapping[tuple[str, str], int | None], share: float, origin: str) -> Figure:
    n_heads = max(len(found[0].heads) for found in maps.values())
    headings = ["image", *(f"$h_{{{head}}}$" for head in range(1, n_heads + 1))]
    side = _side(len(headings), len(maps))
    n_letters = int(side * len(headings) / LETTER)
    groups = [
        TileGroup(
            short(label, max(8, n_letters - len(words))) + words,
            headings,
            [_row(attention, places[label, words], share, n_heads) for attention in found],
        )
        for (label, words), found in maps.items()
    ]
    note = f"red: the {100 * share:g} % of the patches that get most attention {origin}, in each head of the last block"
    return tile_sheet(groups, side, note)


def _side(n_columns: int, n_groups: int) -> float:
    """Tiles that fill the page: one group in a band for twelve heads, two for six, three for three."""
    abreast = min(n_groups, max(1, TILES_A_BAND // n_columns))
    free = PAGE_WIDTH - 2 * MARGIN - (abreast - 1) * BETWEEN
    return min(LARGEST_TILE, free / abreast / (n_columns + GAP * (n_columns - 1)))


def _row(attention: AttentionMaps, place: int | None, share: float, n_heads: int) -> list[Tile | None]:
    """The image and a tile a head; nothing for heads that this model does not have."""
    marked = np.zeros(attention.grid**2, dtype=np.bool_)
    if place is not None:
        marked[place] = True
    row = 0 if place is None else 1 + place
    tiles: list[Tile | None] = [painted(attention.image, marked, GREEN, 1.0)]
    for top in most_attended(attention.heads[:, row], share):
        tiles.append(painted(painted(attention.image, top, RED, STRENGTH), marked, GREEN, 1.0))
    return tiles + [None] * (n_heads - len(attention.heads))


def painted(
    image: npt.NDArray[np.uint8], patches: npt.NDArray[np.bool_], colour: tuple[int, int, int], strength: float
) -> npt.NDArray[np.uint8]:
    """The image with some of its patches tinted."""
    grid = round(len(patches) ** 0.5)
    side = len(image) // grid
    where = np.kron(patches.reshape(grid, grid), np.ones((side, side))).astype(np.bool_)
    out = image.astype(np.float64)
    out[where] += strength * (np.array(colour) - out[where])
    return np.rint(out).astype(np.uint8)
