"""The backbone: timm's class token, frozen parameters, deep prompt tokens, weights files."""

import argparse
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from helpers.rounding import assert_differs, assert_same, terms_of
from sptnet.config import PromptSettings
from sptnet.data.pixel_format import PixelFormat
from sptnet.errors import Failure, Misuse
from sptnet.head import PrototypeHead
from sptnet.model.backbone import EMBEDDED, Backbone, build_backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.model.vit.embedding import enter_first_block
from sptnet.model.weights import read_weights


def embedded(size: int = 32, seed: int = 0) -> Backbone:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_backbone(EMBEDDED, image_size=size, pretrained=False).eval()


def images(n: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def assert_class_token(backbone: Backbone, x: Tensor) -> None:
    """Compare in float64, where rounding in the last block's other order of sums hides no real difference."""
    backbone, x = backbone.double(), x.double()
    with torch.inference_mode():
        features = backbone(x)
        assert features.shape == (len(x), backbone.dim)
        assert_same(features, backbone.vit.forward_features(x)[:, 0], terms_of(backbone))


def shaken(backbone: Backbone, seed: int = 1) -> Backbone:
    """timm starts many weights at zero or one, which would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    return backbone


def test_the_paper_s_backbone() -> None:
    backbone = build_backbone(pretrained=False)
    assert backbone.name == "vit_base_patch16_224.dino"
    assert backbone.pixels == PixelFormat(224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic")
    assert (backbone.patch_size, backbone.dim, backbone.depth) == (16, 768, 12)
    assert_class_token(build_backbone(pretrained=False, architecture={"depth": 2}).eval(), images(1, 224))


@pytest.mark.parametrize(
    ("name", "size", "patch", "dim"),
    [
        ("vit_tiny_patch16_224", 64, 16, 192),
        ("vit_small_patch14_dinov2.lvd142m", 56, 14, 384),
        ("vit_small_patch14_reg4_dinov2.lvd142m", 56, 14, 384),
        ("vit_small_patch8_224.dino", 32, 8, 384),
        ("deit_tiny_patch16_224", 32, 16, 192),
        ("vit_small_patch16_dinov3.lvd1689m", 48, 16, 384),
        (EMBEDDED, 48, 16, 96),
    ],
)
def test_features_are_timm_s_class_token(name: str, size: int, patch: int, dim: int) -> None:
    architecture = {} if name == EMBEDDED else {"depth": 3}
    backbone = shaken(build_backbone(name, image_size=size, pretrained=False, architecture=architecture).eval())
    assert (backbone.pixels.image_size, backbone.patch_size, backbone.dim) == (size, patch, dim)
    assert_class_token(backbone, images(2, size))


SMALL = {"embed_dim": 128, "num_heads": 2, "depth": 3}
ROTARY = [
    "vit_small_patch16_dinov3.lvd1689m",  # no biases
    "vit_base_patch16_dinov3_qkvb.lvd1689m",
    "vit_small_plus_patch16_dinov3.lvd1689m",  # SwiGLU
    "eva02_base_patch16_clip_224.merged2b",  # absolute positions too, attention with a norm, separate projections
    "vit_small_patch16_rope_ape_224.naver_in1k",
]
MIXED = "vit_small_patch16_rope_mixed_224.naver_in1k"  # other positions in every block; timm has them in float32 only


def rotary(name: str, size: int = 64) -> Backbone:
    return shaken(build_backbone(name, image_size=size, pretrained=False, architecture=SMALL).eval())


@pytest.mark.parametrize("name", ROTARY)
def test_rotary_positions_reach_every_block(name: str) -> None:
    backbone = rotary(name)
    assert (backbone.dim, backbone.depth, backbone.architecture) == (128, 3, SMALL)
    assert_class_token(backbone, images(2, 64))
    x = torch.randn(1, 16 + backbone.vit.num_prefix_tokens, 128, dtype=torch.float64)
    for block in backbone.vit.blocks:  # otherwise a block that is given none would go unnoticed
        assert_differs(block(x, rope=backbone.vit.rope.get_embed(shape=[4, 4])), block(x), terms_of(block))


def test_every_block_has_its_own_rotary_positions() -> None:
    backbone, x = rotary(MIXED), images(2, 64)
    with torch.inference_mode():
        features = backbone(x)
        assert_same(features, backbone.vit.forward_features(x)[:, 0], terms_of(backbone))
        backbone.vit.rope.freqs[:, -1] += 0.5  # of the last block
        assert_differs(backbone(x), features, terms_of(backbone))
        assert_same(backbone(x), backbone.vit.forward_features(x)[:, 0], terms_of(backbone))


@pytest.mark.parametrize("name", [*ROTARY, MIXED, "vit_small_patch14_reg4_dinov2.lvd142m"])
def test_training_mode_changes_nothing(name: str) -> None:
    size = 56 if "patch14" in name else 64
    backbone, x = rotary(name, size), images(2, size)
    with torch.no_grad():
        asleep = backbone(x)
        assert torch.equal(backbone.train()(x), asleep)
        assert torch.equal(backbone(x), asleep)


def test_dinov3_is_made_for_any_image_size_and_has_its_own_pixels() -> None:
    backbone = build_backbone("vit_small_patch16_dinov3.lvd1689m", pretrained=False, architecture={"depth": 1})
    assert backbone.pixels == PixelFormat(224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic")
    satellite = build_backbone("vit_large_patch16_dinov3.sat493m", pretrained=False, architecture={"depth": 1})
    assert satellite.pixels.mean == pytest.approx((0.430, 0.411, 0.296))
    clip = build_backbone("eva02_base_patch16_clip_224.merged2b", pretrained=False, architecture={"depth": 1})
    assert clip.pixels.mean == pytest.approx((0.48145466, 0.4578275, 0.40821073))


@pytest.mark.parametrize("part", ["enter_last_block", "finish", "model"])
def test_deep_tokens_beside_rotary_positions_are_refused(part: str) -> None:
    backbone, tokens = rotary(ROTARY[0]), torch.zeros(3, 2, 128)
    wanted = (
        "vit_small_patch16_dinov3.lvd1689m has rotary positions, which do not allow deep prompt tokens. Give a "
        "backbone such as vit_base_patch16_224.dino, or a method with other prompts, such as sptnet with "
        "`prompt.kind=spatial+global`."
    )
    with pytest.raises(Misuse) as refused:
        if part == "model":
            model = GcdModel(backbone, PrototypeHead(128, 5, hidden=8, bottleneck=4))
            model.attach_prompt(PromptSettings(kind="vpt"))
            model(images(1, 64))
        elif part == "finish":
            backbone.finish(backbone.enter_last_block(images(1, 64)), tokens)
        else:
            backbone.enter_last_block(images(1, 64), tokens)
    assert str(refused.value) == wanted


def test_prompts_fit_rotary_backbones_and_their_last_block_can_train() -> None:
    model = GcdModel(rotary(ROTARY[0]), PrototypeHead(128, 5, hidden=8, bottleneck=4))
    model.attach_prompt(PromptSettings(kind="spatial+global", border=5), torch.Generator().manual_seed(0))
    model.train_only(frozenset({"prompt", "model"}))
    model(images(2, 64))[1].pow(2).sum().backward()
    silent = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert [name for name in silent if not name.startswith("head.mlp")] == []
    assert all(p.grad is None for p in model.backbone.vit.blocks[0].parameters())


def test_dinov2_is_built_at_the_paper_s_size_and_not_at_its_own() -> None:
    own = timm.get_pretrained_cfg("vit_small_patch14_dinov2.lvd142m").input_size[-1]
    backbone = build_backbone("vit_small_patch14_dinov2.lvd142m", pretrained=False)
    assert own == 518
    assert backbone.pixels.image_size == 224
    assert backbone.vit.patch_embed.num_patches == 16 * 16


def test_pixels_are_those_the_weights_were_trained_with() -> None:
    assert build_backbone("vit_tiny_patch16_224", image_size=32, pretrained=False).pixels.mean == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("name", [EMBEDDED, "vit_tiny_patch16_224"])
def test_everything_is_frozen_at_first(name: str) -> None:
    backbone = build_backbone(name, image_size=32, pretrained=False)
    assert len(list(backbone.parameters())) > 10
    assert not any(parameter.requires_grad for parameter in backbone.parameters())


def test_the_last_blocks_are_blocks_and_never_the_norm() -> None:
    backbone = embedded()
    names = {id(parameter): name for name, parameter in backbone.named_parameters()}
    for n in (1, 2, 4):
        chosen = [names[id(parameter)] for parameter in backbone.last_blocks(n)]
        numbers = {int(name.split(".")[2]) for name in chosen}
        assert numbers == set(range(4 - n, 4))
        assert all(name.startswith("vit.blocks.") for name in chosen)
        wanted = [
            name for name in names.values() if name.startswith("vit.blocks.") and int(name.split(".")[2]) >= 4 - n
        ]
        assert sorted(chosen) == sorted(wanted)


@pytest.mark.parametrize("n", [0, 5, -1])
def test_impossible_numbers_of_blocks_are_refused(n: int) -> None:
    with pytest.raises(Misuse, match=rf"`backbone\.trainable_blocks` must be from 1 to 4 for {EMBEDDED}\. Got {n}"):
        list(embedded().last_blocks(n))


def naive_vpt(backbone: Backbone, x: Tensor, tokens: Tensor) -> Tensor:
    """Run VPT per block and per image: class token, prompt tokens, patches; outputs of prompts are dropped."""
    vit, rows = backbone.vit, []
    for image in x:
        sequence = vit.norm_pre(vit._pos_embed(vit.patch_embed(image[None])))[0]
        for block, prompt in zip(vit.blocks, tokens, strict=True):
            whole = torch.stack([sequence[0], *prompt, *sequence[1:]])
            out = block(whole[None])[0]
            sequence = torch.stack([out[0], *out[1 + len(prompt) :]])
        rows.append(vit.norm(sequence)[0])
    return torch.stack(rows)


def test_deep_tokens_do_what_a_plain_loop_does() -> None:
    backbone = shaken(embedded()).double()
    x, terms = images(3, 32).double(), terms_of(backbone)
    tokens = torch.randn(4, 2, 96, generator=torch.Generator().manual_seed(3)).double()
    with torch.inference_mode():
        with_tokens = backbone(x, tokens)
        assert_same(with_tokens, naive_vpt(backbone, x, tokens), terms)
        assert_differs(with_tokens, backbone(x), terms)
        for layer in range(4):  # every block has tokens of its own
            other = tokens.clone()
            other[layer] = -other[layer]
            assert_differs(backbone(x, other), with_tokens, terms)
        # no tokens at all change nothing
        assert_same(backbone(x, tokens[:, :0]), backbone(x), terms)


def test_the_gradient_reaches_the_tokens_of_every_block() -> None:
    backbone = shaken(embedded())
    tokens = torch.randn(4, 2, 96, generator=torch.Generator().manual_seed(3)).requires_grad_()
    backbone(images(2, 32), tokens).pow(2).sum().backward()
    assert tokens.grad is not None
    assert (tokens.grad.abs().sum(dim=2) > 0).all()
    assert all(parameter.grad is None for parameter in backbone.parameters())


@pytest.mark.parametrize(
    ("name", "size", "patch"),
    [
        ("vit_small_patch8_224.dino", 32, 8),
        ("vit_small_patch14_dinov2.lvd142m", 56, 14),
        ("vit_tiny_patch16_224", 64, 16),
    ],
)
def test_prompts_fit_every_patch_size(name: str, size: int, patch: int) -> None:
    backbone = shaken(build_backbone(name, image_size=size, pretrained=False, architecture={"depth": 2}).eval())
    model = GcdModel(backbone, PrototypeHead(backbone.dim, 5, hidden=8, bottleneck=4)).eval()
    x, largest = images(2, size), (patch - 1) // 2
    with torch.inference_mode():
        before = model(x)[1]
        for kind in ("spatial+global", "shared", "vpt"):
            settings = PromptSettings(kind=kind, width=largest, border=5)  # type: ignore[arg-type]
            model.attach_prompt(settings, torch.Generator().manual_seed(0))
            assert model(x)[1].shape == (2, 5)
            assert torch.equal(model(x, prompted=False)[1], before)
            assert_differs(model(x)[1], before, terms_of(model))
    with pytest.raises(Misuse, match=f"largest allowed is {largest} for {patch} x {patch}"):
        model.attach_prompt(PromptSettings(kind="shared", width=largest + 1))


def test_the_embedded_weights_load_and_matter() -> None:
    backbone = build_backbone(EMBEDDED).eval()
    assert (backbone.pixels.image_size, backbone.patch_size, backbone.dim, backbone.depth) == (96, 16, 96, 4)
    assert all(torch.isfinite(parameter).all() for parameter in backbone.parameters())
    assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}
    x = images(2, 96)
    with torch.inference_mode():
        features = backbone(x)
        assert torch.equal(features, build_backbone(EMBEDDED).eval()(x))
        assert_differs(features, embedded(96)(x), terms_of(backbone))


def half(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: value.half() for key, value in state.items()}


@pytest.mark.parametrize(
    ("name", "suffix"),
    [*((EMBEDDED, suffix) for suffix in (".safetensors", ".pth", ".pt", ".bin")), ("vit_tiny_patch16_224", ".pth")],
)
def test_weights_load_from_files_of_half_precision(name: str, suffix: str, tmp_path: Path) -> None:
    source = shaken(build_backbone(name, image_size=32, pretrained=False))
    state = half(source.vit.state_dict()) | {"head.weight": torch.zeros(7, 3)}  # a classifier is left out
    file = tmp_path / f"weights{suffix}"
    save_file(state, file) if suffix == ".safetensors" else torch.save(state, file)
    loaded = build_backbone(name, weights=file, image_size=32)
    for key, value in loaded.vit.state_dict().items():
        assert torch.equal(value, state[key].float()), key
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda state: state.pop("norm.weight"), r"missing \['norm.weight'\]"),
        (lambda state: state.update(extra=torch.zeros(1)), r"unexpected \['extra'\]"),
        (
            lambda state: state.update({"norm.weight": torch.zeros(3)}),
            r"other shape norm.weight: \(3,\), wanted \(96,\)",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: Any, complaint: str, tmp_path: Path) -> None:
    state = embedded().vit.state_dict()
    change(state)
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(Misuse, match=rf"w\.pth does not fit the backbone: {complaint}.*backbone\.name"):
        build_backbone(EMBEDDED, weights=tmp_path / "w.pth", image_size=32)


def test_a_missing_weights_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"no weights file at .*none\.pth"):
        build_backbone(EMBEDDED, weights=tmp_path / "none.pth")


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
@pytest.mark.parametrize("content", [b"", b"these are no weights", b"PK\x03\x04 cut"])
def test_files_that_are_no_weights_are_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Failure, match=r"cannot be read as weights"):
        read_weights(tmp_path / name)


@pytest.mark.parametrize("content", [[1, 2], {"model": {"x": 1}}, {"weights": {"a": torch.zeros(1)}}])
def test_pickles_of_other_things_than_tensors_are_refused(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(Misuse, match="not a plain state dict"):
        read_weights(tmp_path / "w.pth")


def test_tensors_without_names_are_refused(tmp_path: Path) -> None:
    torch.save({1: torch.zeros(2)}, tmp_path / "w.pth")
    with pytest.raises(Misuse, match=r"w\.pth"):
        build_backbone(EMBEDDED, weights=tmp_path / "w.pth")


class Program:
    """Unpickling this runs a command."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"echo run > '{self.marker}'",)


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_a_program_in_a_weights_file_is_never_run(writer: str, tmp_path: Path) -> None:
    marker, file = tmp_path / "marker", tmp_path / "w.pth"
    content = {"norm.weight": Program(marker)}
    torch.save(content, file) if writer == "torch" else file.write_bytes(pickle.dumps(content, protocol=2))
    torch.load(file, weights_only=False) if writer == "torch" else pickle.loads(file.read_bytes())
    assert marker.exists()  # the trap works
    marker.unlink()
    with pytest.raises(Failure, match=r"w\.pth cannot be read as weights") as refused:
        build_backbone(EMBEDDED, weights=file)
    assert not marker.exists()
    assert "arbitrary code execution" not in str(refused.value)  # torch's hint to disable the check is left out
    assert "weights_only" not in str(refused.value)


NOT_VITS = [
    "resnet18",
    "vit_medium_patch16_gap_240",  # no class token
    "vit_medium_patch16_rope_reg1_gap_256",
    "eva02_tiny_patch14_224",  # the final norm is behind the mean of all tokens
    "vit_pe_core_tiny_patch16_384",  # pools by attention
    "deit_tiny_distilled_patch16_224",  # two class tokens
]


@pytest.mark.parametrize(
    ("name", "pretrained"),
    [*((name, True) for name in NOT_VITS), (NOT_VITS[0], False), ("eva02_tiny_patch14_224", False)],
)
def test_models_without_a_class_token_to_read_are_refused(
    name: str, pretrained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*arguments: object) -> None:
        raise AssertionError("asked for weights before it was refused")

    monkeypatch.setattr("sptnet.model.vit.timm_vit.weights_overlay", fetch)
    with pytest.raises(Misuse) as refused:
        build_backbone(name, pretrained=pretrained)
    assert str(refused.value) == (
        f"{name} is not a Vision Transformer with a class token. Give one, such as vit_base_patch16_224.dino."
    )


def test_unknown_names_are_refused_with_some_known_ones() -> None:
    with pytest.raises(Misuse, match=r"timm knows no model named 'vit_bse'.*vit_base_patch16_224"):
        build_backbone("vit_bse", pretrained=False)
    with pytest.raises(Misuse, match=r"Some that it knows: vit_base_patch16_224\.dino\.$"):
        build_backbone("zzzz", pretrained=False)


def test_unknown_weights_of_a_known_model_are_refused() -> None:
    with pytest.raises(Misuse, match="dinosaur"):
        build_backbone("vit_base_patch16_224.dinosaur", pretrained=False)


@pytest.mark.parametrize("name", [EMBEDDED, "vit_tiny_patch16_224"])
def test_an_image_size_that_no_patch_divides_is_refused(name: str) -> None:
    """Otherwise the rest of the image would be dropped silently."""
    with pytest.raises(Misuse, match="100"):
        build_backbone(name, image_size=100, pretrained=False)


# --- files of other makes ---------------------------------------------------------------------------------------------

TINY = {"embed_dim": 64, "num_heads": 1, "depth": 2}


def tiny(name: str, size: int, seed: int = 1, **more: Any) -> Backbone:
    backbone = build_backbone(name, image_size=size, pretrained=False, architecture={**TINY, **more})
    return shaken(backbone.eval(), seed)


def prefixed(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in state.items()}


def as_dino(state: dict[str, Tensor]) -> dict[str, Any]:
    """Build a training checkpoint: both networks with their heads, the optimiser, and the authors' options."""
    heads = {"head.mlp.0.weight": torch.ones(3, 3), "head.last_layer.weight_g": torch.ones(3, 1)}
    wrong = {name: value + 1 for name, value in state.items()}
    return {
        "student": prefixed({**prefixed(wrong, "backbone."), **heads}, "module."),
        "teacher": {**prefixed(state, "backbone."), **heads},
        "optimizer": {"state": {0: {"step": 3}}, "param_groups": [{"lr": 0.1}]},
        "epoch": 7,
        "args": argparse.Namespace(arch="vit_base", lr=0.1),
    }


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda state: state, id="plain"),
        pytest.param(as_dino, id="DINO, whole"),
        pytest.param(lambda state: {"student": as_dino(state)["teacher"]}, id="only a student"),
        pytest.param(lambda state: {"model": prefixed(state, "module.")}, id="model"),
        pytest.param(
            lambda state: {"state_dict": {**prefixed(state, "module.backbone."), "module.fc.weight": torch.ones(2)}},
            id="state_dict",
        ),
        pytest.param(
            lambda state: {"teacher": prefixed({**state, "masked_embed": torch.ones(1, 64)}, "backbone.")}, id="iBOT"
        ),
        pytest.param(
            lambda state: {re.sub(r"blocks\.(\d+)", r"blocks.0.\1", name): value for name, value in state.items()},
            id="chunked blocks",
        ),
    ],
)
def test_the_authors_files_load(make: Any, tmp_path: Path) -> None:
    source = tiny("vit_base_patch16_224.dino", 32)
    torch.save(make(source.vit.state_dict()), tmp_path / "w.pth")
    loaded = build_backbone(source.name, tmp_path / "w.pth", 32, architecture=TINY)
    for name, value in loaded.vit.state_dict().items():
        assert torch.equal(value, source.vit.state_dict()[name]), name


