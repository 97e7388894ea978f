"""State dicts of many sources: their kind, and the names of the ViT's weights."""

import pytest
import torch
from torch import Tensor

from sptnet.errors import Misuse
from sptnet.model.backbone import EMBEDDED, build_backbone
from sptnet.model.weights import as_backbone, find_state_dict, kind_of, load_weights, select_prefix, strip_wrappers

VIT = (
    "cls_token",
    "pos_embed",
    "patch_embed.proj.weight",
    "blocks.0.norm1.weight",
    "blocks.1.mlp.fc1.bias",
    "norm.bias",
)
ONE, TWO = torch.ones(1), torch.full((1,), 2.0)


def named(*names: str, prefix: str = "") -> dict[str, Tensor]:
    return {prefix + name: torch.tensor([float(i)]) for i, name in enumerate(names)}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# --- wrappers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["teacher", "student", "model", "state_dict"])
def test_a_state_dict_is_found_in_every_wrapper(key: str) -> None:
    assert find_state_dict({key: {"a": ONE}, "epoch": 3, "optimizer": {"state": {}}}) == {"a": ONE}


def test_wrappers_may_be_nested() -> None:
    assert find_state_dict({"epoch": 1, "model": {"state_dict": {"a": ONE}, "epoch": 2}}) == {"a": ONE}


def test_the_teacher_is_taken_before_the_student_in_any_order() -> None:
    assert find_state_dict({"student": {"a": ONE}, "teacher": {"a": TWO}}) == {"a": TWO}
    assert find_state_dict({"teacher": {"a": TWO}, "student": {"a": ONE}}) == {"a": TWO}


def test_a_wrapper_without_tensors_is_skipped() -> None:
    assert find_state_dict({"teacher": "vit_base", "model": {"size": 3}, "state_dict": {"a": ONE}}) == {"a": ONE}


@pytest.mark.parametrize("content", [None, 3, [ONE], {"a": 1}, {1: ONE}, {"model": {"a": 1}}, {"weights": {"a": ONE}}])
def test_other_content_has_no_state_dict(content: object) -> None:
    assert find_state_dict(content) is None


def test_a_plain_state_dict_is_itself() -> None:
    state = {"a": ONE, "model": TWO}
    assert find_state_dict(state) is state


# --- kinds ------------------------------------------------------------------------------------------------------------


def simgcd(prefix: str = "") -> dict[str, Tensor]:
    return named(*VIT, prefix=f"{prefix}0.") | named("mlp.0.weight", "last_layer.weight_v", prefix=f"{prefix}1.")


def sptnet(prefix: str = "") -> dict[str, Tensor]:
    both = {f"1.{name}": value for name, value in simgcd().items()} | named("0.pad_up", "1.patch", prefix="0.")
    return {prefix + name: value for name, value in both.items()}


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_kinds_are_recognised_with_every_wrapper(prefix: str) -> None:
    assert kind_of(simgcd(prefix)) == "simgcd"
    assert kind_of(sptnet(prefix)) == "sptnet"
    assert kind_of(named(*VIT, prefix=prefix)) == "backbone"
    assert kind_of(named(*VIT, prefix=f"{prefix}backbone.")) == "backbone"
    assert kind_of(named(*VIT, prefix=f"{prefix}backbone.vit.")) == "sptnet-model"


@pytest.mark.parametrize("names", [(), ("x",), ("conv1.weight", "fc.weight"), ("head.prototypes",)])
def test_other_state_dicts_are_unknown(names: tuple[str, ...]) -> None:
    assert kind_of(named(*names)) == "unknown"


# --- a ViT's names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "module.",
        "backbone.",
        "module.backbone.",
        "backbone.module.",
        "teacher.backbone.",
        "student.module.backbone.",
        "_orig_mod.backbone.",
        "backbone._fsdp_wrapped_module.",
    ],
)
def test_prefixes_and_heads_are_removed(prefix: str) -> None:
    outside = prefix.replace("backbone.", "")
    heads = named("head.mlp.0.weight", "head.last_layer.weight_g", prefix=outside)
    assert same(as_backbone(named(*VIT, prefix=prefix) | heads), named(*VIT))


