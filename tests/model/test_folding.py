"""Folded prompts: equal outputs without a prompt; and models exported as files for other programs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from timm.layers import LayerNorm
from torch import Tensor
from torch.export import ExportedProgram

from conftest import fill, random_model
from helpers.result_runs import make_run, small_result
from helpers.rounding import assert_differs, assert_same, terms_of
from sptnet.cli.verbs.export import export
from sptnet.config import PromptSettings
from sptnet.data.pixel_format import PixelFormat
from sptnet.errors import Misuse
from sptnet.head import PrototypeHead
from sptnet.inference import export_model as exporting
from sptnet.inference.export_model import FACTS, describe, export_model
from sptnet.inference.predictor import Predictor, load
from sptnet.losses import STUDENT_TEMPERATURE
from sptnet.model.backbone import build_backbone
from sptnet.model.folding import can_fold, fold_prompt
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import ModelCard, save_model
from sptnet.results.edits.log import Rename, add_edits
from sptnet.results.edits.names import EditedNames, Part
from sptnet.runtime.compute import choose_compute

KINDS = ("global", "shared", "spatial", "shared+global", "spatial+global")
PRECISIONS = (torch.float32, torch.float64)
SMALL = {"depth": 2, "embed_dim": 48, "num_heads": 3}
MAKES = {
    "vit_base_patch16_224.dino": 48,
    "vit_base_patch14_dinov2.lvd142m": 42,
    "vit_base_patch14_reg4_dinov2.lvd142m": 42,  # positions for patches only, four registers
    "deit3_small_patch16_224.fb_in1k": 48,  # positions for patches only
    "vit_base_patch16_clip_224.openai": 48,  # a norm after the positions
    "vit_small_patch16_dinov3.lvd1689m": 48,  # positions that are rotary only, patches as a map
    "eva02_base_patch16_clip_224.merged2b": 48,  # both kinds of positions
}


def prompted(model: GcdModel, kind: str = "spatial+global") -> GcdModel:
    model.attach_prompt(PromptSettings(kind=kind, border=4, tokens=3), torch.Generator().manual_seed(1))  # type: ignore[arg-type]
    return model.eval()


def model_of(name: str, size: int) -> GcdModel:
    backbone = build_backbone(name, image_size=size, pretrained=False, architecture=SMALL)
    head = PrototypeHead(backbone.dim, 5, hidden=8, bottleneck=4)
    model = GcdModel(backbone, head)
    fill(model, 0)
    return prompted(model)


def some_images(n: int, size: int = 32, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(2), dtype=dtype)


@torch.no_grad()
def features_and_logits(model: GcdModel, x: Tensor) -> tuple[Tensor, Tensor]:
    return model.features(x), model(x)[1]


def assert_same_outputs(found: tuple[Any, Any], model: GcdModel, x: Tensor) -> None:
    for one, other in zip(found, features_and_logits(model, x), strict=True):
        assert_same(one, other, terms_of(model))


# folding


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_pixel_prompt_can_be_folded(kind: str, dtype: torch.dtype) -> None:
    model, x = prompted(random_model(), kind).to(dtype), some_images(3, dtype=dtype)
    folded = fold_prompt(model)
    assert can_fold(model) and not can_fold(folded)
    assert list(folded.prompt.parameters()) == []
    assert_same_outputs(features_and_logits(folded, x), model, x)
    assert_differs(folded.features(x), model.features(x, prompted=False), terms_of(model))


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(("name", "size"), MAKES.items())
def test_every_kind_of_backbone_can_be_folded(name: str, size: int, dtype: torch.dtype) -> None:
    model, x = model_of(name, size).to(dtype), some_images(2, size, dtype)
    assert_same_outputs(features_and_logits(fold_prompt(model), x), model, x)


def test_folding_leaves_the_model_as_it_was_and_shares_its_weights() -> None:
    model = prompted(random_model())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folded = fold_prompt(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    shared = {name for name, value in folded.named_parameters() if value is dict(model.named_parameters()).get(name)}
    assert {name for name, _ in folded.named_parameters()} - shared == {"backbone.vit.pos_embed"}
    assert fold_prompt(folded) is folded


def test_class_token_and_registers_keep_their_positions() -> None:
    model = prompted(random_model())
    before, after = model.backbone.vit.pos_embed, fold_prompt(model).backbone.vit.pos_embed
    assert torch.equal(after[:, 0], before[:, 0])
    assert not (after[:, 1:] == before[:, 1:]).any()
    rotary = fold_prompt(model_of("vit_small_patch16_dinov3.lvd1689m", 48)).backbone.vit
    assert rotary.pos_embed.shape == (1, 5 + 9, 48)
    assert rotary.pos_embed[:, :5].eq(0).all()


@pytest.mark.parametrize("kind", ["none", "vpt"])
def test_without_pixel_prompts_there_is_nothing_to_fold(kind: str) -> None:
    model = prompted(random_model(), kind)
    assert fold_prompt(model) is model
    assert (model.tokens is not None) == (kind == "vpt")


def test_prompts_are_not_folded_if_the_patch_embedding_has_a_norm() -> None:
    model = prompted(random_model())
    model.backbone.vit.patch_embed.norm = LayerNorm(model.backbone.dim)
    assert not can_fold(model)
    assert fold_prompt(model) is model
    assert len(model.prompt.parts) == 2


# predicting


@pytest.fixture
def predictor() -> Predictor:
    card = ModelCard(tuple("abcde"), 2, PromptSettings(), 0.875)
    return Predictor(prompted(random_model(n_categories=5)), card, choose_compute("cpu"))


def test_prediction_runs_on_the_folded_model(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (3, 40, 40, 3), dtype=np.uint8)
    x = some_images(3)
    expected = features_and_logits(predictor.model, x)[1]
    with monkeypatch.context() as changes:
        changes.setattr(GcdModel, "with_prompt", lambda self, patches, images: patches)
        assert_same(predictor.logits(x), expected, terms_of(predictor.model))
        with_prompts = predictor.outputs(pictures)
    assert len(predictor.model.prompt.parts) == 2
    plain = predictor.outputs(pictures, prompted=False)
    predictor.folded = predictor.model  # type: ignore[misc]
    assert_same(predictor.outputs(pictures).logits, with_prompts.logits, terms_of(predictor.model))
    predictor.model.prompt = random_model().prompt
    assert torch.equal(predictor.outputs(pictures).logits, plain.logits)
    assert_differs(plain.logits, with_prompts.logits, terms_of(predictor.model))


# files


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a model of four categories of 32 pixels."""
    run = make_run(tmp_path_factory.mktemp("export"))
    found, settings = small_result(), PromptSettings(kind="spatial+global", border=4)
    card = ModelCard(found.names, found.n_known, settings, 0.875)
    save_model(run / "model", prompted(random_model(n_categories=4)), card)
    return run


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ExportedProgram, dict[str, Any]]:
    """The exported program of that model, read back, and the facts stored with it."""
    file, extra = tmp_path_factory.mktemp("pt2") / "deep" / "model.pt2", {FACTS: ""}
    export_model(run, file, "torch")
    return torch.export.load(file, extra_files=extra), json.loads(extra[FACTS])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_torch_program_gives_the_same_numbers(n: int, exported: Any, run: Path) -> None:
    program, model = exported[0].module(), load(run, "cpu").model
    x = some_images(n)
    with torch.no_grad():
        assert_same_outputs(program(x), model, x)


