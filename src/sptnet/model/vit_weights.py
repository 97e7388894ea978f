"""Weights of any make into a Vision Transformer, or a word on why they do not fit."""

import math
import shlex

from timm.layers import resample_abs_pos_embed

from sptnet.errors import Misuse
from sptnet.model.state_dicts import State, as_backbone, kind_of
from sptnet.model.vit.embedding import Vit

_CHECKPOINTS = {"simgcd": "a SimGCD checkpoint", "sptnet": "an SPTNet checkpoint"}


def load_weights(vit: Vit, state: State, source: str, option: str = "--set backbone.name=NAME") -> None:
    """Fills the ViT; names are translated, and positions made for another image size are interpolated.

    `option` is how the user names another ViT.
    """
    _refuse_other_kinds(state, source)
    state = as_backbone({name: value.float() for name, value in state.items()})
    wanted = vit.state_dict()
    _resample_positions(vit, state)
    missing, extra = sorted(wanted.keys() - state.keys()), sorted(state.keys() - wanted.keys())
    shape = [name for name in sorted(wanted.keys() & state.keys()) if wanted[name].shape != state[name].shape]
    if missing or extra or shape:
        what = [f"missing {missing[:3]}"] * bool(missing) + [f"unexpected {extra[:3]}"] * bool(extra)
        what += [f"other shape {n}: {tuple(state[n].shape)}, wanted {tuple(wanted[n].shape)}" for n in shape[:3]]
        raise Misuse(
            f"{source} does not fit the backbone: {'; '.join(what)}. Give the timm name that the file was made "
            f"for with {option}."
        )
    vit.load_state_dict(state)


def _refuse_other_kinds(state: State, source: str) -> None:
    kind = kind_of(state)
    if kind == "sptnet-model":
        raise Misuse(
            f"{source} is a model of sptnet, not a backbone. Start from its folder with --start-from FOLDER instead."
        )
    if kind in _CHECKPOINTS:
        command = f"sptnet import {shlex.quote(source)} --out MODEL_DIR"
        raise Misuse(f"{source} is {_CHECKPOINTS[kind]}, not a backbone. Turn it into a model with: {command}")


def _resample_positions(vit: Vit, state: State) -> None:
    ours, theirs = vit.pos_embed, state.get("pos_embed")
    if ours is None or theirs is None or theirs.shape == ours.shape:
        return
    if theirs.ndim != 3 or theirs.shape[2] != ours.shape[2]:
        return
    prefix = 0 if vit.no_embed_class else vit.num_prefix_tokens
    patches = theirs.shape[1] - prefix
    if patches > 0 and math.isqrt(patches) ** 2 == patches:
        state["pos_embed"] = resample_abs_pos_embed(theirs, list(vit.patch_embed.grid_size), num_prefix_tokens=prefix)
