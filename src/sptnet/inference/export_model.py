"""Export a trained model as one file for other programs: images to (features, logits), in batches of any size.

The pixel prompts are folded in, so the file holds a plain Vision Transformer. Metadata in the file describe the
preprocessing of images and the categories.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from sptnet.data.pixel_format import PixelFormat
from sptnet.errors import Misuse
from sptnet.head import CentroidHead
from sptnet.losses import STUDENT_TEMPERATURE
from sptnet.model.folding import fold_prompt
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import ModelCard, load_model
from sptnet.results.categories import category_names
from sptnet.results.counts import Clustering
from sptnet.results.edits.names import EditedNames, names_for
from sptnet.results.export.files import MODEL_FORMS
from sptnet.runtime.files import check_new_file, check_outside, write_atomically

FACTS = "sptnet.json"
"""Name of the metadata: among the extra files of a torch program, among the properties of an ONNX model."""
LARGEST_ONNX = 2**31 - 2**20
"""Limit in bytes: an ONNX file is one message of less than 2 GB, of which 1 MB is reserved for the graph."""


class FeaturesAndLogits(nn.Module):
    """Module that is exported: normalised images to class tokens and logits."""

    def __init__(self, model: GcdModel):
        super().__init__()
        self.model = model

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> tuple[Float[Tensor, "n dim"], Float[Tensor, "n k"]]:
        """Compute features and logits."""
        features = self.model.features(images)
        return features, self.model.head(features)[1]


def export_model(run: str | Path, to: str | Path, form: str, overwrite: bool = False) -> ModelCard:
    """Write the model of a run or of a model directory as one file; return its card."""
    writers: dict[str, Callable[[ExportedProgram, str, Path], None]] = {"torch": write_torch, "onnx": write_onnx}
    if form not in writers:
        raise Misuse(f"there is no model as {form}. Choose from: {', '.join(MODEL_FORMS)}.")
    target = Path(to)
    _check_target(target, Path(run), overwrite)
    if form == "onnx":
        _check_onnx_installed()
    model, card = load_model(run)
    if form == "onnx":
        _check_size(model)
    names = names_for(run)
    if names is not None and names.clustering is not None:
        model, card = with_clustering(model, card, names.clustering)
    facts = json.dumps(describe(card, model.backbone.pixels, names), indent=1)
    program = traced(model)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, lambda part: writers[form](program, facts, part))
    return card


def with_clustering(model: GcdModel, card: ModelCard, clustering: Clustering) -> tuple[GcdModel, ModelCard]:
    """Replace the head of a model by the nearest centroid of a clustering into another number of categories."""
    assert clustering.centroids is not None
    head = CentroidHead(model.backbone.dim, len(clustering.centroids))
    head.centroids.copy_(torch.from_numpy(clustering.centroids))
    model.head = head
    names = category_names(card.categories[: card.n_known], len(clustering.centroids))
    return model, replace(card, categories=names)


def traced(model: GcdModel) -> ExportedProgram:
    """Trace the model with folded prompts, for batches of any size."""
    size = model.backbone.pixels.image_size
    module = FeaturesAndLogits(fold_prompt(model)).eval()
    with torch.no_grad():
        return torch.export.export(module, (torch.zeros(2, 3, size, size),), dynamic_shapes={"images": {0: Dim("n")}})


def describe(card: ModelCard, pixels: PixelFormat, names: EditedNames | None = None) -> dict[str, Any]:
    """Describe the preprocessing, in the order of its steps, and the category of every logit."""
    return {
        "input": "images",
        "outputs": ["features", "logits"],
        "pixels": {
            "colours": "RGB",
            "resize_short_side": int(pixels.image_size / card.crop_ratio),
            "interpolation": pixels.interpolation,
            "resized_by": "Pillow" if pixels.reading == "exact" else "torch",
            "centre_crop": pixels.image_size,
            "range": [0, 1],
            "mean": list(pixels.mean),
            "std": list(pixels.std),
        },
        "temperature": STUDENT_TEMPERATURE,
        "categories": _categories(card, names),
    }


def _categories(card: ModelCard, names: EditedNames | None) -> list[dict[str, Any]]:
    """Describe a category per logit with its edited name; a split category keeps its name and lists its parts."""
    if names is None:
        return [{"name": name, "is_new": i >= card.n_known} for i, name in enumerate(card.categories)]
    known = set(names.names[: names.n_known])
    described = []
    for name, parts in zip(card.categories, names.parts, strict=True):
        present = list(dict.fromkeys(part.name for part in parts))
        whole = len(present) == 1
        facts = {"name": present[0] if whole else name, "is_new": not set(present) & known}
        described.append(facts if whole else {**facts, "split_into": present})
    return described


def write_torch(program: ExportedProgram, facts: str, path: Path) -> None:
    """Write a program for `torch.export.load`."""
    with path.open("wb") as stream:
        torch.export.save(program, stream, extra_files={FACTS: facts})  # type: ignore[arg-type]


def write_onnx(program: ExportedProgram, facts: str, path: Path) -> None:
    """Write a program as an ONNX model."""
    outputs = ["features", "logits"]
    onnx = torch.onnx.export(program, input_names=["images"], output_names=outputs, dynamo=True, verbose=False)
    assert onnx is not None
    onnx.model.metadata_props[FACTS] = facts
    onnx.save(path, external_data=False)


def _check_target(target: Path, run: Path, overwrite: bool) -> None:
    check_outside(target, "to", {"the run": run})
    check_new_file(target, "to", overwrite)


def _check_onnx_installed() -> None:
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise Misuse(
            f"ONNX needs {' and '.join(missing)}. Install with: pip install 'sptnet[onnx]', or export as torch."
        )


def _check_size(model: GcdModel) -> None:
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    if size > LARGEST_ONNX:
        raise Misuse(f"the weights take {size / 2**30:.1f} GB, but an ONNX file holds 2 GB at most. Export as torch.")
