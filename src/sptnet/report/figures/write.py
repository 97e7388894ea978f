"""The figures of the paper, from any runs: features, attention, prompts, and accuracy against a setting."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sptnet.errors import Misuse
from sptnet.inference.attention import check_share
from sptnet.report.figures.accuracy import draw_accuracy
from sptnet.report.figures.attention_maps import CLASS_TOKEN, PATCH, PatchPosition, draw_attention
from sptnet.report.figures.canvas import Drawn, files_of, house_style, save
from sptnet.report.figures.chosen_runs import choose_runs
from sptnet.report.figures.prompt_sheet import draw_prompts
from sptnet.report.figures.tsne import draw_tsne
from sptnet.runtime.compute import Compute
from sptnet.runtime.files import check_new_file, check_outside

FILES = {"attention": (CLASS_TOKEN, PATCH), "prompts": ("prompts",), "accuracy": ("accuracy",), "tsne": ("tsne",)}
"""The figures in the order of their making, the slowest last, and the names of their files."""


@dataclass(frozen=True)
class Wishes:
    only: Sequence[str] = tuple(FILES)
    images: Sequence[str] = ()
    """Ids of the images whose attention is shown; a few are drawn if none is given."""
    patch: PatchPosition | None = None
    share: float | None = None
    """Of the patches shown in red; a tenth for the class token and six tenths for a patch if not given."""


@dataclass(frozen=True)
class Written:
    files: list[Path]
    left_out: list[str]
    """What could not be drawn, each with the reason."""


def write_figures(
    paths: Sequence[Path], out: Path, wishes: Wishes, compute: Compute, overwrite: bool = False
) -> Written:
    """Draws everything that the runs allow, then writes it; none at all is refused, with all reasons."""
    runs = choose_runs(paths)
    _check(paths, out, wishes, overwrite)
    draw: dict[str, Callable[[], Drawn]] = {
        "attention": lambda: draw_attention(runs, wishes.images, wishes.patch, wishes.share, compute),
        "prompts": lambda: draw_prompts(runs),
        "accuracy": lambda: draw_accuracy(runs),
        "tsne": lambda: draw_tsne(runs),
    }
    with house_style():
        drawn = [draw[name]() for name in FILES if name in wishes.only]
        left_out = [reason for each in drawn for reason in each.left_out]
        figures = {name: figure for each in drawn for name, figure in each.figures.items()}
        if not figures:
            raise Misuse("nothing can be drawn of these runs:" + "".join(f"\n  - {reason}" for reason in left_out))
        files = [file for name, figure in figures.items() for file in save(figure, out, name)]
    return Written(files, left_out)


def _check(paths: Sequence[Path], out: Path, wishes: Wishes, overwrite: bool) -> None:
    """Refuses what can be seen before any work."""
    unknown = [name for name in wishes.only if name not in FILES]
    if unknown or not wishes.only:
        raise Misuse(
            f"--only {','.join(unknown)} names no figure. Give some of {', '.join(FILES)}, with commas between."
        )
    if wishes.share is not None:
        check_share(wishes.share)
    if out.is_file():
        raise Misuse(f"{out} is a file. Give a folder with `out`.")
    for path in paths:
        check_outside(out, "out", {"the run": path})
    for file in (file for name in wishes.only for stem in FILES[name] for file in files_of(out, stem)):
        check_new_file(file, overwrite=overwrite)
