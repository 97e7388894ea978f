"""Published checkpoints become models that give the same logits; what cannot be read is named.

The published models are worked out here anew: a plain ViT, a weight-normed linear layer on unit features, and prompts
laid over normalised images by hand.
"""

import csv
import json
import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from conftest import Call
from helpers.rounding import assert_differs, assert_same, terms_of
from sptnet.config import PromptSettings
from sptnet.errors import Misuse
from sptnet.model.model_folder import load_model
from sptnet.model.published import architecture, build_published, read_published

DIM, DEPTH, SIZE, PATCH, BORDER, K = 128, 2, 64, 16, 5, 7
State = dict[str, Tensor]


def random_like(state: State, seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {name: value + 0.1 * torch.randn(value.shape, generator=generator) for name, value in state.items()}


def plain_vit(name: str = "vit_base_patch16_224.dino", size: int = SIZE, **sizes: int) -> nn.Module:
    small = {"embed_dim": DIM, "depth": DEPTH, "num_heads": 2, "patch_size": PATCH}
    vit = timm.create_model(name, num_classes=0, img_size=size, **{**small, **sizes}).eval()
    vit.load_state_dict(random_like(vit.state_dict(), 1))
    return vit


def head_state(dim: int = DIM, k: int = K, hidden: int = 24, bottleneck: int = 10) -> State:
    """Random state of a head. Lengths differ from 1: the published code keeps them at 1, but files need not."""
    generator = torch.Generator().manual_seed(2)
    widths = [(hidden, dim), (hidden, hidden), (bottleneck, hidden)]
    state = {}
    for layer, (rows, columns) in zip((0, 2, 4), widths, strict=True):
        state[f"mlp.{layer}.weight"] = torch.randn(rows, columns, generator=generator) / columns**0.5
        state[f"mlp.{layer}.bias"] = torch.randn(rows, generator=generator)
    state["last_layer.weight_g"] = torch.rand(k, 1, generator=generator) + 0.5
    state["last_layer.weight_v"] = torch.randn(k, dim, generator=generator)
    return state


def prompt_state(size: int = SIZE, border: int = BORDER) -> State:
    generator = torch.Generator().manual_seed(3)
    lying, standing = (1, 3, border, size), (1, 3, size - 2 * border, border)
    shapes = {"pad_up": lying, "pad_down": lying, "pad_left": standing, "pad_right": standing}
    pads = {f"0.{name}": torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {**pads, "1.patch": torch.randn(1, 3, size, size, generator=generator)}


def prefixed(state: State, prefix: str) -> State:
    return {prefix + name: value for name, value in state.items()}


def simgcd_state(vit: nn.Module, head: State) -> State:
    return prefixed(vit.state_dict(), "0.") | prefixed(head, "1.")


def sptnet_state(vit: nn.Module, head: State, prompts: State) -> State:
    return prefixed(prompts, "0.") | prefixed(simgcd_state(vit, head), "1.")


def source_logits(vit: nn.Module, head: State, images: Tensor) -> tuple[Tensor, Tensor]:
    """Compute projections of the raw features, and a weight-normalised linear layer on unit features."""
    features = vit.forward_features(images)[:, 0]
    directions, lengths = head["last_layer.weight_v"], head["last_layer.weight_g"]
    weight = lengths * directions / directions.norm(dim=1, keepdim=True)
    hidden = features
    for layer in (0, 2, 4):
        hidden = F.linear(hidden, head[f"mlp.{layer}.weight"], head[f"mlp.{layer}.bias"])
        hidden = F.gelu(hidden) if layer < 4 else hidden
    return hidden, F.linear(features / features.norm(dim=1, keepdim=True), weight)


def source_prompt(prompts: State, size: int, patch: int, frame: int) -> Tensor:
    """Build the picture that the published code adds: four sides, and the frame of every patch."""
    picture = torch.zeros(3, size, size, dtype=torch.float64)
    edge = torch.tensor([i % patch < frame or i % patch >= patch - frame for i in range(size)])
    for name, value in prompts.items():
        side, times = name.rpartition(".")[2], size // value.shape[3]
        if side == "patch":
            picture += value[0].repeat(1, times, times) * (edge[:, None] | edge[None, :])
            continue
        border = min(value.shape[2:])
        top = size - border if side == "pad_down" else border if side in ("pad_left", "pad_right") else 0
        left = size - border if side == "pad_right" else 0
        picture[:, top : top + value.shape[2], left : left + value.shape[3]] += value[0]
    return picture


def pictures(n: int = 3, size: int = SIZE) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(4))


def assert_same_outputs(
    file: Path,
    vit: nn.Module,
    head: State,
    picture: Tensor | None,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> Any:
    """Compare in float64; `dtype` is coarser where weights are rounded when they are read."""
    model, settings = build_published(read_published(file), **options)
    wide_model, wide_vit = deepcopy(model).double(), deepcopy(vit).double()
    wide_head = {name: value.double() for name, value in head.items()}
    images = pictures(size=model.backbone.pixels.image_size).double()
    with torch.inference_mode():
        projections, logits = wide_model(images)
        shown = images if picture is None else images + picture
        wanted_projections, wanted_logits = source_logits(wide_vit, wide_head, shown)
        assert_same(logits, wanted_logits, terms_of(model), dtype=dtype)
        assert_same(projections, wanted_projections, terms_of(model), dtype=dtype)
        if picture is not None:
            assert_differs(logits, source_logits(wide_vit, wide_head, images)[1], terms_of(model))
    return model, settings


# --- the same logits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
@pytest.mark.parametrize("wrapped", [True, False])
def test_simgcd(prefix: str, wrapped: bool, tmp_path: Path) -> None:
    vit, head = plain_vit(), head_state()
    state = prefixed(simgcd_state(vit, head), prefix)
    optimiser = {"state": {}, "param_groups": [{"lr": 0.1}]}
    torch.save({"model": state, "optimizer": optimiser, "epoch": 200} if wrapped else state, tmp_path / "m.pt")
    model, settings = assert_same_outputs(tmp_path / "m.pt", vit, head, None)
    assert settings == PromptSettings(kind="none")
    assert model.head.n_categories == K
    assert (model.head.hidden, model.head.bottleneck) == (24, 10)
    assert model.backbone.architecture == {"embed_dim": DIM, "depth": DEPTH, "num_heads": 2, "patch_size": PATCH}


@pytest.mark.parametrize("frame", [1, 3])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_sptnet(prefix: str, frame: int, tmp_path: Path) -> None:
    vit, head, prompts = plain_vit(), head_state(), prompt_state()
    torch.save(prefixed(sptnet_state(vit, head, prompts), prefix), tmp_path / "m.pt")
    picture = source_prompt(prompts, SIZE, PATCH, frame)
    _, settings = assert_same_outputs(tmp_path / "m.pt", vit, head, picture, frame_width=frame)
    assert settings == PromptSettings(kind="spatial+global", width=frame, border=BORDER)


def test_the_patch_variant_has_frames_alone(tmp_path: Path) -> None:
    vit, head, prompts = plain_vit(), head_state(), {"patch": prompt_state()["1.patch"]}
    torch.save(sptnet_state(vit, head, prompts), tmp_path / "m.pt")
    _, settings = assert_same_outputs(tmp_path / "m.pt", vit, head, source_prompt(prompts, SIZE, PATCH, 1))
    assert settings.kind == "spatial"


def test_a_frame_of_one_patch_is_shared_by_all(tmp_path: Path) -> None:
    vit, head = plain_vit(), head_state()
    prompts = {"patch": torch.randn(1, 3, PATCH, PATCH, generator=torch.Generator().manual_seed(5))}
    torch.save(sptnet_state(vit, head, prompts), tmp_path / "m.pt")
    _, settings = assert_same_outputs(tmp_path / "m.pt", vit, head, source_prompt(prompts, SIZE, PATCH, 1))
    assert settings.kind == "shared"


def test_a_border_alone(tmp_path: Path) -> None:
    vit, head = plain_vit(), head_state()
    prompts = {name.removeprefix("0."): value for name, value in prompt_state().items() if "pad" in name}
    torch.save(sptnet_state(vit, head, prompts), tmp_path / "m.pt")
    _, settings = assert_same_outputs(tmp_path / "m.pt", vit, head, source_prompt(prompts, SIZE, PATCH, 1))
    assert (settings.kind, settings.border) == ("global", BORDER)


def test_torch_s_newer_names_of_weight_norm(tmp_path: Path) -> None:
    vit, head = plain_vit(), head_state()
    layer = weight_norm(nn.Linear(DIM, K, bias=False))
    newer = {"original0": head["last_layer.weight_g"], "original1": head["last_layer.weight_v"]}
    layer.load_state_dict(prefixed(newer, "parametrizations.weight."))
    renamed = {name: value for name, value in head.items() if "last_layer" not in name}
    torch.save(simgcd_state(vit, renamed | prefixed(layer.state_dict(), "last_layer.")), tmp_path / "m.pt")
    assert_same_outputs(tmp_path / "m.pt", vit, head, None)


def test_lengths_are_kept_only_where_some_differ_from_one(tmp_path: Path) -> None:
    vit, head = plain_vit(), head_state()
    torch.save(simgcd_state(vit, head), tmp_path / "m.pt")
    model, _ = build_published(read_published(tmp_path / "m.pt"))
    assert torch.equal(model.head.lengths, head["last_layer.weight_g"][:, 0])
    head["last_layer.weight_g"] = torch.ones(K, 1)
    torch.save(simgcd_state(vit, head), tmp_path / "m.pt")
    model, _ = assert_same_outputs(tmp_path / "m.pt", vit, head, None)
    assert model.head.lengths is None


def test_dinov2_with_layer_scale_and_registers(tmp_path: Path) -> None:
    """The first part is DINOv2 in its authors' form: their name for registers, a position for the class token."""
    name = "vit_base_patch14_reg4_dinov2.lvd142m"
    vit, head = plain_vit(name, 56, patch_size=14), head_state()
    theirs = vit.state_dict() | {"mask_token": torch.zeros(1, DIM)}
    theirs["register_tokens"] = theirs.pop("reg_token")
    position = torch.full((1, 1, DIM), 0.25)
    theirs["cls_token"] = theirs["cls_token"] - position
    theirs["pos_embed"] = torch.cat([position, theirs["pos_embed"]], dim=1)
    torch.save(prefixed(theirs, "0.") | prefixed(head, "1."), tmp_path / "m.pt")
    model, _ = assert_same_outputs(tmp_path / "m.pt", vit, head, None, torch.float32)
    assert (model.backbone.name, model.backbone.pixels.image_size) == (name, 56)


def test_the_published_size(tmp_path: Path) -> None:
    """ViT-B/16 at 224 px with a border of 30, as SPTNet's authors publish it."""
    vit = timm.create_model("vit_base_patch16_224.dino", num_classes=0).eval()
    head, prompts = head_state(768, 200, 2048, 256), prompt_state(224, 30)
    torch.save(sptnet_state(vit, head, prompts), tmp_path / "m.pt")
    model, settings = build_published(read_published(tmp_path / "m.pt"))
    assert settings == PromptSettings(kind="spatial+global", width=1, border=30)
    assert (model.backbone.name, model.backbone.architecture) == ("vit_base_patch16_224.dino", {})
    assert sum(p.numel() for p in model.prompt.parameters()) == 35_280 + 69_840
    images = pictures(1, 224)
    with torch.inference_mode():
        wanted = source_logits(vit, head, images + source_prompt(prompts, 224, 16, 1).float())[1]
        assert_same(model(images)[1], wanted, terms_of(model))


# --- the backbone's name and size -------------------------------------------------------------------------------------


def shapes_alone(dim: int, depth: int, patch: int, grid: int = 2, scaled: bool = False) -> State:
    """The weights of a ViT from which its name is inferred."""
    state = {"cls_token": torch.zeros(1, 1, dim), "pos_embed": torch.zeros(1, 1 + grid * grid, dim)}
    state["patch_embed.proj.weight"] = torch.zeros(dim, 3, patch, patch)
    state |= {f"blocks.{i}.norm1.weight": torch.zeros(dim) for i in range(depth)}
    return state | ({"blocks.0.ls1.gamma": torch.zeros(dim)} if scaled else {})


@pytest.mark.parametrize(
    ("shapes", "name", "sizes"),
    [
        ((384, 12, 16), "vit_small_patch16_224.dino", {}),
        ((768, 12, 16), "vit_base_patch16_224.dino", {}),
        ((384, 12, 8), "vit_small_patch8_224.dino", {}),
        ((768, 12, 8), "vit_base_patch8_224.dino", {}),
        ((384, 12, 14, 2, True), "vit_small_patch14_dinov2.lvd142m", {}),
        ((768, 12, 14, 2, True), "vit_base_patch14_dinov2.lvd142m", {}),
        ((1024, 24, 14, 2, True), "vit_large_patch14_dinov2.lvd142m", {}),
        ((1536, 40, 14, 2, True), "vit_giant_patch14_dinov2.lvd142m", {}),
        ((192, 3, 16), "vit_base_patch16_224.dino", {"embed_dim": 192, "depth": 3, "num_heads": 3, "patch_size": 16}),
        (
            (256, 2, 14, 2, True),
            "vit_base_patch14_dinov2.lvd142m",
            {"embed_dim": 256, "depth": 2, "num_heads": 4, "patch_size": 14},
        ),
    ],
)
def test_the_backbone_is_inferred_from_its_shapes(
    shapes: Any, name: str, sizes: dict[str, int], tmp_path: Path
) -> None:
    torch.save(prefixed(shapes_alone(*shapes), "0.") | prefixed(head_state(), "1."), tmp_path / "m.pt")
    assert architecture(read_published(tmp_path / "m.pt")) == (name, sizes)


def test_a_name_can_be_given_with_its_own_pixels(tmp_path: Path) -> None:
    vit, head = plain_vit("vit_tiny_patch16_224.augreg_in21k", embed_dim=192, num_heads=3, depth=12), head_state(192)
    torch.save(simgcd_state(vit, head), tmp_path / "m.pt")
    model, _ = assert_same_outputs(tmp_path / "m.pt", vit, head, None, backbone="vit_tiny_patch16_224.augreg_in21k")
    assert model.backbone.pixels.mean == (0.5, 0.5, 0.5)
    assert model.backbone.architecture == {}
    with pytest.raises(Misuse, match=r"m\.pt does not fit the backbone: .* for with `backbone\.name=NAME`\."):
        build_published(read_published(tmp_path / "m.pt"), "vit_small_patch16_224.dino")


def test_another_image_size_interpolates_the_positions(tmp_path: Path) -> None:
    vit, head = plain_vit(), head_state()
    torch.save(simgcd_state(vit, head), tmp_path / "m.pt")
    model, _ = build_published(read_published(tmp_path / "m.pt"), image_size=48)
    assert model.backbone.pixels.image_size == 48
    assert model.backbone.vit.pos_embed.shape == (1, 10, DIM)
    with pytest.raises(Misuse) as refused:
        build_published(read_published(tmp_path / "m.pt"), image_size=50)
    assert str(refused.value) == "images of 50 px cannot be cut into patches of 16. Give a multiple as `image_size`."


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusal(state: Any, tmp_path: Path, **options: Any) -> str:
    """Return the error message for the file, with F for its path."""
    torch.save(state, tmp_path / "m.pt")
    with pytest.raises(Misuse) as refused:
        build_published(read_published(tmp_path / "m.pt"), **options)
    return str(refused.value).replace(str(tmp_path / "m.pt"), "F")


def test_other_files_are_named(tmp_path: Path) -> None:
    vit = plain_vit()
    assert refusal(vit.state_dict(), tmp_path) == (
        "F is a backbone, not a checkpoint. Train with it: `train('RECIPE', weights='F')`"
    )
    ours = {"backbone.vit.cls_token": torch.zeros(1), "head.prototypes": torch.zeros(1)}
    assert refusal(ours, tmp_path) == "F is a model of sptnet already. Use its folder as it is."
    assert refusal({"conv1.weight": torch.zeros(1)}, tmp_path) == (
        "F is neither a SimGCD nor an SPTNet checkpoint. Give one as their authors' code writes it."
    )


def test_a_width_that_tells_no_heads_is_refused(tmp_path: Path) -> None:
    state = prefixed(shapes_alone(96, 4, 16), "0.") | prefixed(head_state(96), "1.")
    assert refusal(state, tmp_path) == (
        "the ViT in F is 96 wide, which does not tell the number of its heads. Give its timm name with `backbone=NAME`."
    )


def test_prompts_fix_the_image_size(tmp_path: Path) -> None:
    state = sptnet_state(plain_vit(), head_state(), prompt_state())
    assert refusal(state, tmp_path, image_size=48) == (
        "the prompts of F are made for images of 64 px. Leave `image_size` out."
    )


def test_a_frame_without_an_inside_is_refused(tmp_path: Path) -> None:
    state = sptnet_state(plain_vit(), head_state(), prompt_state())
    assert "the largest allowed is 7 for 16 x 16 pixels. Got 8." in refusal(state, tmp_path, frame_width=8)


def drop(name: str) -> Callable[[State], Any]:
    return lambda state: state.pop(name)


def put(name: str, *shape: int) -> Callable[[State], Any]:
    return lambda state: state.update({name: torch.zeros(shape)})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (drop("0.pos_embed"), "its ViT has no patches or no positions"),
        (drop("0.patch_embed.proj.weight"), "its ViT has no patches or no positions"),
        (put("0.pos_embed", 3), "its ViT has no patches or no positions"),
        (drop("1.mlp.4.bias"), "the names of its head differ in mlp.4.bias"),
        (put("1.mlp.1.running_mean", 3), "the names of its head differ in mlp.1.running_mean"),
        (put("2.weight", 3), "it holds 2.weight beside its parts"),
        (put("1.last_layer.weight_v"), "prototypes of its head has the shape ()"),
        (put("1.mlp.0.bias", 2, 2), "mlp.0.bias of its head has the shape (2, 2)"),
        (put("1.last_layer.weight_v", K, 10), "prototypes of its head has the shape (7, 10), not (7, 128)"),
        (put("1.last_layer.weight_g", 3, 1), "lengths of its head has the shape (3,), not (7,)"),
        (put("1.mlp.2.weight", 9, 9), "mlp.2.weight of its head has the shape (9, 9), not (24, 24)"),
    ],
)
def test_a_checkpoint_of_another_form_is_refused(change: Callable[[State], Any], reason: str, tmp_path: Path) -> None:
    state = simgcd_state(plain_vit(), head_state())
    change(state)
    assert refusal(state, tmp_path) == (
        f"F is no SimGCD checkpoint that sptnet can read: {reason}. Give one as its authors' code writes it."
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (drop("0.0.pad_up"), "its prompts are 0.pad_down, 0.pad_left, 0.pad_right, 1.patch"),
        (
            put("0.2.patch", 1, 3, 64, 64),
            "its prompts are 0.pad_down, 0.pad_left, 0.pad_right, 0.pad_up, 1.patch, 2.patch",
        ),
        (put("0.1.patch", 64, 64), "its prompt patch has the shape (64, 64)"),
        (put("0.1.patch", 1, 1, 64, 64), "its prompt patch has the shape (1, 1, 64, 64)"),
        (put("0.1.patch", 1, 3, 32, 32), "its prompt patch has the shape (1, 3, 32, 32), not (1, 3, 64, 64)"),
        (put("0.0.pad_left", 1, 3, 54, 4), "its prompt pad_left has the shape (1, 3, 54, 4), not (1, 3, 54, 5)"),
    ],
)
def test_prompts_of_another_form_are_refused(change: Callable[[State], Any], reason: str, tmp_path: Path) -> None:
    state = sptnet_state(plain_vit(), head_state(), prompt_state())
    change(state)
    assert refusal(state, tmp_path) == (
        f"F is no SPTNet checkpoint that sptnet can read: {reason}. Give one as its authors' code writes it."
    )


