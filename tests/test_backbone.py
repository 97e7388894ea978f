"""The backbone: timm's class token and nothing else, frozen, with deep tokens if asked, from files that are safe."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

from sptnet.backbone import EMBEDDED, Backbone, build_backbone
from sptnet.config import PromptSettings
from sptnet.errors import Failure, Misuse
from sptnet.head import PrototypeHead
from sptnet.model import GcdModel
from sptnet.pixels import PixelFormat
from sptnet.weights_file import read_weights


def embedded(size: int = 32, seed: int = 0) -> Backbone:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_backbone(EMBEDDED, image_size=size, pretrained=False).eval()


def images(n: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def assert_class_token(backbone: Backbone, x: Tensor) -> None:
    """In float64, where the last block's other order of sums cannot hide a real difference."""
    backbone, x = backbone.double(), x.double()
    with torch.inference_mode():
        features = backbone(x)
        assert features.shape == (len(x), backbone.dim)
        torch.testing.assert_close(features, backbone.vit.forward_features(x)[:, 0], rtol=1e-11, atol=1e-11)


def shaken(backbone: Backbone, seed: int = 1) -> Backbone:
    """timm starts many weights at zero or one, which would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    return backbone


def test_the_paper_s_backbone() -> None:
    backbone = build_backbone(pretrained=False).eval()
    assert backbone.name == "vit_base_patch16_224.dino"
    assert backbone.pixels == PixelFormat(224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic")
    assert (backbone.patch_size, backbone.dim, backbone.depth) == (16, 768, 12)
    assert_class_token(backbone, images(1, 224))


@pytest.mark.parametrize(
    ("name", "size", "patch", "dim"),
    [
        ("vit_tiny_patch16_224", 64, 16, 192),
        ("vit_small_patch14_dinov2.lvd142m", 56, 14, 384),
        ("vit_small_patch14_reg4_dinov2.lvd142m", 56, 14, 384),
        ("vit_small_patch8_224.dino", 32, 8, 384),
        (EMBEDDED, 48, 16, 96),
    ],
)
def test_features_are_timm_s_class_token(name: str, size: int, patch: int, dim: int) -> None:
    backbone = shaken(build_backbone(name, image_size=size, pretrained=False).eval())
    assert (backbone.pixels.image_size, backbone.patch_size, backbone.dim) == (size, patch, dim)
    assert_class_token(backbone, images(2, size))


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
    with pytest.raises(Misuse, match=rf"trainable_blocks must be from 1 to 4 for {EMBEDDED}\. Got {n}"):
        list(embedded().last_blocks(n))


def naive_vpt(backbone: Backbone, x: Tensor, tokens: Tensor) -> Tensor:
    """Block by block, image by image: class token, prompt tokens, patches; the prompts' outputs are thrown away."""
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
    backbone = shaken(embedded())
    x = images(3, 32)
    tokens = torch.randn(4, 2, 96, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        with_tokens = backbone(x, tokens)
        torch.testing.assert_close(with_tokens, naive_vpt(backbone, x, tokens), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(with_tokens, backbone(x), atol=1e-2)
        for layer in range(4):  # every block has tokens of its own
            other = tokens.clone()
            other[layer] = -other[layer]
            assert not torch.allclose(backbone(x, other), with_tokens, atol=1e-4)
        assert torch.equal(backbone(x, tokens[:, :0]), backbone(x))  # no tokens at all change nothing


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
    backbone = shaken(build_backbone(name, image_size=size, pretrained=False).eval())
    model = GcdModel(backbone, PrototypeHead(backbone.dim, 5, hidden=8, bottleneck=4)).eval()
    x, largest = images(2, size), (patch - 1) // 2
    with torch.inference_mode():
        before = model(x)[1]
        for kind in ("spatial+global", "shared", "vpt"):
            settings = PromptSettings(kind=kind, width=largest, border=5)  # type: ignore[arg-type]
            model.attach_prompt(settings, torch.Generator().manual_seed(0))
            assert model(x)[1].shape == (2, 5)
            assert torch.equal(model(x, prompted=False)[1], before)
            assert not torch.equal(model(x)[1], before)
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
        assert not torch.allclose(features, embedded(96)(x))


def half(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: value.half() for key, value in state.items()}


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt", ".bin"])
@pytest.mark.parametrize("name", [EMBEDDED, "vit_tiny_patch16_224"])
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


@pytest.mark.parametrize("content", [[1, 2], {"model": {"x": 1}}, {"state_dict": {"a": torch.zeros(1)}, "epoch": 1}])
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
    assert "arbitrary code execution" not in str(refused.value)  # nobody is told how to run it after all
    assert "weights_only" not in str(refused.value)


@pytest.mark.parametrize("name", ["resnet18", "vit_medium_patch16_gap_240", "eva02_tiny_patch14_224"])
def test_models_without_a_class_token_to_prompt_are_refused(name: str) -> None:
    with pytest.raises(Misuse, match=rf"{name} is not a Vision Transformer .*vit_base_patch16_224\.dino"):
        build_backbone(name, pretrained=False)


def test_unknown_names_are_refused_with_some_known_ones() -> None:
    with pytest.raises(Misuse, match=r"timm knows no model named 'vit_bse'.*vit_base_patch16_224"):
        build_backbone("vit_bse", pretrained=False)


def test_unknown_weights_of_a_known_model_are_refused() -> None:
    with pytest.raises(Misuse, match="dinosaur"):
        build_backbone("vit_base_patch16_224.dinosaur", pretrained=False)


@pytest.mark.parametrize("name", [EMBEDDED, "vit_tiny_patch16_224"])
def test_an_image_size_that_no_patch_divides_is_refused(name: str) -> None:
    """Otherwise the rest of the image would be dropped in silence."""
    with pytest.raises(Misuse, match="100"):
        build_backbone(name, image_size=100, pretrained=False)
