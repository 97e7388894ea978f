"""Published checkpoints taken apart: SimGCD's into ViT and head, SPTNet's into prompts, ViT and head.

SimGCD's authors store Sequential(ViT, head), so names begin with `0.` and `1.`; SPTNet's store Sequential(prompts,
Sequential(ViT, head)): `0.`, `1.0.` and `1.1.`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sptnet.errors import Misuse
from sptnet.model.state_dicts import State, as_backbone, below, kind_of, plain
from sptnet.model.weights_file import read_weights

TITLES = {"simgcd": "SimGCD", "sptnet": "SPTNet"}
_PARTS = {"simgcd": ("0.", "1."), "sptnet": ("1.0.", "1.1.", "0.")}
_PLAIN_VITS = {
    (384, 12, 16): "vit_small_patch16_224.dino",
    (768, 12, 16): "vit_base_patch16_224.dino",
    (384, 12, 8): "vit_small_patch8_224.dino",
    (768, 12, 8): "vit_base_patch8_224.dino",
}
_DINOV2_SIZES = {(384, 12, 14): "small", (768, 12, 14): "base", (1024, 24, 14): "large", (1536, 40, 14): "giant"}


@dataclass(frozen=True)
class PublishedCheckpoint:
    """A checkpoint's parts: the ViT in timm's names, the head and the prompts in the authors'."""

    source: str
    kind: Literal["simgcd", "sptnet"]
    vit: State
    head: State
    prompts: State

    def refusal(self, reason: str) -> Misuse:
        return Misuse(
            f"{self.source} is no {TITLES[self.kind]} checkpoint that sptnet can read: {reason}. "
            "Give one as its authors' code writes it."
        )


def read_published(file: Path | str) -> PublishedCheckpoint:
    """A checkpoint of SimGCD or SPTNet; nothing in the file is run."""
    state, source = plain({name: value.float() for name, value in read_weights(file).items()}), str(file)
    kind = kind_of(state)
    if kind == "backbone":
        raise Misuse(f"{source} is a backbone; give it as --set backbone.weights={source}")
    if kind == "sptnet-model":
        raise Misuse(f"{source} is a model of sptnet already. Use its folder as it is.")
    if kind == "unknown":
        raise Misuse(
            f"{source} is neither a SimGCD nor an SPTNet checkpoint. Give one as their authors' code writes it."
        )
    prefixes = _PARTS[kind]
    vit, head, *rest = (below(state, prefix) for prefix in prefixes)
    prompts = rest[0] if rest else {}
    found = PublishedCheckpoint(source, kind, as_backbone(vit), head, prompts)
    strays = [name for name in state if not name.startswith(prefixes)]
    if strays:
        raise found.refusal(f"it holds {', '.join(strays[:3])} beside its parts")
    return found


def architecture(found: PublishedCheckpoint) -> tuple[str, dict[str, Any]]:
    """The timm name that fits the shapes of the ViT, and the sizes in which it differs from that name."""
    vit = found.vit
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
            f"the ViT in {found.source} is {dim} wide, which does not tell the number of its heads. "
            "Give its timm name with --backbone NAME."
        )
    own = {"patch_size": patch_size, "embed_dim": dim, "depth": depth, "num_heads": dim // 64}
    return f"vit_base_{form}" if is_dinov2 else "vit_base_patch16_224.dino", own