def test_an_sptnet_checkpoint_without_prompts_is_refused(tmp_path: Path) -> None:
    assert "its prompts are missing." in refusal(sptnet_state(plain_vit(), head_state(), {}), tmp_path)


class Program:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def test_nothing_in_the_file_is_run(tmp_path: Path) -> None:
    state = simgcd_state(plain_vit(), head_state())
    torch.save({"model": state, "note": Program(tmp_path / "ran")}, tmp_path / "m.pt")
    with pytest.raises(Exception, match="sptnet runs no code from a file"):
        read_published(tmp_path / "m.pt")
    assert not (tmp_path / "ran").exists()


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.save(sptnet_state(plain_vit(), head_state(), prompt_state()), tmp_path / "m.pt")
    return tmp_path / "m.pt"


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for name in ("crow", "owl", "tern"):
        (tmp_path / "birds" / name).mkdir(parents=True)
        for i in range(4):
            pixels = random.integers(0, 256, (70, 80, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "birds" / name / f"{i}.png")
    return tmp_path / "birds"


def test_an_imported_model_predicts_and_is_scored(checkpoint: Path, birds: Path, tmp_path: Path, call: Call) -> None:
    names, out = tmp_path / "names.txt", tmp_path / "my model"
    names.write_text("owl\ncrow\n", encoding="utf-8")
    answer = call("import", checkpoint, "--out", out, "--names", names)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (
        f"{checkpoint}: SPTNet, 7 categories (2 known), vit_base_patch16_224.dino, images of 64 px, "
        "prompts: a frame of 1 px in every patch and a border of 5 px\n"
        f"wrote {out}. Use it with:\n"
        f"  sptnet predict '{out}' IMAGES\n"
        f"  sptnet evaluate '{out}' --data DIR\n"
    )
    model, card = load_model(out)
    assert card.categories == ("owl", "crow", "new-1", "new-2", "new-3", "new-4", "new-5")
    assert (card.n_known, card.crop_ratio, card.trainable_blocks) == (2, 0.875, 1)
    assert torch.equal(model(pictures())[1], build_published(read_published(checkpoint))[0](pictures())[1])
    predicted = call("predict", out, birds)
    rows = list(csv.DictReader(predicted.out.splitlines()))
    assert (predicted.code, len(rows)) == (0, 12)
    assert {row["category"] for row in rows} <= set(card.categories)
    scored = call("evaluate", out, "--data", birds, "--json")
    assert scored.code == 0
    scores = json.loads(scored.out)["birds"]
    assert scores["images"] == 12
    assert all(0 <= scores[key] <= 1 for key in ("all", "old", "new"))


def test_an_unknown_number_of_known_categories_is_reported(checkpoint: Path, tmp_path: Path, call: Call) -> None:
    note = "the file does not say which categories were known; Old and New need --known N, in a folder also --names\n"
    answer = call("import", checkpoint, "--out", tmp_path / "a", "--frame-width", 2)
    assert note in answer.out
    assert "a frame of 2 px" in answer.out
    answer = call("import", checkpoint, "--out", tmp_path / "b", "--known", 3)
    assert note not in answer.out
    assert load_model(tmp_path / "b")[1].categories[:4] == ("known-1", "known-2", "known-3", "new-1")


def test_an_imported_simgcd_model_has_no_prompts(tmp_path: Path, call: Call) -> None:
    torch.save({"model": simgcd_state(plain_vit(), head_state())}, tmp_path / "m.pt")
    answer = call("import", tmp_path / "m.pt", "--out", tmp_path / "model", "--image-size", 48)
    assert ": SimGCD, 7 categories (0 known), vit_base_patch16_224.dino, images of 48 px, no prompts\n" in answer.out


def test_a_model_in_the_way_is_replaced_only_when_asked(checkpoint: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "model"
    assert call("import", checkpoint, "--out", out).code == 0
    answer = call("import", checkpoint, "--out", out, "--known", 2)
    assert (answer.code, answer.err) == (
        2,
        f"error: {out} is not empty. Replace it with --overwrite, or give another --out.\n",
    )
    assert load_model(out)[1].n_known == 0
    assert call("import", checkpoint, "--out", out, "--known", 2, "--overwrite").code == 0
    assert load_model(out)[1].n_known == 2


def test_a_refused_file_leaves_nothing_behind(tmp_path: Path, call: Call) -> None:
    torch.save(plain_vit().state_dict(), tmp_path / "vit.pth")
    answer = call("import", tmp_path / "vit.pth", "--out", tmp_path / "model")
    file = tmp_path / "vit.pth"
    message = f"error: {file} is a backbone, not a checkpoint. Train with it: sptnet train RECIPE --weights {file}\n"
    assert (answer.code, answer.err) == (2, message)
    assert call("import", tmp_path / "none.pth", "--out", tmp_path / "model").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["vit.pth"]
