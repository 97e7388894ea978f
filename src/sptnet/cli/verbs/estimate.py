"""`sptnet estimate`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sptnet.cli import completion
from sptnet.cli.options import BACKBONE, DEVICE, JSON, SETTING, WEIGHTS, given_settings, of_backbone, source_settings
from sptnet.cli.output import show_json, show_line

if TYPE_CHECKING:
    from sptnet.inference.count_categories import RunCount


def estimate(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe of the package or a TOML file, for data and backbone.", autocompletion=completion.recipes
        ),
    ] = ("sptnet"),
    data: Annotated[Path | None, typer.Option(help="Folder of images; sub-folders name known categories.")] = None,
    labels: Annotated[Path | None, typer.Option(help="CSV of path,label instead of sub-folder names.")] = None,
    source: Annotated[
        str | None, typer.Option(help="A benchmark by name, if --data holds one.", autocompletion=completion.benchmarks)
    ] = None,
    settings: SETTING = None,
    least: Annotated[int | None, typer.Option("--min", help="Smallest count to try; the known ones.")] = None,
    most: Annotated[int | None, typer.Option("--max", help="Largest count to try; 1000 or images / 4.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything random.")] = 0,
    method: Annotated[
        str,
        typer.Option(help="auto, share, balance, brent (published), between or silhouette (need no labels)."),
    ] = "auto",
    backbone: BACKBONE = None,
    weights: WEIGHTS = None,
    device: DEVICE = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the curve.")] = None,
    as_json: JSON = False,
) -> None:
    """Estimate the number of categories among images, some of which may be labelled."""
    from sptnet.config.recipes import load_recipe
    from sptnet.inference.count_categories import estimate_categories
    from sptnet.report.figures.count_plot import check_picture_name, plot_count
    from sptnet.runtime.distributed import world

    if plot is not None:
        check_picture_name(plot)
    plain: dict[str, Any] = {
        "data.folder": data and data.resolve(),
        "data.labels": labels and labels.resolve(),
        "data.source": source,
        "device": device,
        **of_backbone(backbone, weights),
    }
    changes = given_settings(plain, settings)
    config = load_recipe(recipe, source_settings(recipe, data) | changes)
    count = estimate_categories(config, seed, least, most, method)  # type: ignore[arg-type]
    if plot is not None:
        world().do_first(lambda: plot_count(count.estimate, plot, count.n_known, count.truth))
    if as_json:
        show_json({**asdict(count.estimate), "n_known": count.n_known, "truth": count.truth})
    else:
        _show(count, plot)


def _show(count: "RunCount", plot: Path | None) -> None:
    from sptnet.cli.tables import percent, print_table

    estimate = count.estimate
    rows = [
        [
            f"{trial.n_categories}" + (" <" if trial.n_categories == estimate.n_categories else ""),
            "-" if trial.labelled_accuracy is None else percent(trial.labelled_accuracy),
            f"{trial.silhouette:.3f}",
            f"{trial.inertia:.4f}",
            f"{trial.score:.3f}",
        ]
        for trial in estimate.curve
    ]
    print_table("counts tried", ["categories", "labelled accuracy", "silhouette", "inertia", "score"], rows)
    low, high = estimate.interval
    known = f"{count.n_known} known" + ("" if count.truth is None else f", {count.truth} in truth")
    show_line(f"about {estimate.n_categories} categories ({low} to {high} are plausible); {known}")
    show_line(f"train with: --set n_categories={estimate.n_categories}")
    if plot is not None:
        show_line(f"plot: {plot}")
