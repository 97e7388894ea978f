"""A published checkpoint rebuilt from our parts: the same images give the same logits."""

import math
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.config import PromptSettings
from sptnet.errors import Misuse
from sptnet.head import PrototypeHead
from sptnet.model.backbone import Backbone, build_backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.model.published import PublishedCheckpoint, architecture
from sptnet.model.vit_weights import load_weights
from sptnet.prompts import GlobalPrompt, SpatialPrompt

_PADS = ("pad_up", "pad_down", "pad_left", "pad_right")
_MLP = [f"mlp.{layer}.{part}" for layer in (0, 2, 4) for part in ("weight", "bias")]
_WEIGHT_NORM = {  # in both of torch's ways to write it
    "last_layer.weight_g": "lengths",
    "last_layer.weight_v": "prototypes",
    "last_layer.parametrizations.weight.original0": "lengths",
    "last_layer.parametrizations.weight.original1": "prototypes",
}


def build_published(
    found: PublishedCheckpoint, backbone: str | None = None, image_size: int | None = None, frame_width: int = 1
) -> tuple[GcdModel, PromptSettings]:
    """Without its timm name, the backbone is told by its shapes; the image size by prompts or positions."""
    prompts = _prompts(found)
    vit = _build_backbone(found, prompts, backbone, image_size)
    model = GcdModel(vit, _build_head(found, vit.dim))
    settings = _settings(found, prompts, vit, frame_width)
    model.attach_prompt(settings)
    for part in model.prompt.parts:
        part.load_state_dict({"values": _values(prompts, cast(GlobalPrompt | SpatialPrompt, part))})
    return model.eval(), settings


def _prompts(found: PublishedCheckpoint) -> dict[str, Tensor]:
    """The border's four sides and the picture with the frames, by their own names."""
    prompts = {name.rpartition(".")[2]: value for name, value in found.prompts.items()}
    allowed = [{"patch"}, {*_PADS}, {"patch", *_PADS}] if found.kind == "sptnet" else [set()]
    if prompts.keys() not in allowed or len(prompts) != len(found.prompts):
        raise found.refusal(f"its prompts are {', '.join(sorted(found.prompts)) or 'missing'}")
    for name, value in prompts.items():
        if value.ndim != 4 or value.shape[:2] != (1, 3):
            raise found.refusal(f"its prompt {name} has the shape {tuple(value.shape)}")
    return prompts


def _build_backbone(
    found: PublishedCheckpoint, prompts: dict[str, Tensor], name: str | None, image_size: int | None
) -> Backbone:
    patch, positions = found.vit.get("patch_embed.proj.weight"), found.vit.get("pos_embed")
    if patch is None or positions is None or (patch.ndim, positions.ndim) != (4, 3):
        raise found.refusal("its ViT has no patches or no positions")
    patch_size = patch.shape[-1]
    widths = [prompts[part].shape[-1] for part in ("pad_up", "patch") if part in prompts]
    made_for = next((width for width in widths if width != patch_size), None)  # a shared frame fits any image
    if made_for is not None and image_size not in (None, made_for):
        raise Misuse(f"the prompts of {found.source} are made for images of {made_for} px. Leave --image-size out.")
    n_patches = positions.shape[1] - ("reg_token" not in found.vit)
    size = made_for or image_size or math.isqrt(n_patches) * patch_size
    if size % patch_size:
        raise Misuse(
            f"images of {size} px cannot be cut into patches of {patch_size}. Give a multiple as --image-size."
        )
    sizes: dict[str, Any] = {}
    if name is None:
        name, sizes = architecture(found)
    backbone = build_backbone(name, image_size=size, pretrained=False, architecture=sizes, reading="exact")
    load_weights(backbone.vit, found.vit, found.source, "--backbone NAME")
    return backbone


def _build_head(found: PublishedCheckpoint, dim: int) -> PrototypeHead:
    state = {_WEIGHT_NORM.get(name, name): value for name, value in found.head.items()}
    wanted = {*_MLP, "lengths", "prototypes"}
    if state.keys() != wanted:
        raise found.refusal(f"the names of its head differ in {', '.join(sorted(state.keys() ^ wanted)[:3])}")
    odd = [name for name, value in state.items() if value.ndim != (1 if name.endswith("bias") else 2)]
    if odd:
        raise found.refusal(f"{odd[0]} of its head has the shape {tuple(state[odd[0]].shape)}")
    n_categories, hidden, bottleneck = (len(state[n]) for n in ("prototypes", "mlp.0.weight", "mlp.4.weight"))
    state["lengths"] = state["lengths"].flatten()
    with_lengths = bool((state["lengths"] != 1).any())
    head = PrototypeHead(dim, n_categories, hidden, bottleneck, with_lengths)
    if not with_lengths:
        del state["lengths"]
    for name, value in head.state_dict().items():
        if state[name].shape != value.shape:
            shapes = f"{tuple(state[name].shape)}, not {tuple(value.shape)}"
            raise found.refusal(f"{name} of its head has the shape {shapes}")
    head.load_state_dict(state)
    return head


def _settings(
    found: PublishedCheckpoint, prompts: dict[str, Tensor], backbone: Backbone, frame_width: int
) -> PromptSettings:
    size, kinds, border, wanted = backbone.pixels.image_size, [], PromptSettings().border, {}
    if "patch" in prompts:
        shared = prompts["patch"].shape[-1] == backbone.patch_size
        kinds.append("shared" if shared else "spatial")
        wanted["patch"] = (backbone.patch_size,) * 2 if shared else (size, size)
    if "pad_up" in prompts:
        kinds.append("global")
        border = prompts["pad_up"].shape[-2]
        sides = [(border, size)] * 2 + [(size - 2 * border, border)] * 2
        wanted.update(zip(_PADS, sides, strict=True))
    for name, shape in wanted.items():
        if prompts[name].shape[2:] != shape:
            raise found.refusal(f"its prompt {name} has the shape {tuple(prompts[name].shape)}, not {(1, 3, *shape)}")
    kind = cast(Any, "+".join(kinds) or "none")
    return PromptSettings(kind=kind, width=frame_width, border=border)


def _values(prompts: dict[str, Tensor], prompt: GlobalPrompt | SpatialPrompt) -> Float[Tensor, "..."]:
    """What our prompt holds: the pixels on its frame, row by row. The authors' code masks all others."""
    if isinstance(prompt, GlobalPrompt):
        up, down, left, right = (prompts[name][0] for name in _PADS)
        inside = torch.zeros(3, left.shape[1], up.shape[2] - left.shape[2] - right.shape[2])
        picture = torch.cat([up, torch.cat([left, inside, right], dim=2), down], dim=1)
        return picture[:, prompt.mask]
    h, w = prompt.mask.shape
    patches = prompts["patch"][0].unfold(1, h, h).unfold(2, w, w).permute(1, 2, 0, 3, 4).reshape(-1, 3, h, w)
    return patches[:, :, prompt.mask]
