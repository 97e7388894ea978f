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
