"""State dicts as others write them: what kind each is, and a ViT's own names without what stands round them.

Pure: names and tensors in, names and tensors out.
"""

import re
from typing import Literal

from torch import Tensor

State = dict[str, Tensor]
StateKind = Literal["backbone", "simgcd", "sptnet", "sptnet-model", "unknown"]

# Files that hold more than weights keep them under one of these; a teacher is better than its student.
WRAPPERS = ("teacher", "student", "model", "state_dict")
# Parts of a name that say how a model was run, not what it is.
_RUN = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_INSIDE = ("teacher.", "student.", "backbone.")
_HEADS = ("head.", "fc.", "dino_head.", "ibot_head.")
_MASKS = {"mask_token", "masked_embed"}


def unwrapped(content: object) -> State | None:
    """The names and tensors in the content of a file, or nothing; of teacher and student, the teacher's."""
    if not isinstance(content, dict):
        return None
    if all(isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items()):
        return content
    found = (unwrapped(content[key]) for key in WRAPPERS if key in content)
    return next((state for state in found if state is not None), None)


def kind_of(state: State) -> StateKind:
    """A backbone alone, a published checkpoint of SimGCD or SPTNet, a model that sptnet wrote, or none of these."""
    names = plain(state).keys()
    if any(name.startswith("backbone.vit.") for name in names):
        return "sptnet-model"
    if "1.0.cls_token" in names:
        return "sptnet"
    if "0.cls_token" in names:
        return "simgcd"
    return "backbone" if "patch_embed.proj.weight" in as_backbone(state) else "unknown"


def as_backbone(state: State) -> State:
    """A ViT in timm's names, without projection heads and mask tokens.

    Where names tell teacher and student apart, the teacher's are taken.
    """
    state = plain(state)
    for prefix in _INSIDE:
        if any(name.startswith(prefix) for name in state):
            state = below(state, prefix)
    state = {name: value for name, value in state.items() if not name.startswith(_HEADS) and name not in _MASKS}
    state = {re.sub(r"^blocks\.\d+\.(\d+)\.", r"blocks.\1.", name): value for name, value in state.items()}
    if any(".mlp.w12." in name for name in state):  # SwiGLU: gate and value packed in one matrix, and the way back
        for theirs, timms in ((".mlp.w12.", ".mlp.fc1."), (".mlp.w3.", ".mlp.fc2.")):
            state = {name.replace(theirs, timms): value for name, value in state.items()}
    return _with_registers(state) if "register_tokens" in state else state


def plain(state: State) -> State:
    """Names without what DataParallel, FSDP and torch.compile put into them."""
    return {".".join(part for part in name.split(".") if part not in _RUN): value for name, value in state.items()}


def below(state: State, prefix: str) -> State:
    """The entries whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in plain(state).items() if name.startswith(prefix)}


def _with_registers(state: State) -> State:
    """DINOv2's registers: timm gives positions to patches alone, so the class token takes in its own."""
    named = {("reg_token" if name == "register_tokens" else name): value for name, value in state.items()}
    if "cls_token" in named and "pos_embed" in named:
        positions = named["pos_embed"]
        named["cls_token"] = named["cls_token"] + positions[:, :1]
        named["pos_embed"] = positions[:, 1:]
    return named