def interpolated(positions: Tensor, old: int, new: int) -> Tensor:
    """Interpolate a grid of positions to another size."""
    grid = positions.reshape(1, old, old, -1).permute(0, 3, 1, 2)
    return F.interpolate(grid, (new, new), mode="bicubic", antialias=True).permute(0, 2, 3, 1).reshape(1, new * new, -1)


@pytest.mark.parametrize("registers", [False, True])
def test_dinov2_s_own_files_load_at_another_size(registers: bool, tmp_path: Path) -> None:
    """The file is for 518 px; the input of the first block is computed here as the authors do."""
    name = f"vit_small_patch14_{'reg4_' * registers}dinov2.lvd142m"
    rest = {
        k: v for k, v in tiny(name, 56).vit.state_dict().items() if k not in ("cls_token", "pos_embed", "reg_token")
    }
    generator = torch.Generator().manual_seed(0)
    cls, positions, regs = (torch.randn(1, n, 64, generator=generator) for n in (1, 1 + 37 * 37, 4))
    theirs = {**rest, "cls_token": cls, "pos_embed": positions, "mask_token": torch.zeros(1, 64)}
    if registers:
        theirs["register_tokens"] = regs
    torch.save(theirs, tmp_path / "w.pth")
    loaded = build_backbone(name, tmp_path / "w.pth", 56, architecture=TINY).eval()
    x = images(2, 56)
    patches = F.conv2d(x, rest["patch_embed.proj.weight"], rest["patch_embed.proj.bias"], stride=14)
    patches = patches.flatten(2).mT + interpolated(positions[:, 1:], 37, 4)
    first = (cls + positions[:, :1]).expand(2, 1, 64)
    wanted = torch.cat([first, *[regs.expand(2, 4, 64)] * registers, patches], dim=1)
    pixels, sides = 3 * 14 * 14, 37 + 37  # a patch, and its position as a mean over rows and columns of the old grid
    with torch.inference_mode():
        assert_same(enter_first_block(loaded.vit, loaded.vit.patch_embed(x)), wanted, terms=pixels + sides)