def test_a_torch_program_is_a_plain_vit(exported: Any) -> None:
    program, _ = exported
    calls = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert calls.count("aten.conv2d.default") == 1
    assert [call for call in calls if "scatter" in call or "new_zeros" in call] == []
    assert [name for name in program.state_dict if "prompt" in name] == []


def test_the_facts_are_in_the_file(exported: Any) -> None:
    assert exported[1] == {
        "input": "images",
        "outputs": ["features", "logits"],
        "pixels": {
            "colours": "RGB",
            "resize_short_side": 36,
            "interpolation": "bicubic",
            "resized_by": "Pillow",
            "centre_crop": 32,
            "range": [0, 1],
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
        },
        "temperature": STUDENT_TEMPERATURE,
        "categories": [
            {"name": "cat", "is_new": False},
            {"name": "dog", "is_new": False},
            {"name": "new-1", "is_new": True},
            {"name": "new-2", "is_new": True},
        ],
    }


def test_the_facts_are_enough_to_predict(exported: Any, run: Path) -> None:
    """Predict with Pillow and NumPy only, as another program would."""
    pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    program, facts = exported[0].module(), exported[1]["pixels"]
    short, size = facts["resize_short_side"], facts["centre_crop"]
    resized = Image.fromarray(pixels).resize((int(short * 70 / 50), short), Image.Resampling.BICUBIC)
    left, top = round((resized.width - size) / 2), round((resized.height - size) / 2)
    crop = np.asarray(resized.crop((left, top, left + size, top + size)), dtype=np.float32) / 255
    normal = ((crop - facts["mean"]) / facts["std"]).astype(np.float32).transpose(2, 0, 1)
    with torch.no_grad():
        logits = program(torch.from_numpy(normal)[None])[1]
    assert facts["resized_by"] == "Pillow"
    predictor = load(run, "cpu")
    assert_same(logits, predictor.outputs([pixels]).logits, terms_of(predictor.model))


def test_deep_tokens_and_normed_patches_are_exported_with_their_prompts() -> None:
    tokens, normed = prompted(random_model(), "vpt"), prompted(random_model(), "shared")
    normed.backbone.vit.patch_embed.norm = LayerNorm(normed.backbone.dim).eval()
    x = some_images(4)
    for model in (tokens, normed):
        with torch.no_grad():
            assert_same_outputs(exporting.traced(model).module()(x), model, x)


