"""`sptnet estimate`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sptnet.cli.options import BACKBONE, DEVICE, SETTING, WEIGHTS, given_settings, of_backbone


def estimate(
    recipe: Annotated[str, typer.Argument(help="A recipe of the package or a TOML file, for data and backbone.")] = (
        "sptnet"
    ),
    data: Annotated[Path | None, typer.Option(help="Folder of images; sub-folders name known categories.")] = None,
    labels: Annotated[Path | None, typer.Option(help="CSV of path,label instead of sub-folder names.")] = None,
    source: Annotated[str | None, typer.Option(help="A benchmark by name, if --data holds one.")] = None,
    settings: SETTING = None,
    least: Annotated[int | None, typer.Option("--min", help="Smallest count to try; the known ones.")] = None,
    most: Annotated[int | None, typer.Option("--max", help="Largest count to try; 1000 or images / 4.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything random.")] = 0,
    method: Annotated[
        str, typer.Option(help="balance, silhouette (needs no labels), brent (the published rule), or auto.")
    ] = "auto",
    backbone: BACKBONE = None,
    weights: WEIGHTS = None,
    device: DEVICE = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the curve.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Estimate how many categories there are among images of which some are labelled."""
    import numpy as np

    from sptnet.config.recipes import load_recipe
    from sptnet.data.load import load_data
    from sptnet.inference.count_categories import count_categories
    from sptnet.inference.features import feature_cache
    from sptnet.model.backbone import backbone_from
    from sptnet.report.figures.count_plot import check_picture_name, plot_count
    from sptnet.runtime.compute import choose_compute
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
    if data is not None and load_recipe(recipe).data.source == "digits":
        changes = {"data.source": "folder", **changes}
    config = load_recipe(recipe, changes)
    everyone = world()
    loaded = everyone.from_first(lambda: load_data(config.data))
    split = loaded.split
    backbone_ = backbone_from(config, everyone)
    compute = choose_compute(config.device, config.precision, everyone.local_rank)
    cache = feature_cache(config, loaded.image_set, backbone_.pixels, compute, everyone)
    features = cache.compute_all(backbone_.to(compute.device))
    found = count_categories(loaded, features, seed, everyone, least, most, method)  # type: ignore[arg-type]
    present = split.target[np.concatenate([split.labelled, split.unlabelled])]
    truth = len(set(present.tolist())) if (present >= 0).all() else None
    if plot is not None:
        everyone.do_first(lambda: plot_count(found, plot, split.n_known, truth))
    if as_json:
        print(json.dumps({**asdict(found), "n_known": split.n_known, "truth": truth}))
    else:
        show(found, split.n_known, truth, plot)


def show(found: Any, n_known: int, truth: int | None, plot: Path | None) -> None:
    from sptnet.cli.tables import percent, print_table

    rows = [
        [
            f"{trial.n_categories}" + (" <" if trial.n_categories == found.n_categories else ""),
            "-" if trial.labelled_accuracy is None else percent(trial.labelled_accuracy),
            f"{trial.silhouette:.3f}",
            f"{trial.inertia:.4f}",
            f"{trial.score:.3f}",
        ]
        for trial in found.curve
    ]
    print_table("counts tried", ["categories", "labelled accuracy", "silhouette", "inertia", "score"], rows)
    low, high = found.interval
    known = f"{n_known} known" + ("" if truth is None else f", {truth} in truth")
    print(f"about {found.n_categories} categories ({low} to {high} are plausible); {known}")
    print(f"train with: --set n_categories={found.n_categories}")
    if plot is not None:
        print(f"plot: {plot}")
