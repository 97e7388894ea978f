"""Write the paper's figures for any runs: features, attention, prompts, and accuracy against a setting."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sptnet.errors import Misuse, with_reasons
from sptnet.inference.attention import check_share
from sptnet.report.figures.accuracy import draw_accuracy
from sptnet.report.figures.attention_maps import CLASS_TOKEN, PATCH, PatchPosition, draw_attention
from sptnet.report.figures.canvas import Drawn, figure_style, files_of, save
from sptnet.report.figures.chosen_runs import choose_runs
from sptnet.report.figures.prompt_sheet import draw_prompts
from sptnet.report.figures.tsne import draw_tsne
from sptnet.runtime.compute import Compute
from sptnet.runtime.files import check_new_file, check_outside

FILES = {"attention": (CLASS_TOKEN, PATCH), "prompts": ("prompts",), "accuracy": ("accuracy",), "tsne": ("tsne",)}
"""File names of the figures, in the order in which they are drawn, the slowest last."""


@dataclass(frozen=True)
class FigureOptions:
    """Options of the figures."""

    only: Sequence[str] = tuple(FILES)
    images: Sequence[str] = ()
    """Ids of the images whose attention is shown; by default a few chosen ones."""
    patch: PatchPosition | None = None
    share: float | None = None
    """Share of the patches in red; by default 0.1 for the class token and 0.6 for a patch."""


@dataclass(frozen=True)
class Written:
    """Written files, and messages about figures that could not be drawn."""

    files: list[Path]
    left_out: list[str]


def write_figures(
    paths: Sequence[Path], out: Path, options: FigureOptions, compute: Compute, overwrite: bool = False
) -> Written:
    """Draw all figures that the runs allow, then write them. Raises if there is none, with all reasons."""
    runs = choose_runs(paths)
    _check(paths, out, options, overwrite)
    draw: dict[str, Callable[[], Drawn]] = {
        "attention": lambda: draw_attention(runs, options.images, options.patch, options.share, compute),
        "prompts": lambda: draw_prompts(runs),
        "accuracy": lambda: draw_accuracy(runs),
        "tsne": lambda: draw_tsne(runs),
    }
    with figure_style():
        drawn = [draw[name]() for name in FILES if name in options.only]
        left_out = [reason for each in drawn for reason in each.left_out]
        figures = {name: figure for each in drawn for name, figure in each.figures.items()}
        if not figures:
            raise Misuse(with_reasons("nothing can be drawn of these runs:", left_out))
        files = [file for name, figure in figures.items() for file in save(figure, out, name)]
    return Written(files, left_out)


def _check(paths: Sequence[Path], out: Path, options: FigureOptions, overwrite: bool) -> None:
    """Raise for wrong options before any work."""
    unknown = [name for name in options.only if name not in FILES]
    if unknown or not options.only:
        raise Misuse(
            f"`only={','.join(unknown)!r}` names no figure. Give some of {', '.join(FILES)}, with commas between."
        )
    if options.share is not None:
        check_share(options.share)
    if out.is_file():
        raise Misuse(f"{out} is a file. Give a folder with `out`.")
    for path in paths:
        check_outside(out, "out", {"the run": path})
    for file in (file for name in options.only for stem in FILES[name] for file in files_of(out, stem)):
        check_new_file(file, overwrite=overwrite)