def test_rotary_positions_are_exported() -> None:
    model, x = model_of("vit_small_patch16_dinov3.lvd1689m", 48), some_images(3, 48)
    with torch.no_grad():
        assert_same_outputs(exporting.traced(model).module()(x), model, x)


def test_edited_names_are_in_the_facts() -> None:
    nowhere = np.zeros(2, np.float32)

    def parts(*names: str) -> tuple[Part, ...]:
        return tuple(Part(name, nowhere) for name in names)

    names = EditedNames(("pet", "otter-a", "otter-b"), 1, (parts("pet"), parts("pet"), parts("otter-a", "otter-b")))
    card = ModelCard(("cat", "dog", "new-1"), 2, PromptSettings(), 0.875)
    assert describe(card, PixelFormat(32), names)["categories"] == [
        {"name": "pet", "is_new": False},
        {"name": "pet", "is_new": False},
        {"name": "new-1", "is_new": True, "split_into": ["otter-a", "otter-b"]},
    ]


# the verb


def test_the_verb_writes_a_model_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    run = make_run(tmp_path)
    found, settings = small_result(), PromptSettings(kind="none")
    save_model(run / "model", random_model(n_categories=4), ModelCard(found.names, found.n_known, settings, 0.875))
    add_edits(run, [Rename("new-1", "otter")])
    monkeypatch.setattr(exporting, "traced", lambda model: "program")
    monkeypatch.setattr(
        exporting, "write_torch", lambda program, facts, path: path.write_text(program) and written.append(facts)
    )
    to = tmp_path / "model.pt2"
    export(run, to, "torch")
    assert capsys.readouterr().out == f"wrote the model of 4 categories: {to}\n"
    assert to.read_text() == "program"
    assert [category["name"] for category in json.loads(written[0])["categories"]] == ["cat", "dog", "otter", "new-2"]
    to.write_text("old")
    with pytest.raises(Misuse) as error:
        export(run, to, "torch")
    assert str(error.value) == f"{to} exists already. Replace it with `overwrite=True`, or give another `to`."
    assert to.read_text() == "old"
    export(run / "model", to, "torch", overwrite=True)
    assert to.read_text() == "program"
    assert [category["name"] for category in json.loads(written[1])["categories"]] == list(found.names)


@pytest.mark.parametrize(
    ("to", "form", "message"),
    [
        ("run/model.pt2", "torch", "{to} lies inside the run {run}. Give a place outside it with `to`."),
        ("", "torch", "{to} is a folder, not a file. Give a file with `to`."),
        ("m.xml", "xml", "there is no model as xml. Choose from: torch, onnx."),
    ],
    ids=["inside", "folder", "form"],
)
def test_mistakes_are_named(to: str, form: str, message: str, run: Path) -> None:
    target = run.parent / to
    with pytest.raises(Misuse) as error:
        export_model(run, target, form)
    assert str(error.value) == message.format(to=target, run=run)


def test_all_forms_are_named_by_the_verb(run: Path, tmp_path: Path) -> None:
    with pytest.raises(Misuse) as error:
        export(run, tmp_path / "x", "tflite")
    forms = "csv, json, links, copies, coco, imagefolder, torch, onnx"
    assert str(error.value) == f"there is no export as tflite. Choose from: {forms}."


def test_onnx_that_is_not_installed_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(Misuse) as error:
        export_model(run, tmp_path / "m.onnx", "onnx")
    assert str(error.value) == "ONNX needs onnxscript. Install with: pip install 'sptnet[onnx]', or export as torch."
    assert list(tmp_path.iterdir()) == []


def test_a_model_too_large_for_onnx_is_refused(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: name)
    monkeypatch.setattr(exporting, "LARGEST_ONNX", 1000)
    with pytest.raises(Misuse) as error:
        export_model(run, tmp_path / "m.onnx", "onnx")
    assert str(error.value) == "the weights take 0.0 GB, but an ONNX file holds 2 GB at most. Export as torch."


@pytest.fixture(scope="module")
def session(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    file = tmp_path_factory.mktemp("onnx") / "model.onnx"
    export_model(run, file, "onnx")
    assert [path.name for path in file.parent.iterdir()] == ["model.onnx"]
    return runtime.InferenceSession(file)


def test_an_onnx_model_gives_the_same_numbers(session: Any, run: Path) -> None:
    model = load(run, "cpu").model
    for n in (1, 2, 5):
        x = some_images(n)
        assert_same_outputs(session.run(["features", "logits"], {"images": x.numpy()}), model, x)


def test_an_onnx_model_holds_the_facts(session: Any) -> None:
    facts = json.loads(session.get_modelmeta().custom_metadata_map[FACTS])
    assert [category["name"] for category in facts["categories"]] == ["cat", "dog", "new-1", "new-2"]
    assert facts["pixels"]["centre_crop"] == 32
