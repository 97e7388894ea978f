"""The model directory: weights in safetensors, and a `model.json` that describes the model they belong to."""

import json
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from sptnet.config import PromptSettings
from sptnet.data.pixel_format import PixelFormat
from sptnet.errors import Failure, Misuse, SptnetError
from sptnet.head import CentroidHead, ContrastiveHead, Head, LinearHead, PrototypeHead
from sptnet.model.backbone import build_backbone
from sptnet.model.calibrator import Calibrator
from sptnet.model.description import FORMAT, WAY_OUT, read_description
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_path import DESCRIPTION, WEIGHTS, find_model_folder
from sptnet.runtime.digest import digest
from sptnet.runtime.files import check_new_folder, new_folder, write_atomically, write_text_atomically
from sptnet.runtime.readers import damaged, one_line
from sptnet.runtime.tensor_files import first_misfit, first_not_finite, load_tensors, reading_tensors


@dataclass(frozen=True)
class ModelCard:
    """Facts about a trained model that its weights do not contain."""

    categories: tuple[str, ...]
    n_known: int
    prompt: PromptSettings
    crop_ratio: float
    trainable_blocks: int = 1
    calibrator: Calibrator | None = None
    """Calibration of the probabilities; None for a model without one."""


def check_replaceable(folder: Path, overwrite: bool) -> None:
    """Raise unless the folder is new or empty, or a model that `overwrite` allows to replace."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    strangers = [name for name in names if name not in (WEIGHTS, DESCRIPTION)]
    check_new_folder(folder, "a model", strangers, overwrite=overwrite)


def save_model(folder: Path, model: GcdModel, card: ModelCard) -> None:
    """Write a model directory. It is written beside the target and then renamed, so there is always a whole model."""
    backbone = model.backbone
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    description = {
        "format": FORMAT,
        "backbone": backbone.name,
        **({"architecture": backbone.architecture} if backbone.architecture else {}),
        "pixels": asdict(backbone.pixels),
        "head": _describe_head(model.head),
        **_describe_card(card),
        "sha256": digest(tensors),
    }
    with new_folder(folder) as fresh:
        write_atomically(fresh / WEIGHTS, lambda part: save_file(tensors, part))
        write_text_atomically(fresh / DESCRIPTION, _as_text(description))


def update_card(folder: Path, card: ModelCard) -> None:
    """Replace the card of a saved model atomically; the weights stay as they are."""
    description = read_description(folder / DESCRIPTION)
    description.pop("calibrator", None)
    write_text_atomically(folder / DESCRIPTION, _as_text(description | _describe_card(card)))


def _describe_card(card: ModelCard) -> dict[str, Any]:
    return {
        "prompt": card.prompt.model_dump(),
        "crop_ratio": card.crop_ratio,
        "trainable_blocks": card.trainable_blocks,
        "n_known": card.n_known,
        "categories": list(card.categories),
        **({} if card.calibrator is None else {"calibrator": card.calibrator.as_dict()}),
    }


def _as_text(description: dict[str, Any]) -> str:
    return json.dumps(description, indent=1, ensure_ascii=False) + "\n"


def load_model(path: str | Path) -> tuple[GcdModel, ModelCard]:
    """Load the model of a run or a model directory, in eval mode."""
    folder = find_model_folder(path)
    description = read_description(folder / DESCRIPTION)
    weights = folder / WEIGHTS
    with reading_tensors(weights, WAY_OUT, says="is damaged or missing"):
        if not weights.is_file():
            raise ValueError("there is no such file")
        tensors = load_tensors(weights)[0]
    if digest(tensors) != description["sha256"]:
        raise damaged(weights, "its checksum differs", WAY_OUT)
    try:
        # Sizes in the description are compared with the weights before any memory is taken for them.
        misfit = first_misfit(tensors, _build(description, on_meta=True)[0].state_dict())
        if misfit is not None:
            raise ValueError(misfit)
        model, card = _build(description)
    except SptnetError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, AttributeError, AssertionError) as error:
        raise Failure(
            f"{folder / DESCRIPTION} does not describe a model that fits its weights ({type(error).__name__}: "
            f"{one_line(error)}). Copy the model directory again or train again."
        ) from error
    bad = first_not_finite(tensors)
    if bad is not None:
        raise damaged(weights, f"{bad} is not finite", "Copy it again, or train again with a lower learning rate.")
    model.load_state_dict(tensors)
    return model.eval(), card


def _describe_head(head: Head) -> dict[str, Any]:
    """Return the arguments to build the head with; those that are seldom used are left out at their default."""
    if isinstance(head, CentroidHead):
        return {"kind": "centroids"}
    if isinstance(head, LinearHead):
        return {"kind": "linear"}
    if isinstance(head, ContrastiveHead):
        raise Misuse("a contrastive head cannot be saved: it has no classifier. Save a model with a classifier.")
    lengths = {} if head.lengths is None else {"with_lengths": True}
    projection = {} if head.projects else {"projects": False}
    return {"hidden": head.hidden, "bottleneck": head.bottleneck, **lengths, **projection}


def _build_head(facts: dict[str, Any], dim: int, n_categories: int) -> Head:
    if facts.get("kind") == "centroids":
        return CentroidHead(dim, n_categories)
    if facts.get("kind") == "linear":
        return LinearHead(dim, n_categories)
    return PrototypeHead(dim, n_categories, **facts)


def _build(description: dict[str, Any], on_meta: bool = False) -> tuple[GcdModel, ModelCard]:
    """Build the described model with random weights, or on torch's meta device, where weights take no memory."""
    facts: dict[str, Any] = description["pixels"]
    reading = facts.get("reading", "exact")  # models that do not record it were trained with exact reading
    pixels = PixelFormat(
        facts["image_size"], tuple(facts["mean"]), tuple(facts["std"]), facts["interpolation"], reading
    )
    card = ModelCard(
        tuple(description["categories"]),
        description["n_known"],
        PromptSettings(**description["prompt"]),
        description["crop_ratio"],
        description["trainable_blocks"],
        None if description.get("calibrator") is None else Calibrator.from_dict(description["calibrator"]),
    )
    with torch.device("meta") if on_meta else nullcontext():
        backbone = build_backbone(
            description["backbone"],
            image_size=pixels.image_size,
            pretrained=False,
            architecture=description.get("architecture"),
        )
        backbone.pixels = pixels
        head = _build_head(description["head"], backbone.dim, len(card.categories))
    model = GcdModel(backbone, head, card.trainable_blocks)
    model.attach_prompt(card.prompt)
    return model, card
