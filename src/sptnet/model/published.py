"""Published checkpoints of SimGCD and SPTNet: read them, split them into parts, rebuild a model with equal logits.

SimGCD stores Sequential(ViT, head), so names begin with `0.` and `1.`; SPTNet stores Sequential(prompts,
Sequential(ViT, head)): `0.`, `1.0.` and `1.1.`.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.config import PromptSettings
from sptnet.errors import Misuse
from sptnet.head import PrototypeHead
from sptnet.model.backbone import Backbone, build_backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.model.weights import State, as_backbone, kind_of, load_weights, read_weights, select_prefix, strip_wrappers
from sptnet.prompts import GlobalPrompt, SpatialPrompt
from sptnet.runtime.tensor_files import first_not_finite
from sptnet.runtime.text import printable

TITLES = {"simgcd": "SimGCD", "sptnet": "SPTNet"}
_PARTS = {"simgcd": ("0.", "1."), "sptnet": ("1.0.", "1.1.", "0.")}
_PLAIN_VITS = {
    (384, 12, 16): "vit_small_patch16_224.dino",
    (768, 12, 16): "vit_base_patch16_224.dino",
    (384, 12, 8): "vit_small_patch8_224.dino",
    (768, 12, 8): "vit_base_patch8_224.dino",
}
_DINOV2_SIZES = {(384, 12, 14): "small", (768, 12, 14): "base", (1024, 24, 14): "large", (1536, 40, 14): "giant"}
_PADS = ("pad_up", "pad_down", "pad_left", "pad_right")
_MLP = [f"mlp.{layer}.{part}" for layer in (0, 2, 4) for part in ("weight", "bias")]
_WEIGHT_NORM = {  # both of torch's implementations
    "last_layer.weight_g": "lengths",
    "last_layer.weight_v": "prototypes",
    "last_layer.parametrizations.weight.original0": "lengths",
    "last_layer.parametrizations.weight.original1": "prototypes",
}


@dataclass(frozen=True)
class PublishedCheckpoint:
    """Parts of a checkpoint: the ViT in timm's names, the head and the prompts in those of the authors."""

    source: str
    kind: Literal["simgcd", "sptnet"]
    vit: State
    head: State
    prompts: State

    def refusal(self, reason: str) -> Misuse:
        """Return the error for a checkpoint that cannot be read."""
        return Misuse(
            f"{self.source} is no {TITLES[self.kind]} checkpoint that sptnet can read: {reason}. "
            "Give one as its authors' code writes it."
        )


def read_published(file: Path | str) -> PublishedCheckpoint:
    """Read a checkpoint of SimGCD or SPTNet without running code from the file."""
    state, source = strip_wrappers({name: value.float() for name, value in read_weights(file).items()}), str(file)
    kind = kind_of(state)
    if kind == "backbone":
        raise Misuse(f"{source} is a backbone, not a checkpoint. Train with it: `train('RECIPE', weights={source!r})`")
    if kind == "sptnet-model":
        raise Misuse(f"{source} is a model of sptnet already. Use its folder as it is.")
    if kind == "unknown":
        raise Misuse(
            f"{source} is neither a SimGCD nor an SPTNet checkpoint. Give one as their authors' code writes it."
        )
    prefixes = _PARTS[kind]
    vit, head, *rest = (select_prefix(state, prefix) for prefix in prefixes)
    prompts = rest[0] if rest else {}
    checkpoint = PublishedCheckpoint(source, kind, as_backbone(vit), head, prompts)
    strays = [name for name in state if not name.startswith(prefixes)]
    if strays:
        raise checkpoint.refusal(f"it holds {', '.join(strays[:3])} beside its parts")
    return checkpoint


