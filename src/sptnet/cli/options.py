"""Options shared by several commands, and the settings they stand for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sptnet.cli import completion

SETTING = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="A.B=C", help="Change one setting; may be repeated.", autocompletion=completion.settings
    ),
]

BACKBONE = Annotated[
    str | None, typer.Option(help="timm name or sptnet_digits_vit; auto is the recipe's, or DINO ViT-B/16.")
]
WEIGHTS = Annotated[Path | None, typer.Option(help="Weights file of the backbone instead of a download.")]
DEVICE = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:N or mps.", autocompletion=completion.devices)]
TRACK = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Also write losses, scores, prompts and the report for tensorboard or wandb (offline).",
        autocompletion=completion.trackers,
    ),
]

JSON = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object; notes go to stderr.")]

# Of `discover` and `check`, which take the same options for images and plan.
LABELS = Annotated[Path | None, typer.Option(help="CSV of path,label instead of sub-folder names.")]
UNLABELLED = Annotated[str | None, typer.Option(help="Sub-folder of unsorted images, if called otherwise.")]
NO_FOLDER_LABELS = Annotated[
    bool, typer.Option("--no-folder-labels", help="Sub-folders are no categories, but sites, cameras or dates.")
]
SKIP_UNREADABLE = Annotated[
    bool, typer.Option("--skip-unreadable", help="Skip unreadable images, however many; else 1 % at most.")
]
SKIP_DUPLICATES = Annotated[
    bool, typer.Option("--skip-duplicates", help="Leave all but one of equal or nearly equal images out of training.")
]
CATEGORIES = Annotated[
    str | None, typer.Option(metavar="N|auto", help="How many there are, known and new; auto counts them.")
]
METHOD = Annotated[
    str | None,
    typer.Option(
        help="auto, which takes what the time allows, or kmeans, sskmeans, gcd, simgcd, sptnet, rankstats, uno, "
        "orca, dccl, promptcal, cipr, gpc or mugcd.",
        autocompletion=completion.methods,
    ),
]
MINUTES = Annotated[
    float | None, typer.Option(help="Time there is: 30 on a CPU, 240 on a GPU, or as in the round before.")
]
EPOCHS = Annotated[int | None, typer.Option(min=1, help="Epochs of training instead of what the time allows.")]
SEED = Annotated[int | None, typer.Option(min=0, help="Seed of everything random.")]
NO_REPORT = Annotated[bool, typer.Option("--no-report", help="Leave the report page out.")]


def discovery_settings(
    *,
    folder: Path | None,
    labels: Path | None,
    unlabelled: str | None,
    no_folder_labels: bool,
    skip_unreadable: bool,
    skip_duplicates: bool,
    categories: str | None,
    epochs: int | None,
    backbone: str | None,
    weights: Path | None,
    device: str | None,
    seed: int | None,
    settings: Sequence[str] | None,
) -> dict[str, Any]:
    """Return the settings that the options of `discover` and `check` stand for, by key."""
    from sptnet.config.recipes import epoch_settings

    plain = {
        "data.folder": folder and folder.resolve(),
        "data.labels": labels and labels.resolve(),
        "data.unlabelled": unlabelled and unlabelled.rstrip("/"),  # the shell's completion adds a slash
        "data.folder_labels": False if no_folder_labels else None,
        "data.max_unreadable": 1.0 if skip_unreadable else None,
        "data.skip_duplicates": True if skip_duplicates else None,
        "n_categories": categories and (int(categories) if categories.isdecimal() else categories),
        "device": device,
        "seed": seed,
        **of_backbone(backbone, weights),
        **epoch_settings(epochs),
    }
    return given_settings(plain, settings)


def of_backbone(name: str | None, weights: Path | None) -> dict[str, Any]:
    """Return the settings that --backbone and --weights stand for."""
    return {"backbone.name": None if name == "auto" else name, "backbone.weights": weights and weights.resolve()}


def given_settings(options: Mapping[str, Any], texts: Sequence[str] | None = None) -> dict[str, Any]:
    """Return settings by key: the texts of --set, and `options` on top; an option that is None was not given."""
    from sptnet.config.recipes import parse_settings

    given = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
    return parse_settings(texts or []) | {key: value for key, value in given.items() if value is not None}


def source_settings(recipe: str, data: Path | None) -> dict[str, Any]:
    """Return the setting that makes a recipe for the embedded digits read the folder of --data instead."""
    from sptnet.config.recipes import recipe_values

    if data is None:
        return {}
    section = recipe_values(recipe).get("data")
    return {"data.source": "folder"} if isinstance(section, dict) and section.get("source") == "digits" else {}