@pytest.mark.parametrize("extra", ["head.weight", "fc.bias", "dino_head.mlp.0.weight", "ibot_head.last_layer.weight_v"])
def test_a_head_beside_plain_names_is_dropped(extra: str) -> None:
    assert same(as_backbone(named(*VIT) | {extra: ONE}), named(*VIT))


@pytest.mark.parametrize("mask", ["mask_token", "masked_embed"])
def test_mask_tokens_are_dropped(mask: str) -> None:
    assert same(as_backbone(named(*VIT) | {mask: ONE}), named(*VIT))
    assert same(as_backbone(named(*VIT, mask, prefix="backbone.")), named(*VIT))


def test_names_that_only_look_like_heads_stay() -> None:
    state = named("fc_norm.weight", "headroom", "blocks.0.head.weight")
    assert same(as_backbone(state), state)


def test_the_teacher_s_names_are_taken_before_the_student_s() -> None:
    state = {f"student.backbone.{name}": ONE for name in VIT} | {f"teacher.backbone.{name}": TWO for name in VIT}
    assert same(as_backbone(state), dict.fromkeys(VIT, TWO))


def test_blocks_in_chunks_are_numbered_through() -> None:
    chunked = {"blocks.0.3.attn.qkv.weight": ONE, "blocks.2.11.norm1.bias": TWO, "blocks.7.ls1.gamma": ONE}
    plain_names = {"blocks.3.attn.qkv.weight": ONE, "blocks.11.norm1.bias": TWO, "blocks.7.ls1.gamma": ONE}
    assert same(as_backbone(chunked), plain_names)


def test_swiglu_gets_timm_s_names() -> None:
    theirs = {f"blocks.4.mlp.{name}": ONE for name in ("w12.weight", "w12.bias", "w3.weight", "w3.bias")}
    timms = {f"blocks.4.mlp.{name}": ONE for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")}
    assert same(as_backbone(theirs), timms)
    eva = {"blocks.4.mlp.w1.weight": ONE, "blocks.4.mlp.w3.weight": TWO}  # not packed: another layer
    assert same(as_backbone(eva), eva)


def test_with_registers_the_class_token_takes_in_its_position() -> None:
    state = {
        "cls_token": torch.tensor([[[1.0, 2.0]]]),
        "register_tokens": torch.tensor([[[5.0, 6.0]]]),
        "pos_embed": torch.tensor([[[10.0, 20.0], [3.0, 4.0]]]),
    }
    found = as_backbone(state)
    assert {name: value.tolist() for name, value in found.items()} == {
        "cls_token": [[[11.0, 22.0]]],
        "reg_token": [[[5.0, 6.0]]],
        "pos_embed": [[[3.0, 4.0]]],
    }
    assert same(as_backbone(found), found)  # once is enough
    assert state["cls_token"].tolist() == [[[1.0, 2.0]]]


def test_without_registers_positions_stay_as_they_are() -> None:
    state = {"cls_token": torch.ones(1, 1, 2), "pos_embed": torch.ones(1, 5, 2)}
    assert same(as_backbone(state), state)


def test_parts_of_a_state_dict() -> None:
    assert select_prefix({"1.0.a": ONE, "1.1.b": TWO, "0.c": ONE, "10.d": ONE}, "1.") == {"0.a": ONE, "1.b": TWO}
    assert strip_wrappers({"module.0._orig_mod.a.module_list": ONE}) == {"0.a.module_list": ONE}


# --- fitting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("patch_embed.proj.weight", (96, 3, 8, 8)),
        ("patch_embed.proj.weight", (96,)),
        ("pos_embed", (1, 8, 96)),
        ("pos_embed", (1, 1, 96)),
        ("pos_embed", (5, 96)),
        ("pos_embed", (1, 10, 32)),
    ],
)
def test_shapes_that_do_not_fit_are_named(name: str, shape: tuple[int, ...]) -> None:
    vit = build_backbone(EMBEDDED, image_size=32, pretrained=False).vit
    wanted = tuple(vit.state_dict()[name].shape)
    with pytest.raises(Misuse) as error:
        load_weights(vit, dict(vit.state_dict()) | {name: torch.zeros(shape)}, "F")
    assert str(error.value) == (
        f"F does not fit the backbone: other shape {name}: {shape}, wanted {wanted}. Give the timm name that the file "
        "was made for with `backbone.name=NAME`."
    )
