"""The model directory: a saved model loads unchanged, and damage is reported."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.kills import kill_everywhere
from helpers.rounding import assert_differs, assert_same, terms_of
from sptnet.config import PromptSettings
from sptnet.errors import Failure, Misuse
from sptnet.head import PrototypeHead
from sptnet.model.backbone import EMBEDDED, build_backbone
from sptnet.model.calibrator import Calibrator, Line
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import (
    ModelCard,
    check_replaceable,
    find_model_folder,
    load_model,
    save_model,
    update_card,
)
from sptnet.runtime.digest import digest
from sptnet.runtime.files import sweep

NAMES = ("cat", "dog", "new-1")
KINDS = ["none", "global", "shared", "spatial", "shared+global", "spatial+global", "vpt"]


def small_model(kind: str = "spatial+global", seed: int = 0, **changes: Any) -> tuple[GcdModel, ModelCard]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        backbone = build_backbone(EMBEDDED, image_size=32, pretrained=False)
        head = PrototypeHead(backbone.dim, len(NAMES), hidden=8, bottleneck=4)
    card = ModelCard(NAMES, 2, PromptSettings(kind=kind, width=2, border=3, tokens=2), 0.8, 3)  # type: ignore[arg-type]
    model = GcdModel(backbone, head, card.trainable_blocks)
    model.attach_prompt(card.prompt, torch.Generator().manual_seed(seed))
    return model.eval(), card


def logits(model: GcdModel) -> torch.Tensor:
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(9))
    with torch.inference_mode():
        return model(x)[1]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", *small_model())
    return tmp_path / "model"


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "model.json"
    description = json.loads(path.read_text(encoding="utf-8"))
    change(description)
    path.write_text(json.dumps(description), encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_models_give_the_same_logits_bit_for_bit(kind: str, tmp_path: Path) -> None:
    model, card = small_model(kind)
    save_model(tmp_path / "deep" / "model", model, card)
    again, card_again = load_model(tmp_path / "deep" / "model")
    assert card_again == card
    assert again.backbone.pixels == model.backbone.pixels
    assert again.trainable_blocks == card.trainable_blocks
    assert not again.training
    assert torch.equal(logits(again), logits(model))
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in model.state_dict().items()}
    if kind != "none":
        with torch.inference_mode():
            x = torch.zeros(1, 3, 32, 32)
            assert_differs(again(x)[1], again(x, prompted=False)[1], terms_of(again))  # the prompts are there


def test_the_directory_holds_a_description_and_safe_weights(saved: Path) -> None:
    assert sorted(p.name for p in saved.iterdir()) == ["model.json", "model.safetensors"]
    description = json.loads((saved / "model.json").read_text(encoding="utf-8"))
    assert description["format"] == 1
    assert description["categories"] == list(NAMES)
    assert description["n_known"] == 2
    assert description["backbone"] == EMBEDDED
    assert description["sha256"] == digest(load_file(saved / "model.safetensors"))


def test_pixels_of_the_backbone_come_back(tmp_path: Path) -> None:
    model, card = small_model()
    pixels = type(model.backbone.pixels)(32, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "bilinear")
    model.backbone.pixels = pixels
    save_model(tmp_path / "model", model, card)
    assert load_model(tmp_path / "model")[0].backbone.pixels == pixels


def test_saving_again_replaces_the_model_and_clears_what_a_stopped_save_left(saved: Path) -> None:
    left = saved.with_name(".model.sptnet-0123456789abcdef.part")
    left.mkdir()
    (left / "junk").write_text("x", encoding="utf-8")
    (saved / "old").write_text("x", encoding="utf-8")
    model, card = small_model(seed=1)
    save_model(saved, model, card)
    assert not left.exists()
    assert sorted(p.name for p in saved.iterdir()) == ["model.json", "model.safetensors"]
    assert torch.equal(logits(load_model(saved)[0]), logits(model))


def test_a_run_is_searched_for_its_model(saved: Path) -> None:
    assert find_model_folder(saved) == saved
    assert find_model_folder(str(saved.parent)) == saved
    (saved.parent / "config.toml").write_text("", encoding="utf-8")
    assert find_model_folder(saved.parent) == saved


def test_a_run_without_a_model_is_unfinished(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("", encoding="utf-8")
    with pytest.raises(Misuse, match=r"no finished model yet.*`train\(resume=True, out='.*'\)`"):
        find_model_folder(tmp_path)


def test_other_folders_are_no_model(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(Misuse, match=r"neither a run nor a model directory: there is no model\.json"):
            load_model(path)


@pytest.mark.parametrize("other", [0, 2, "1", None])
def test_another_format_is_refused_with_both_numbers(other: object, saved: Path) -> None:
    edit(saved, lambda d: d.update(format=other))
    with pytest.raises(Misuse, match=rf"has format {other}, but this sptnet reads format 1"):
        load_model(saved)


@pytest.mark.parametrize("text", ["{", "", "[1]", "3", "{}", "null"])
def test_a_broken_description_is_named(text: str, saved: Path) -> None:
    (saved / "model.json").write_text(text, encoding="utf-8")
    with pytest.raises(Failure, match=r"model\.json is damaged"):
        load_model(saved)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: d.pop("sha256"), id="no checksum"),
        pytest.param(lambda d: d.pop("head"), id="no head"),
        pytest.param(lambda d: d.pop("categories"), id="no categories"),
        pytest.param(lambda d: d.update(categories=["one"]), id="fewer categories than prototypes"),
        pytest.param(lambda d: d.update(prompt={"kind": "frame"}), id="unknown prompt"),
        pytest.param(lambda d: d["prompt"].update(kind="shared"), id="another prompt"),
        pytest.param(lambda d: d.update(pixels={"size": 3}), id="other pixels"),
        pytest.param(lambda d: d["head"].update(hidden=9), id="another head"),
    ],
)
def test_a_description_that_does_not_fit_is_named(change: Callable[[dict[str, Any]], Any], saved: Path) -> None:
    edit(saved, change)
    with pytest.raises((Failure, Misuse), match=r"model\.json"):
        load_model(saved)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip_a_bit, "checksum differs"),
        (lambda path: path.write_bytes(path.read_bytes()[:1000]), "damaged or missing"),
        (lambda path: path.write_bytes(b""), "damaged or missing"),
        (lambda path: path.unlink(), "damaged or missing"),
        (lambda path: save_file({"x": torch.zeros(2)}, path), "checksum differs"),
    ],
    ids=["one bit", "cut", "empty", "gone", "another file"],
)
def test_damaged_weights_are_noticed(damage: Callable[[Path], object], reason: str, saved: Path) -> None:
    damage(saved / "model.safetensors")
    with pytest.raises(Failure, match=rf"model\.safetensors is {reason}|model\.safetensors is damaged \(its {reason}"):
        load_model(saved)


# --- calibration ------------------------------------------------------------------------------------------------------

CALIBRATOR = Calibrator(Line(0.5, -0.25), Line(1.5, 0.125))


def test_a_calibrator_comes_back(tmp_path: Path) -> None:
    model, card = small_model()
    calibrated = replace(card, calibrator=CALIBRATOR)
    save_model(tmp_path / "model", model, calibrated)
    assert load_model(tmp_path / "model")[1] == calibrated
    description = json.loads((tmp_path / "model" / "model.json").read_text(encoding="utf-8"))
    assert description["calibrator"] == {"known": [0.5, -0.25], "new": [1.5, 0.125]}


def test_the_card_is_replaced_and_the_weights_stay(saved: Path) -> None:
    model, card = load_model(saved)
    before = (saved / "model.safetensors").stat()
    text = (saved / "model.json").read_text(encoding="utf-8")
    assert "calibrator" not in text
    update_card(saved, replace(card, calibrator=CALIBRATOR))
    again, card_again = load_model(saved)
    assert card_again == replace(card, calibrator=CALIBRATOR)
    assert torch.equal(logits(again), logits(model))
    after = (saved / "model.safetensors").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert sorted(p.name for p in saved.iterdir()) == ["model.json", "model.safetensors"]
    update_card(saved, card)
    assert (saved / "model.json").read_text(encoding="utf-8") == text


def test_an_update_that_fails_leaves_the_card(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = load_model(saved)[1]
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        update_card(saved, replace(card, calibrator=CALIBRATOR))
    assert load_model(saved)[1] == card


@pytest.mark.parametrize("text", ["{", "{}", '{"format": 9}'])
def test_a_damaged_card_is_not_updated(text: str, saved: Path) -> None:
    card = load_model(saved)[1]
    (saved / "model.json").write_text(text, encoding="utf-8")
    with pytest.raises((Failure, Misuse), match=r"model\.json"):
        update_card(saved, card)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"known": [1, 0]},
        {"known": [1], "new": [1, 0]},
        {"known": [1, 0], "new": [1, 0, 0]},
        {"known": ["x", 0], "new": [1, 0]},
        {"known": [None, 0], "new": [1, 0]},
        {"known": [1e999, 0], "new": [1, 0]},
        {"known": [10**400, 0], "new": [1, 0]},
        [1, 0],
        "line",
        3,
    ],
)
def test_a_damaged_calibrator_is_named(value: object, saved: Path) -> None:
    edit(saved, lambda d: d.update(calibrator=value))
    with pytest.raises(Failure, match=r"model\.json is damaged \((calibrator|Infinity).*\)\. Copy it again or train"):
        load_model(saved)


def test_no_calibrator_is_no_damage(saved: Path) -> None:
    edit(saved, lambda d: d.update(calibrator=None))
    assert load_model(saved)[1].calibrator is None


# --- models from elsewhere --------------------------------------------------------------------------------------------


def test_lengths_of_the_prototypes_come_back(tmp_path: Path) -> None:
    model, card = small_model()
    before = logits(model)
    model.head = PrototypeHead(model.backbone.dim, len(NAMES), hidden=8, bottleneck=4, with_lengths=True)
    model.head.load_state_dict({**small_model()[0].head.state_dict(), "lengths": torch.tensor([1.0, 2.0, 0.5])})
    save_model(tmp_path / "model", model, card)
    again, _ = load_model(tmp_path / "model")
    assert again.head.lengths is not None
    assert again.head.lengths.tolist() == [1.0, 2.0, 0.5]
    assert torch.equal(logits(again), logits(model))
    assert_same(logits(again), before * torch.tensor([1.0, 2.0, 0.5]), terms=1)


def test_a_head_without_a_projection_comes_back(tmp_path: Path) -> None:
    model, card = small_model()
    model.head = PrototypeHead(model.backbone.dim, len(NAMES), projects=False)
    save_model(tmp_path / "model", model, card)
    again, _ = load_model(tmp_path / "model")
    assert torch.equal(logits(again), logits(model))
    assert not [name for name in load_file(tmp_path / "model" / "model.safetensors") if name.startswith("head.mlp")]


def test_models_of_our_own_say_nothing_of_lengths_or_architecture(saved: Path) -> None:
    description = json.loads((saved / "model.json").read_text(encoding="utf-8"))
    assert description["head"] == {"hidden": 8, "bottleneck": 4}
    assert "architecture" not in description
    assert "head.lengths" not in load_file(saved / "model.safetensors")


def test_an_architecture_of_other_sizes_comes_back(tmp_path: Path) -> None:
    sizes = {"embed_dim": 64, "depth": 2, "num_heads": 1, "patch_size": 8}
    backbone = build_backbone("vit_base_patch16_224.dino", image_size=32, pretrained=False, architecture=sizes)
    card = ModelCard(NAMES, 2, PromptSettings(kind="none"), 0.875)
    model = GcdModel(backbone, PrototypeHead(64, 3, hidden=8, bottleneck=4)).eval()
    save_model(tmp_path / "model", model, card)
    again, _ = load_model(tmp_path / "model")
    assert again.backbone.architecture == sizes
    assert (again.backbone.name, again.backbone.patch_size, again.backbone.dim) == ("vit_base_patch16_224.dino", 8, 64)
    assert torch.equal(logits(again), logits(model))


def test_a_dinov3_model_comes_back(tmp_path: Path) -> None:
    sizes = {"embed_dim": 64, "depth": 2, "num_heads": 1}
    name = "vit_small_patch16_dinov3.lvd1689m"
    backbone = build_backbone(name, image_size=32, pretrained=False, architecture=sizes)
    card = ModelCard(NAMES, 2, PromptSettings(kind="spatial+global", border=3), 0.875)
    model = GcdModel(backbone, PrototypeHead(64, 3, hidden=8, bottleneck=4)).eval()
    model.attach_prompt(card.prompt, torch.Generator().manual_seed(0))
    save_model(tmp_path / "model", model, card)
    assert torch.equal(logits(load_model(tmp_path / "model")[0]), logits(model))


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"embed_dim": 65}, "does not describe a model that fits its weights"),
        ({"breadth": 3}, r"is damaged \(architecture\.breadth: "),
        ({"checkpoint_path": "w.pth"}, r"is damaged \(architecture\.checkpoint_path: "),
        ({"depth": 10**6}, r"is damaged \(architecture\.depth: input should be less than or equal to 200\)"),
        ([1], r"is damaged \(architecture: "),
    ],
)
def test_an_impossible_architecture_is_named(sizes: object, says: str, saved: Path) -> None:
    edit(saved, lambda d: d.update(backbone="vit_tiny_patch16_224", architecture=sizes))
    with pytest.raises(Failure, match=rf"model\.json {says}"):
        load_model(saved)


def test_only_a_model_is_replaced_and_only_when_asked(saved: Path, tmp_path: Path) -> None:
    check_replaceable(tmp_path / "new", overwrite=False)
    check_replaceable(saved, overwrite=True)
    (tmp_path / "empty").mkdir()
    check_replaceable(tmp_path / "empty", overwrite=False)
    with pytest.raises(Misuse) as refused:
        check_replaceable(saved, overwrite=False)
    assert str(refused.value) == f"{saved} is not empty. Replace it with `overwrite=True`, or give another `out`."
    (saved / "thesis.txt").write_text("x", encoding="utf-8")
    for overwrite in (False, True):
        with pytest.raises(Misuse) as refused:
            check_replaceable(saved, overwrite)
        assert str(refused.value) == (
            f"{saved} holds other files than a model, such as thesis.txt, which sptnet never deletes. "
            "Give another `out`."
        )
    with pytest.raises(Misuse) as refused:
        check_replaceable(saved / "thesis.txt", overwrite=True)
    assert str(refused.value) == (
        f"{saved / 'thesis.txt'} is a file or a link. Give a folder that does not exist yet with `out`."
    )


def test_a_model_remembers_how_its_pictures_are_read(tmp_path: Path) -> None:
    backbone = build_backbone(EMBEDDED, reading="exact")
    card = ModelCard(("a", "b"), 1, PromptSettings(kind="none"), 0.875)
    save_model(tmp_path / "model", GcdModel(backbone, PrototypeHead(96, 2, 8, 8)), card)
    assert load_model(tmp_path / "model")[0].backbone.pixels.reading == "exact"
    assert build_backbone(EMBEDDED).pixels.reading == "quick"
    description = tmp_path / "model" / "model.json"
    content = json.loads(description.read_text())
    del content["pixels"]["reading"]  # earlier versions had one reading mode only
    description.write_text(json.dumps(content))
    assert load_model(tmp_path / "model")[0].backbone.pixels.reading == "exact"


# --- kills and links --------------------------------------------------------------------------------------------------


def test_killed_at_any_step_of_replacing_a_model(tmp_path: Path) -> None:
    """A whole model is there, or put aside and put back by the next save."""
    (old, card), (new, _) = small_model(), small_model(seed=1)
    save_model(tmp_path / "template", old, card)

    def prepare(number: int) -> Callable[[], None]:
        folder = tmp_path / str(number)
        folder.mkdir()
        shutil.copytree(tmp_path / "template", folder / "model")
        return lambda: save_model(folder / "model", new, card)

    states = set()
    for number in kill_everywhere(prepare):
        folder = tmp_path / str(number)
        states.add((folder / "model").exists())
        sweep(folder)
        assert [path.name for path in folder.iterdir()] == ["model"]
        load_model(folder / "model")
        save_model(folder / "model", new, card)
        assert sorted(p.name for p in (folder / "model").iterdir()) == ["model.json", "model.safetensors"]
        assert [path.name for path in folder.iterdir()] == ["model"]
    assert states == {True, False}


def test_saving_touches_nothing_beside_the_model(tmp_path: Path) -> None:
    for name in ("model.part", "model.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine", encoding="utf-8")
    save_model(tmp_path / "model", *small_model())
    save_model(tmp_path / "model", *small_model(seed=1))
    assert all((tmp_path / name / "mine").exists() for name in ("model.part", "model.old"))


def test_the_description_is_synced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync = [], os.fsync

    def watched(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        sync(file)

    monkeypatch.setattr(os, "fsync", watched)
    save_model(tmp_path / "model", *small_model())
    assert {Path(path).name for path in synced} >= {"model.json", "model.safetensors"}
    assert synced[-1] == str(tmp_path)