def test_dinov2_s_giant_has_packed_gates(tmp_path: Path) -> None:
    name = "vit_giant_patch14_dinov2.lvd142m"
    sizes = {**TINY, "mlp_ratio": 4}  # an even number, for the two halves
    source = tiny(name, 28, **sizes)
    state = source.vit.state_dict()
    theirs = {name.replace("mlp.fc1", "mlp.w12").replace("mlp.fc2", "mlp.w3"): value for name, value in state.items()}
    assert theirs.keys() != state.keys()
    torch.save(theirs, tmp_path / "w.pth")
    loaded = build_backbone(name, tmp_path / "w.pth", 28, architecture=sizes)
    x = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(0))
    gate, value = F.linear(x, theirs["blocks.1.mlp.w12.weight"], theirs["blocks.1.mlp.w12.bias"]).chunk(2, dim=-1)
    wanted = F.linear(F.silu(gate) * value, theirs["blocks.1.mlp.w3.weight"], theirs["blocks.1.mlp.w3.bias"])
    with torch.inference_mode():
        assert_same(loaded.vit.blocks[1].mlp(x), wanted, terms_of(loaded.vit.blocks[1].mlp))


def test_half_precision_is_widened_before_positions_are_added(tmp_path: Path) -> None:
    name = "vit_small_patch14_reg4_dinov2.lvd142m"
    state = half(tiny(name, 28).vit.state_dict())
    token, position = state["cls_token"].clone(), torch.full((1, 1, 64), 2**-9).half()
    state["pos_embed"] = torch.cat([position, state["pos_embed"]], dim=1)
    state["register_tokens"] = state.pop("reg_token")
    torch.save(state, tmp_path / "w.pth")
    loaded = build_backbone(name, tmp_path / "w.pth", 28, architecture=TINY)
    assert torch.equal(loaded.vit.cls_token, token.float() + position.float())


