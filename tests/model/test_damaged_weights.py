"""Weights files that are damaged, forged or hostile: one line each, and no memory for what they promise."""

import io
import json
import pickle
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from conftest import Call, random_model
from sptnet.config import Config, PromptSettings
from sptnet.errors import Failure, Misuse, SptnetError
from sptnet.model.backbone import build_backbone
from sptnet.model.model_folder import ModelCard, load_model, save_model
from sptnet.model.published import build_published, read_published
from sptnet.model.weights import as_backbone, load_weights, read_weights
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.digest import digest

NAMES = tuple(f"c{i}" for i in range(10))
State = dict[str, Tensor]


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    return str(error)


def refusal(path: Path, kind: type[SptnetError] = Failure) -> str:
    with pytest.raises(kind) as error:
        read_weights(path)
    return one_line(error.value)


# --- pickled files ----------------------------------------------------------------------------------------------------


def repacked(source: Path, target: Path, compression: int, more: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
        for name, content in (more or {}).items():
            new.writestr(name, content)
    return target


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "w.pth"
    torch.save({"a": torch.zeros(1000), "b": torch.arange(3)}, path)
    return path


def test_an_archive_that_unpacks_to_more_than_its_size_is_not_unpacked(weights: Path, tmp_path: Path) -> None:
    bomb = repacked(weights, tmp_path / "bomb.pt", zipfile.ZIP_DEFLATED, {"w/data/9": b"\0" * 50_000_000})
    assert bomb.stat().st_size < 100_000
    tracemalloc.start()
    message = refusal(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "bomb.pt cannot be read as weights: it is compressed and unpacks from" in message
    assert "torch stores weights uncompressed. Save it again with torch.save" in message
    assert peak < 5_000_000


def test_compressed_weights_are_refused_and_stored_ones_are_read(weights: Path, tmp_path: Path) -> None:
    assert "it is compressed" in refusal(repacked(weights, tmp_path / "a.pt", zipfile.ZIP_DEFLATED))
    assert read_weights(repacked(weights, tmp_path / "b.pt", zipfile.ZIP_STORED)).keys() == {"a", "b"}


def test_entries_that_share_their_bytes_are_refused(weights: Path, tmp_path: Path) -> None:
    """Many entries of the directory may point to the same stored bytes."""
    with zipfile.ZipFile(weights) as archive:
        directory = archive.start_dir
    whole = weights.read_bytes()
    end = whole.rindex(b"PK\x05\x06")
    entries, tail = whole[directory:end], bytearray(whole[end:])
    entries = entries[: entries.rindex(b"PK\x06\x06")] if b"PK\x06\x06" in entries else entries
    count = struct.unpack("<H", tail[8:10])[0]
    struct.pack_into("<HHI", tail, 8, 50 * count, 50 * count, 50 * len(entries))
    (tmp_path / "overlap.pt").write_bytes(whole[:directory] + 50 * entries + bytes(tail))
    assert "cannot be read as weights" in refusal(tmp_path / "overlap.pt")


class Odd:
    """An object that pickles as a call of an arbitrary function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80",
        b"\x80\x02",
        b"PK",
        b"PK\x03\x04" + b"\0" * 60,
        b"\x80\x02}q\x00.",
        b"not a pickle at all",
        pickle.dumps({"a": Odd(print, "boo")}),
        pickle.dumps(3),
        b"\0" * 100,
        bytes(range(256)),
    ],
)
def test_what_is_no_checkpoint_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    assert "w.pt " in refusal(tmp_path / "w.pt", SptnetError)


@pytest.mark.parametrize("legacy", [False, True])
def test_mutated_checkpoints_are_read_or_one_line(legacy: bool, tmp_path: Path) -> None:
    draw, path = random.Random(0), tmp_path / "w.pth"
    torch.save({"model": {"a": torch.arange(6.0)}, "epoch": 3}, path, _use_new_zipfile_serialization=not legacy)
    whole = path.read_bytes()
    for _ in range(250):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content[: draw.randrange(len(content))] if draw.random() < 0.2 else content)
        try:
            read_weights(path)
        except SptnetError as error:
            assert "w.pth" in one_line(error)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: torch.zeros(1).expand(10**12), "its tensors are more than 8 times as large as the file"),
        (lambda: torch.zeros(3, dtype=torch.complex64), "a is complex64 strided. Save plain tensors."),
        (lambda: torch.eye(3).to_sparse(), "a is float32 sparse_coo. Save plain tensors."),
        (lambda: torch.zeros(2, device="meta"), "cannot be read as weights"),
    ],
    ids=["expanded", "complex", "sparse", "meta"],
)
def test_tensors_that_are_not_plain_are_refused(make: Callable[[], Tensor], says: str, tmp_path: Path) -> None:
    torch.save({"a": make()}, tmp_path / "w.pth")
    assert says in refusal(tmp_path / "w.pth")


def test_a_checkpoint_inside_itself_is_refused(tmp_path: Path) -> None:
    content: dict[str, Any] = {"epoch": 1}
    content |= dict.fromkeys(("teacher", "student", "model", "state_dict"), content)
    torch.save(content, tmp_path / "w.pth")
    assert "is not a plain state dict" in refusal(tmp_path / "w.pth", Misuse)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value: float, tiny_weights: Path) -> None:
    state = load_file(tiny_weights)
    state["norm.bias"][0] = value
    vit = build_backbone("sptnet_digits_vit", image_size=32, pretrained=False).vit
    with pytest.raises(Failure, match=r"^FILE is damaged \(norm\.bias is not finite\)\. Fetch or copy it again\.$"):
        load_weights(vit, state, "FILE")


@pytest.mark.parametrize(
    "positions", [torch.zeros(3), torch.zeros(1, 0, 4), torch.zeros(2, 3, 4), torch.zeros(1, 3, 1)]
)
def test_registers_with_odd_positions_are_left_for_the_comparison_of_shapes(positions: Tensor) -> None:
    state = {"register_tokens": torch.zeros(1, 4, 4), "cls_token": torch.zeros(1, 1, 4), "pos_embed": positions}
    assert as_backbone(state)["pos_embed"].shape == positions.shape


# --- published checkpoints --------------------------------------------------------------------------------------------


def published(dim: int = 64, depth: int = 1) -> State:
    sizes = {"patch_size": 16, "embed_dim": dim, "depth": depth, "num_heads": 1}
    vit = build_backbone("vit_base_patch16_224.dino", image_size=64, pretrained=False, architecture=sizes).vit
    head = {"mlp.0": (8, dim), "mlp.2": (8, 8), "mlp.4": (4, 8)}
    state = {f"0.{name}": value.clone() for name, value in vit.state_dict().items()}
    state |= {f"1.{name}.weight": torch.zeros(shape) for name, shape in head.items()}
    state |= {f"1.{name}.bias": torch.zeros(shape[0]) for name, shape in head.items()}
    return state | {"1.last_layer.weight_g": torch.ones(5, 1), "1.last_layer.weight_v": torch.ones(5, dim)}


def test_the_published_form_is_accepted(tmp_path: Path) -> None:
    torch.save(published(), tmp_path / "c.pt")
    assert build_published(read_published(tmp_path / "c.pt"))[0].head.n_categories == 5


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"1.mlp.0.weight": torch.zeros(10**6, 0)}, r"mlp\.0\.weight of its head has the shape \(1000000, 0\), not"),
        ({"1.mlp.2.weight": torch.zeros(9, 8)}, r"mlp\.2\.weight of its head has the shape \(9, 8\), not \(8, 8\)"),
        ({"1.last_layer.weight_v": torch.ones(10**6, 1)}, r"prototypes of its head has the shape \(1000000, 1\), not"),
        ({"1.mlp.0.bias": torch.full((8,), torch.nan)}, r"mlp\.0\.bias is not finite"),
        ({"0.pos_embed": torch.zeros(1, 0, 64)}, "its ViT has empty patches or positions"),
        ({"0.patch_embed.proj.weight": torch.zeros(64, 3, 0, 0)}, "its ViT has empty patches or positions"),
        (
            {"0.patch_embed.proj.weight": torch.zeros(65536, 3, 1, 1)},
            r"blocks\.0\.attn\.qkv\.weight .* \(192, 64\), not",
        ),
        ({"0.blocks.100000.norm1.weight": torch.zeros(1)}, r"blocks\.100000\.attn\.qkv\.weight of its ViT is missing"),
    ],
    ids=["hidden", "shape", "prototypes", "nan", "positions", "patches", "width", "depth"],
)
def test_sizes_are_compared_before_a_model_is_built(changes: State, says: str, tmp_path: Path) -> None:
    torch.save(published() | changes, tmp_path / "c.pt")
    with pytest.raises(Misuse, match=says) as error:
        build_published(read_published(tmp_path / "c.pt"))
    one_line(error.value)


def test_an_image_size_has_a_bound(tmp_path: Path) -> None:
    torch.save(published(), tmp_path / "c.pt")
    with pytest.raises(Misuse, match=r"an image of 1600000 pixels is too large or too small\. Give 1 to 4096 with"):
        build_published(read_published(tmp_path / "c.pt"), image_size=1_600_000)
    with pytest.raises(Misuse, match=r"`frame_width` is 10000\. Give 1 to 16, the size of a patch\."):
        build_published(read_published(tmp_path / "c.pt"), frame_width=10_000)


# --- model directories ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = random_model()
    save_model(tmp_path / "model", model, ModelCard(NAMES, 5, PromptSettings(kind="none"), 0.875))
    return tmp_path / "model"


def forge(folder: Path, tensors: State | None = None, remove: tuple[str, ...] = (), **changes: Any) -> None:
    """Change the weights or the description, with a checksum that fits."""
    made = {k: v for k, v in (load_file(folder / "model.safetensors") | (tensors or {})).items() if k not in remove}
    save_file(made, folder / "model.safetensors")
    text = (folder / "model.json").read_text()
    (folder / "model.json").write_text(json.dumps(json.loads(text) | {"sha256": digest(made)} | changes))


@pytest.mark.parametrize(
    ("tensors", "remove", "says"),
    [
        ({"head.prototypes": torch.zeros(1, 96)}, (), r"head\.prototypes has the shape \(1, 96\), not \(10, 96\)"),
        ({"head.prototypes": torch.zeros(10, 96).double()}, (), r"head\.prototypes has the type float64, not float32"),
        ({}, ("backbone.vit.norm.bias",), r"backbone\.vit\.norm\.bias is missing"),
        ({"head.more": torch.zeros(2)}, (), r"head\.more is not part of it"),
    ],
)
def test_weights_that_do_not_fit_are_named(folder: Path, tensors: State, remove: tuple[str, ...], says: str) -> None:
    forge(folder, tensors, remove)
    with pytest.raises(
        Failure, match=rf"model\.json does not describe a model that fits .*\(ValueError: {says}\)"
    ) as error:
        load_model(folder)
    one_line(error.value)


def test_a_model_that_is_not_finite_is_refused(folder: Path) -> None:
    forge(folder, {"head.prototypes": torch.full((10, 96), torch.nan)})
    with pytest.raises(Failure, match=r"model\.safetensors is damaged \(head\.prototypes is not finite\)"):
        load_model(folder)


PIXELS = {"image_size": 32, "mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "reading": "quick"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"pixels": PIXELS | {"image_size": 100_000}},
            r"pixels\.image_size: input should be less than or equal to 4096",
        ),
        ({"pixels": PIXELS | {"image_size": 32.5}}, r"pixels\.image_size: input should be a valid integer"),
        ({"pixels": PIXELS | {"mean": [0.5]}}, r"pixels\.mean: list should have at least 3 items"),
        ({"pixels": PIXELS | {"std": [0, 1, 1]}}, r"pixels\.std\.0: input should be greater than 0"),
        ({"pixels": PIXELS | {"interpolation": "magic"}}, r"pixels\.interpolation: input should be 'nearest'"),
        ({"pixels": []}, "pixels: input should be a valid dictionary"),
        ({"head": {"hidden": 10**9}}, r"head\.hidden: input should be less than or equal to"),
        ({"head": {"kind": "tree"}}, r"head\.kind: input should be 'centroids' or 'linear'"),
        ({"head": 3}, "head: input should be a valid dictionary"),
        ({"categories": [1, 2]}, r"categories\.0: input should be a valid string"),
        ({"categories": ["a"] * 10}, "content: the names of the categories repeat"),
        ({"n_known": 11}, "content: 11 of 10 categories cannot be known"),
        ({"crop_ratio": 1e-300}, "crop_ratio: input should be greater than or equal to"),
        ({"trainable_blocks": "1"}, "trainable_blocks: input should be a valid integer"),
        (
            {"prompt": {"kind": "global", "border": 10**9}},
            r"prompt\.border: input should be less than or equal to 4096",
        ),
        ({"backbone": ["vit"]}, "backbone: input should be a valid string"),
    ],
)
def test_wrongly_typed_descriptions_are_named(folder: Path, changes: dict[str, Any], says: str) -> None:
    forge(folder, **changes)
    with pytest.raises(
        Failure, match=rf"model\.json is damaged \({says}.*\)\. Copy it again or train again\.$"
    ) as error:
        load_model(folder)
    one_line(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"head": {"hidden": 2**20, "bottleneck": 2**20}},
        {"backbone": "vit_7b_patch16_dinov3.lvd1689m"},
        {"backbone": "vit_giant_patch14_dinov2.lvd142m", "pixels": PIXELS | {"image_size": 28}},
        {"categories": [f"c{i}" for i in range(300_000)]},
    ],
    ids=["head", "7b", "giant", "categories"],
)
def test_a_description_of_a_huge_model_takes_no_memory(
    folder: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes do not fit the weights, which is known before the model is built for real."""
    forge(folder, **changes)
    built: list[int] = []
    real = torch.nn.init.trunc_normal_

    def recorded(tensor: Tensor, *arguments: Any, **named: Any) -> Tensor:
        built.append(0 if tensor.is_meta else tensor.numel())
        return real(tensor, *arguments, **named)

    monkeypatch.setattr(torch.nn.init, "trunc_normal_", recorded)
    with pytest.raises(Failure, match=r"does not describe a model that fits its weights \(ValueError: .*") as error:
        load_model(folder)
    one_line(error.value)
    assert built and sum(built) == 0


@pytest.mark.parametrize(
    "text", ["\xff", "[" * 100_000, "9" * 5000, '{"format": 1}', "\0", '{"format": ' + "9" * 4000 + "}"]
)
@pytest.mark.parametrize("verb", ["predict", "evaluate", "report"])
def test_the_command_line_names_a_damaged_description(
    folder: Path, text: str, verb: str, digit_folder: Path, call: Call
) -> None:
    (folder / "model.json").write_bytes(text.encode("latin1"))
    RunFolder(folder.parent).write_config(Config())
    more = {"predict": [digit_folder], "evaluate": ["--data", digit_folder], "report": []}[verb]
    answer = call(verb, folder.parent, *more)
    assert (answer.code, answer.out, answer.err.count("\n")) in ((1, "", 1), (2, "", 1))
    assert answer.err.startswith(f"error: {folder / 'model.json'} ")


def test_the_description_may_be_a_folder(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    with pytest.raises(Failure, match=r"model\.safetensors is damaged or missing"):
        load_model(folder)


def test_bytes_in_memory_are_no_weights(tmp_path: Path) -> None:
    stream = io.BytesIO()
    torch.save([torch.zeros(3)], stream)
    (tmp_path / "w.pt").write_bytes(stream.getvalue())
    assert "is not a plain state dict" in refusal(tmp_path / "w.pt", Misuse)
