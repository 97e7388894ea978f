"""The learned prompts of all runs at one scale, so that their strengths can be compared."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from sptnet.errors import SptnetError
from sptnet.model.model_folder import load_model
from sptnet.model.prompt_pictures import COMPOSED, as_picture, prompt_deltas, scale_of
from sptnet.report.figures.canvas import DPI, Drawn, short
from sptnet.report.figures.chosen_runs import ChosenRun
from sptnet.report.figures.tiles import TileGroup, tile_sheet

WANTED_PIXELS = 450


def draw_prompts(runs: Sequence[ChosenRun]) -> Drawn:
    """Draw the parts of the prompts of each run, and all composed."""
    deltas: dict[str, dict[str, Float[Tensor, "3 height width"]]] = {}
    left_out = []
    for run in runs:
        try:
            of_run = prompt_deltas(load_model(run.path)[0])
        except SptnetError as error:
            left_out.append(f"prompts of {run.label}: {error}")
            continue
        if of_run:
            deltas[run.label] = of_run
        else:
            left_out.append(
                f"prompts of {run.label}: its model has no pixel prompts. Give a run with them, such as one of sptnet."
            )
    if not deltas:
        return Drawn(left_out=left_out)
    scale = scale_of(delta for of_run in deltas.values() for title, delta in of_run.items() if title != COMPOSED)
    groups = [
        TileGroup(short(label), [title], [[as_picture(delta, scale)]])
        for label, of_run in deltas.items()
        for title, delta in of_run.items()
    ]
    pixels = next(iter(next(iter(deltas.values())).values())).shape[-1]
    side = max(1, round(WANTED_PIXELS / pixels)) * pixels / DPI  # a pixel of the prompt is a whole number of pixels
    note = f"grey: 0; darkest to lightest: ±{scale:.2g} in normalised pixel values"
    return Drawn({"prompts": tile_sheet(groups, side, note, crisp=True)}, left_out)
