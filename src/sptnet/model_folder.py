"""The model directory: weights in safetensors and a `model.json` that says how to build what they fill."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from sptnet.backbone import build_backbone
from sptnet.checkpoint import digest
from sptnet.config import PromptSettings
from sptnet.errors import Failure, Misuse, SptnetError
from sptnet.files import write_atomically
from sptnet.head import PrototypeHead
from sptnet.model import GcdModel
from sptnet.pixels import PixelFormat

FORMAT = 1
WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"


@dataclass(frozen=True)
class ModelCard:
    """What is known about a trained model beside its weights."""

    categories: tuple[str, ...]
    n_known: int
    prompt: PromptSettings
    crop_ratio: float
    trainable_blocks: int = 1


def save_model(folder: Path, model: GcdModel, card: ModelCard) -> None:
    """Writes a fresh folder beside the old one and swaps, so that there is always a whole model."""
    backbone = model.backbone
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    description = {
        "format": FORMAT,
        "backbone": backbone.name,
        "pixels": backbone.pixels.to_dict(),
        "head": {"hidden": model.head.hidden, "bottleneck": model.head.bottleneck},
        "prompt": card.prompt.model_dump(),
        "crop_ratio": card.crop_ratio,
        "trainable_blocks": card.trainable_blocks,
        "n_known": card.n_known,
        "categories": list(card.categories),
        "sha256": digest(tensors),
    }
    fresh = folder.with_name(folder.name + ".part")
    if fresh.exists():
        shutil.rmtree(fresh)
    fresh.mkdir(parents=True)
    write_atomically(fresh / WEIGHTS, lambda part: save_file(tensors, part))
    (fresh / DESCRIPTION).write_text(json.dumps(description, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    old = folder.with_name(folder.name + ".old")
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    if old.exists():
        shutil.rmtree(old)


def find_model_folder(path: str | Path) -> Path:
    """A model directory, or the one inside a run."""
    path = Path(path)
    for folder in (path, path / "model"):
        if (folder / DESCRIPTION).is_file():
            return folder
    if (path / "config.toml").is_file():
        raise Misuse(f"the run {path} has no finished model yet. Finish it with: sptnet train --resume --out {path}")
    raise Misuse(f"{path} is neither a run nor a model directory: there is no {DESCRIPTION}. Give the folder of a run.")


def load_model(path: str | Path) -> tuple[GcdModel, ModelCard]:
    folder = find_model_folder(path)
    description = _description(folder / DESCRIPTION)
    try:
        tensors = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise Failure(f"{folder / WEIGHTS} is damaged or missing ({error}). Copy it again or train again.") from error
    try:
        model, card = _build(description)
        if digest(tensors) != description["sha256"]:
            raise Failure(f"{folder / WEIGHTS} is damaged (its checksum differs). Copy it again or train again.")
        model.load_state_dict(tensors)
    except SptnetError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise Failure(
            f"{folder / DESCRIPTION} does not describe a model that fits its weights ({type(error).__name__}: "
            f"{first_line(error)}). Copy the model directory again or train again."
        ) from error
    return model.eval(), card


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def _build(description: dict[str, Any]) -> tuple[GcdModel, ModelCard]:
    """The model that a description speaks of, its weights still to be filled in."""
    facts: dict[str, Any] = description["pixels"]
    pixels = PixelFormat(facts["image_size"], tuple(facts["mean"]), tuple(facts["std"]), facts["interpolation"])
    card = ModelCard(
        tuple(description["categories"]),
        description["n_known"],
        PromptSettings(**description["prompt"]),
        description["crop_ratio"],
        description["trainable_blocks"],
    )
    backbone = build_backbone(description["backbone"], image_size=pixels.image_size, pretrained=False)
    backbone.pixels = pixels
    head = PrototypeHead(backbone.dim, len(card.categories), **description["head"])
    model = GcdModel(backbone, head, card.trainable_blocks)
    model.attach_prompt(card.prompt)
    return model, card


def _description(path: Path) -> dict[str, Any]:
    try:
        description: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = description["format"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise Failure(f"{path} is damaged ({error}). Copy it again or train again.") from error
    if found != FORMAT:
        raise Misuse(
            f"{path} has format {found}, but this sptnet reads format {FORMAT}. "
            "Install the version of sptnet that wrote it, or train again."
        )
    return description