def test_dinov3_loads_from_timm_s_file(tmp_path: Path) -> None:
    name = "vit_small_patch16_dinov3.lvd1689m"
    source = tiny(name, 64)
    save_file(source.vit.state_dict(), tmp_path / "w.safetensors")
    loaded = build_backbone(name, tmp_path / "w.safetensors", 32, architecture=TINY)
    for key, value in loaded.vit.state_dict().items():
        assert torch.equal(value, source.vit.state_dict()[key]), key
    with pytest.raises(Misuse, match=r"unexpected \['pos_embed'\]"):
        save_file({**source.vit.state_dict(), "pos_embed": torch.zeros(1, 5, 64)}, tmp_path / "w.safetensors")
        build_backbone(name, tmp_path / "w.safetensors", 32, architecture=TINY)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"0.cls_token": torch.zeros(1), "1.mlp.0.weight": torch.zeros(1)},
            "{0} is a SimGCD checkpoint, not a backbone. Turn it into a model with: `import_('{0}', out='MODEL_DIR')`",
        ),
        (
            {"0.patch": torch.zeros(1), "1.0.cls_token": torch.zeros(1)},
            "{0} is an SPTNet checkpoint, not a backbone. Turn it into a model with: `import_('{0}', out='MODEL_DIR')`",
        ),
        (
            {"backbone.vit.cls_token": torch.zeros(1), "head.prototypes": torch.zeros(1)},
            "{0} is a model of sptnet, not a backbone. Start from its folder with `sptnet.start_from=FOLDER`.",
        ),
    ],
)
def test_files_of_another_kind_are_named(state: dict[str, Tensor], message: str, tmp_path: Path) -> None:
    file = tmp_path / "my weights.pth"
    torch.save(state, file)
    with pytest.raises(Misuse) as refused:
        build_backbone(EMBEDDED, weights=file)
    assert str(refused.value) == message.format(file)


def test_files_of_no_known_kind_keep_the_plain_message(tmp_path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "w.pth")
    with pytest.raises(Misuse, match=r"w\.pth does not fit the backbone: missing .*; unexpected \['conv1\.weight'\]\."):
        build_backbone(EMBEDDED, weights=tmp_path / "w.pth")