def architecture(checkpoint: PublishedCheckpoint) -> tuple[str, dict[str, Any]]:
    """Return the timm name that fits the shapes of the ViT, and the sizes that differ from timm's for that name."""
    vit = checkpoint.vit
    dim, *_, patch_size = vit["patch_embed.proj.weight"].shape
    depth = len({name.split(".")[1] for name in vit if name.startswith("blocks.")})
    sizes, is_dinov2 = (dim, depth, patch_size), "blocks.0.ls1.gamma" in vit
    form = f"patch14_{'reg4_' * ('reg_token' in vit)}dinov2.lvd142m"
    if is_dinov2 and sizes in _DINOV2_SIZES:
        return f"vit_{_DINOV2_SIZES[sizes]}_{form}", {}
    if not is_dinov2 and sizes in _PLAIN_VITS:
        return _PLAIN_VITS[sizes], {}
    if dim % 64:
        raise Misuse(
            f"the ViT in {checkpoint.source} is {dim} wide, which does not tell the number of its heads. "
            "Give its timm name with `backbone=NAME`."
        )
    own = {"patch_size": patch_size, "embed_dim": dim, "depth": depth, "num_heads": dim // 64}
    return f"vit_base_{form}" if is_dinov2 else "vit_base_patch16_224.dino", own


def build_published(
    checkpoint: PublishedCheckpoint, backbone: str | None = None, image_size: int | None = None, frame_width: int = 1
) -> tuple[GcdModel, PromptSettings]:
    """Build the model and its prompt settings.

    Without the timm name `backbone`, the backbone is inferred from the shapes. Without `image_size`, the image size
    is inferred from the prompts or the position embedding.
    """
    prompts = _prompts(checkpoint)
    vit = _build_backbone(checkpoint, prompts, backbone, image_size)
    model = GcdModel(vit, _build_head(checkpoint, vit.dim))
    settings = _settings(checkpoint, prompts, vit, frame_width)
    model.attach_prompt(settings)
    for part in model.prompt.parts:
        part.load_state_dict({"values": _values(prompts, cast(GlobalPrompt | SpatialPrompt, part))})
    return model.eval(), settings


def _prompts(checkpoint: PublishedCheckpoint) -> dict[str, Tensor]:
    """Return the four sides of the border and the image of the frames, without prefixes in their names."""
    prompts = {name.rpartition(".")[2]: value for name, value in checkpoint.prompts.items()}
    allowed = [{"patch"}, {*_PADS}, {"patch", *_PADS}] if checkpoint.kind == "sptnet" else [set()]
    if prompts.keys() not in allowed or len(prompts) != len(checkpoint.prompts):
        raise checkpoint.refusal(f"its prompts are {', '.join(sorted(checkpoint.prompts)) or 'missing'}")
    for name, value in prompts.items():
        if value.ndim != 4 or value.shape[:2] != (1, 3):
            raise checkpoint.refusal(f"its prompt {name} has the shape {tuple(value.shape)}")
    return prompts


def _build_backbone(
    checkpoint: PublishedCheckpoint, prompts: dict[str, Tensor], name: str | None, image_size: int | None
) -> Backbone:
    patch, positions = checkpoint.vit.get("patch_embed.proj.weight"), checkpoint.vit.get("pos_embed")
    if patch is None or positions is None or (patch.ndim, positions.ndim) != (4, 3):
        raise checkpoint.refusal("its ViT has no patches or no positions")
    if 0 in (*patch.shape, *positions.shape):
        raise checkpoint.refusal("its ViT has empty patches or positions")
    patch_size = patch.shape[-1]
    widths = [prompts[part].shape[-1] for part in ("pad_up", "patch") if part in prompts]
    made_for = next((width for width in widths if width != patch_size), None)  # a shared frame fits any image
    if made_for is not None and image_size not in (None, made_for):
        raise Misuse(
            f"the prompts of {checkpoint.source} are made for images of {made_for} px. Leave `image_size` out."
        )
    n_patches = positions.shape[1] - ("reg_token" not in checkpoint.vit)
    size = made_for or image_size or math.isqrt(n_patches) * patch_size
    if size % patch_size:
        raise Misuse(
            f"images of {size} px cannot be cut into patches of {patch_size}. Give a multiple as `image_size`."
        )
    sizes: dict[str, Any] = {}
    if name is None:
        name, sizes = architecture(checkpoint)
        _check_blocks(checkpoint, len(patch))
    backbone = build_backbone(name, image_size=size, pretrained=False, architecture=sizes, reading="exact")
    load_weights(backbone.vit, checkpoint.vit, checkpoint.source)
    return backbone


def _check_blocks(checkpoint: PublishedCheckpoint, dim: int) -> None:
    """Refuse blocks without weights of the ViT's width: the model is built from the width and the number of blocks."""
    blocks = {name.split(".")[1] for name in checkpoint.vit if name.startswith("blocks.")}
    for block in sorted(blocks) or ["0"]:
        name = f"blocks.{block}.attn.qkv.weight"
        weight = checkpoint.vit.get(name)
        if weight is None or weight.shape != (3 * dim, dim):
            found = "is missing" if weight is None else f"has the shape {tuple(weight.shape)}, not {(3 * dim, dim)}"
            raise checkpoint.refusal(f"{printable(name)} of its ViT {found}")


def _build_head(checkpoint: PublishedCheckpoint, dim: int) -> PrototypeHead:
    state = {_WEIGHT_NORM.get(name, name): value for name, value in checkpoint.head.items()}
    wanted = {*_MLP, "lengths", "prototypes"}
    if state.keys() != wanted:
        raise checkpoint.refusal(f"the names of its head differ in {', '.join(sorted(state.keys() ^ wanted)[:3])}")
    odd = [name for name, value in state.items() if value.ndim != (1 if name.endswith("bias") else 2)]
    if odd:
        raise checkpoint.refusal(f"{odd[0]} of its head has the shape {tuple(state[odd[0]].shape)}")
    n_categories, hidden, bottleneck = (len(state[n]) for n in ("prototypes", "mlp.0.weight", "mlp.4.weight"))
    sizes = {"prototypes": dim, "mlp.0.weight": dim, "mlp.2.weight": hidden, "mlp.4.weight": hidden}
    for name, columns in sizes.items():  # before a head of these sizes is built
        rows = hidden if name == "mlp.2.weight" else len(state[name])
        if state[name].shape != (rows, columns) or 0 in (rows, columns):
            shapes = f"{tuple(state[name].shape)}, not {(rows, columns)}"
            raise checkpoint.refusal(f"{name} of its head has the shape {shapes}")
    state["lengths"] = state["lengths"].flatten()
    with_lengths = bool((state["lengths"] != 1).any())
    head = PrototypeHead(dim, n_categories, hidden, bottleneck, with_lengths)
    if not with_lengths:
        del state["lengths"]
    for name, value in head.state_dict().items():
        if state[name].shape != value.shape:
            shapes = f"{tuple(state[name].shape)}, not {tuple(value.shape)}"
            raise checkpoint.refusal(f"{name} of its head has the shape {shapes}")
    bad = first_not_finite(state) or first_not_finite(checkpoint.prompts)
    if bad is not None:
        raise checkpoint.refusal(f"{bad} is not finite")
    head.load_state_dict(state)
    return head


def _settings(
    checkpoint: PublishedCheckpoint, prompts: dict[str, Tensor], backbone: Backbone, frame_width: int
) -> PromptSettings:
    size, kinds, border, wanted = backbone.pixels.image_size, [], PromptSettings().border, {}
    if "patch" in prompts:
        shared = prompts["patch"].shape[-1] == backbone.patch_size
        kinds.append("shared" if shared else "spatial")
        wanted["patch"] = (backbone.patch_size,) * 2 if shared else (size, size)
    if "pad_up" in prompts:
        kinds.append("global")
        border = prompts["pad_up"].shape[-2]
        if border == 0:
            raise checkpoint.refusal("its prompt pad_up is empty")
        sides = [(border, size)] * 2 + [(size - 2 * border, border)] * 2
        wanted.update(zip(_PADS, sides, strict=True))
    for name, shape in wanted.items():
        if prompts[name].shape[2:] != shape:
            raise checkpoint.refusal(
                f"its prompt {name} has the shape {tuple(prompts[name].shape)}, not {(1, 3, *shape)}"
            )
    if not 1 <= frame_width <= backbone.patch_size:
        raise Misuse(f"`frame_width` is {frame_width}. Give 1 to {backbone.patch_size}, the size of a patch.")
    kind = cast(Any, "+".join(kinds) or "none")
    return PromptSettings(kind=kind, width=frame_width, border=border)


def _values(prompts: dict[str, Tensor], prompt: GlobalPrompt | SpatialPrompt) -> Float[Tensor, "..."]:
    """Return the values of our prompt: the pixels on its frame in row-major order. The authors mask all others."""
    if isinstance(prompt, GlobalPrompt):
        up, down, left, right = (prompts[name][0] for name in _PADS)
        inside = torch.zeros(3, left.shape[1], up.shape[2] - left.shape[2] - right.shape[2])
        picture = torch.cat([up, torch.cat([left, inside, right], dim=2), down], dim=1)
        return picture[:, prompt.mask]
    h, w = prompt.mask.shape
    patches = prompts["patch"][0].unfold(1, h, h).unfold(2, w, w).permute(1, 2, 0, 3, 4).reshape(-1, 3, h, w)
    return patches[:, :, prompt.mask]
