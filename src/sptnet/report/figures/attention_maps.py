"""The most attended patches per head of the last block: from the class token, and from one patch."""

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
"""Shares of the patches in red, as in the paper."""
RED, GREEN = (230, 20, 20), (0, 200, 60)
STRENGTH = 0.6
LARGEST_TILE, TILES_PER_ROW = 0.9, 14
LETTER = 0.076
"""Width of a letter of a title in inches."""
WITH_AND_WITHOUT = ((True, ", with prompts"), (False, ", without prompts"))

PatchPosition = tuple[int, int]
"""Row and column of a patch, from 1 at the top left."""
Maps = dict[tuple[str, str], list[AttentionMaps]]
"""Attention maps of all images by run, and by ", with prompts", ", without prompts" or ""."""


def parse_patch(text: str) -> PatchPosition:
    """Parse ROW,COLUMN."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise Misuse(f"`patch={text!r}` is not ROW,COLUMN. Give two whole numbers from 1, such as `patch='4,5'`.")
    return int(parts[0]), int(parts[1])


def draw_attention(
    runs: Sequence[ChosenRun], asked: Sequence[str], patch: PatchPosition | None, share: float | None, compute: Compute
) -> Drawn:
    """Draw both figures: groups per run, with and without its prompts; one row per image, one column per head."""
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
            maps[run.label, words] = last_block_attention(model, samples.sources, card.crop_ratio, compute, prompted)
    if not maps:
        return Drawn(left_out=left_out)
    patches = {key: _patch_index(patch, key[0], attention[0].grid) for key, attention in maps.items()}
    figures = {
        CLASS_TOKEN: _sheet(maps, dict.fromkeys(maps), share or CLASS_TOKEN_SHARE, "from the class token"),
        PATCH: _sheet(maps, patches, share or PATCH_SHARE, "from the patch in green"),
    }
    return Drawn(figures, left_out)


def _patch_index(position: PatchPosition | None, label: str, grid: int) -> int:
    """Return the row-major index of the patch, by default that in the middle of the image."""
    row, column = position or (grid // 2 + 1, grid // 2 + 1)
    if max(row, column) > grid:
        raise Misuse(
            f"there is no patch {row},{column}: the images of {label} have {grid} x {grid} patches. "
            f"Give `patch='1,1'` to {grid},{grid}."
        )
    return (row - 1) * grid + column - 1


def _sheet(maps: Maps, patches: Mapping[tuple[str, str], int | None], share: float, origin: str) -> Figure:
    n_heads = max(len(attention[0].heads) for attention in maps.values())
    headings = ["image", *(f"$h_{{{head}}}$" for head in range(1, n_heads + 1))]
    side = _side(len(headings), len(maps))
    n_letters = int(side * len(headings) / LETTER)
    groups = [
        TileGroup(
            short(label, max(8, n_letters - len(words))) + words,
            headings,
            [_row(attention, patches[label, words], share, n_heads) for attention in of_images],
        )
        for (label, words), of_images in maps.items()
    ]
    note = f"red: the {100 * share:g} % of the patches that get most attention {origin}, in each head of the last block"
    return tile_sheet(groups, side, note)


def _side(n_columns: int, n_groups: int) -> float:
    """Return the side of a tile that fills the page, with one group per row for twelve heads, two for six."""
    per_row = min(n_groups, max(1, TILES_PER_ROW // n_columns))
    free = PAGE_WIDTH - 2 * MARGIN - (per_row - 1) * BETWEEN
    return min(LARGEST_TILE, free / per_row / (n_columns + GAP * (n_columns - 1)))


def _row(attention: AttentionMaps, patch: int | None, share: float, n_heads: int) -> list[Tile | None]:
    """Return the image and one tile per head; None for heads that this model does not have."""
    marked = np.zeros(attention.grid**2, dtype=np.bool_)
    if patch is not None:
        marked[patch] = True
    row = 0 if patch is None else 1 + patch
    tiles: list[Tile | None] = [painted(attention.image, marked, GREEN, 1.0)]
    for top in most_attended(attention.heads[:, row], share):
        tiles.append(painted(painted(attention.image, top, RED, STRENGTH), marked, GREEN, 1.0))
    return tiles + [None] * (n_heads - len(attention.heads))


def painted(
    image: npt.NDArray[np.uint8], patches: npt.NDArray[np.bool_], colour: tuple[int, int, int], strength: float
) -> npt.NDArray[np.uint8]:
    """Tint some patches of an image, height x width x 3; `patches` are row by row."""
    grid = round(len(patches) ** 0.5)
    side = len(image) // grid
    where = np.kron(patches.reshape(grid, grid), np.ones((side, side))).astype(np.bool_)
    out = image.astype(np.float64)
    out[where] += strength * (np.array(colour) - out[where])
    return np.rint(out).astype(np.uint8)
