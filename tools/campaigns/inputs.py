"""Every file that sptnet reads, with the commands that read it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from .mutators import Random
from .operations import Watch, die
from .workshop import BANKED, Broken, Workshop

EDITS = (["rename", "new-1", "otter"], ["confirm", "otter"], ["count", "3"])
ESTIMATE = {"n_categories": 4, "interval": [3, 5], "method": "share", "curve": []}


@dataclass(frozen=True)
class Input:
    """A file in a bench, or a pattern of files, its form, and the commands that read it.

    In commands, {bench} stands for the copied bench and {run} for a finished run that is whole. Those in
    `trains` may train: they are stopped after a few steps, and only forked. With `exact`, a command that succeeds must
    give the results of the undisturbed run.
    """

    name: str
    bench: str
    file: str
    form: str
    reads: tuple[str, ...]
    trains: tuple[str, ...] = ()
    exact: bool = False
    special: Callable[[Random, Path], None] | None = None


LIST, LOG, UNDO = "edit {bench} list", "edit {bench} log", "edit {bench} undo"
CSV, JSON, COPIES = (f"export {{bench}} --as {form} --to {{bench}}-{form}" for form in ("csv", "json", "copies"))
PREDICT, PARTS = "predict {bench} {images}", "predict {bench} {images} --parts {bench}-parts --part-size 3"
REPORT, EVALUATE = "report {bench} --no-model-pictures", "evaluate {bench}"
PICTURES, FIGURES = "report {bench}", "figures {bench} --out {bench}-figures --only accuracy"
RESUME, AGAIN = "train --resume --out {bench}", "discover --resume --out {bench} --no-report"
NEXT = "discover --continue {bench} --out {bench}-next --dry-run"
COUNT, SPLIT = "edit {bench} count 3", "edit {bench} split otter"
FIRST = "checkpoints/stage0-epoch00001.safetensors"
RECIPE = "train {bench}/recipe.toml --data {data} --out {bench}-out"
SPLIT_RECIPE = f"{RECIPE} --set data.split={{bench}}/split.json"
REPLACE = "export {run} --as links --to {bench} --overwrite"
LOOKS = ("check {bench} --no-time", "predict {run} {bench}", "predict {run} {bench}/{file}")
LABELS = "--labels {bench}/labels.csv"
IMPORT = "import {bench}/published.pt --out {bench}-model"
WEIGHTS = "train kmeans --data {data} --out {bench}-out --set n_categories=4 --backbone sptnet_digits_vit --weights"


def recheck(random: Random, path: Path) -> None:
    """Change tensors of a checkpoint and give it the checksum of what it holds then."""
    from sptnet.runtime.digest import digest

    with safe_open(path, framework="pt") as file:
        facts = file.metadata()["sptnet"]
    tensors = load_file(path)
    name = random.choice(sorted(tensors))
    match random.randrange(5):
        case 0:
            del tensors[name]
        case 1:
            tensors[name] = tensors[name].flatten()[:1].clone()
        case 2:
            tensors[name] = tensors[name].double()
        case 3:
            tensors["stray"] = torch.zeros(3)
        case _:
            values = json.loads(facts)
            values.pop(random.choice(sorted(values)))
            facts = json.dumps(values)
    save_file(tensors, path, {"sptnet": facts, "sha256": digest(tensors, facts)})


IMAGES = ("grey.png", "deep.png", "palette.png", "photo.jpg", "moving.gif", "plain.bmp", "lzw.tiff", "web.webp")
INPUTS = (
    Input("config.toml", "run", "config.toml", "text", (LIST, CSV, PREDICT, REPORT, EVALUATE, NEXT), (RESUME, AGAIN)),
    Input("run.json", "run", "run.json", "json", (REPORT, LIST, FIGURES), (RESUME, AGAIN)),
    Input("model.json", "run", "model/model.json", "json", (PREDICT, PARTS, LIST, PICTURES, EVALUATE)),
    Input("model weights", "run", "model/model.safetensors", "tensors", (PREDICT, EVALUATE)),
    Input("metrics.jsonl", "run", "metrics.jsonl", "json", (REPORT, FIGURES), (RESUME,)),
    Input("edits.jsonl", "run", "edits.jsonl", "json", (LIST, LOG, UNDO, JSON, PREDICT, NEXT, REPORT)),
    Input("predictions.csv", "run", "predictions.csv", "text", (LIST, CSV, COPIES, REPORT, NEXT)),
    Input("split.json", "run", "split.json", "json", (EVALUATE,), (RESUME,)),
    Input("estimate.json", "run", "estimate.json", "json", (REPORT, COUNT), (RESUME,)),
    Input("counts", "run", "counts/3.safetensors", "tensors", (LIST, COUNT, REPORT, PREDICT)),
    Input("features", "run", "features.safetensors", "tensors", (SPLIT, REPORT)),
    Input("checkpoint", "stopped", FIRST, "tensors", (), (RESUME,), True),
    Input("checkpoint with checksum", "stopped", FIRST, "tensors", (), (RESUME,), True, recheck),
    Input("metrics of a stopped run", "stopped", "metrics.jsonl", "json", (), (RESUME,)),
    Input("run.json of a stopped run", "stopped", "run.json", "json", (), (RESUME,)),
    Input("bank.json", "stopped", "tokens/bank.json", "json", (), (RESUME,)),
    Input("token bank", "stopped", "tokens/*.bin", "bytes", (), (RESUME,), True),
    Input("labels", "files", "labels.csv", "text", (f"check {{data}} --no-time {LABELS}",), (f"{RECIPE} {LABELS}",)),
    Input("recipe", "files", "recipe.toml", "text", ("recipes show {bench}/recipe.toml --full",), (RECIPE,)),
    Input("split for training", "files", "split.json", "json", (), (SPLIT_RECIPE,)),
    Input("published checkpoint", "files", "published.pt", "zip", (IMPORT,)),
    Input("names", "files", "names.txt", "text", (f"{IMPORT} --names {{bench}}/names.txt",)),
    Input("pickled weights", "files", "weights.pt", "zip", (), (f"{WEIGHTS} {{bench}}/weights.pt",)),
    Input("weights", "files", "weights.safetensors", "tensors", (), (f"{WEIGHTS} {{bench}}/weights.safetensors",)),
    Input("edits of the report", "files", "edits.json", "json", ("edit {run} apply {bench}/edits.json",)),
    Input("list of images", "files", "list.txt", "text", ("predict {run} --list {bench}/list.txt",)),
    Input("parts.json", "parts", "parts.json", "json", ("predict {run} {data} --parts {bench} --part-size 8",)),
    Input("list of an export", "export", ".sptnet-export.json", "json", (REPLACE,)),
    *(Input(name, "images", name, "png" if name.endswith("png") else "bytes", LOOKS) for name in IMAGES),
)


def make_bench(shop: Workshop, name: str) -> Path:
    """Make the bench of that name, once."""
    folder, logs = shop.root / "benches" / name, shop.root / "logs" / f"bench {name}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        {"run": _run, "stopped": _stopped, "files": _files, "images": _images, "parts": _parts, "export": _export}[
            name
        ](shop, folder, logs)
    return folder


def _run(shop: Workshop, folder: Path, logs: Path) -> None:
    shop.copy_run("discovered", folder)
    (folder / "report.html").unlink()
    (folder / "estimate.json").write_text(json.dumps(ESTIMATE))
    for words in EDITS:
        shop.must(["edit", str(folder), *words], logs)


def _stopped(shop: Workshop, folder: Path, logs: Path) -> None:
    def stop(watch: Watch, kind: str, path: str) -> None:
        if "stage0-epoch00002" in path:
            die()

    words = shop.train(folder, BANKED)
    ended = shop.call(words, logs, lambda: Watch(folder, stop).install())
    if ended.code != -9:
        raise Broken(f"no second checkpoint to stop at: {ended.last_line}")


def _files(shop: Workshop, folder: Path, logs: Path) -> None:
    folder.mkdir()
    rows = [f"{path.relative_to(shop.data)},{path.parent.name}" for path in sorted(shop.data.glob("[01]/*.png"))]
    (folder / "labels.csv").write_text("\n".join(["path,label", *rows, ""]))
    settings = shop.settings(BANKED)[1::2]
    tables: dict[str, list[str]] = {}
    for key, _, value in (setting.partition("=") for setting in settings):
        section, _, name = key.rpartition(".")
        quoted = value if value[0] in '"0123456789' else json.dumps(value)
        tables.setdefault(section, []).append(f"{name} = {quoted}")
    parts = ["\n".join([f"[{section}]"[: 99 if section else 0], *lines]) for section, lines in sorted(tables.items())]
    (folder / "recipe.toml").write_text("\n\n".join(parts).strip() + "\n")
    shutil.copy(shop.reference("banked") / "split.json", folder / "split.json")
    vit = timm.create_model(
        "vit_base_patch16_224.dino", num_classes=0, img_size=32, embed_dim=64, depth=1, num_heads=1, patch_size=16
    )
    widths = ((0, 12, 64), (2, 12, 12), (4, 6, 12))
    head = {f"1.mlp.{n}.weight": torch.ones(a, b) for n, a, b in widths}
    head |= {f"1.mlp.{n}.bias": torch.ones(a) for n, a, _ in widths}
    head |= {"1.last_layer.weight_g": torch.ones(4, 1), "1.last_layer.weight_v": torch.ones(4, 64)}
    torch.save(
        {"model": {f"0.{k}": v for k, v in vit.state_dict().items()} | head, "epoch": 3}, folder / "published.pt"
    )
    (folder / "names.txt").write_text("0\n1\nnew-1\nnew-2\n")
    torch.save(load_file(shop.weights), folder / "weights.pt")
    shutil.copy(shop.weights, folder / "weights.safetensors")
    edits = {"edits": [{"verb": "rename", "category": "new-1", "to": "eel"}, {"verb": "undo"}]}
    (folder / "edits.json").write_text(json.dumps(edits))
    (folder / "list.txt").write_text("".join(f"{path}\n" for path in sorted(shop.data.rglob("*.png"))[:4]))


def _images(shop: Workshop, folder: Path, logs: Path) -> None:
    (folder / "unlabelled").mkdir(parents=True)
    grey = np.arange(40 * 48, dtype=np.uint16).reshape(40, 48)
    picture = Image.fromarray((grey % 256).astype(np.uint8))
    pictures = {"grey": picture, "deep": Image.fromarray(grey * 30), "palette": picture.convert("P")}
    for name in IMAGES:
        made = pictures.get(name.partition(".")[0], picture.convert("RGB"))
        if name.endswith("gif"):
            made.save(folder / name, save_all=True, append_images=[picture, picture])
        else:
            made.save(folder / name, **({"compression": "tiff_lzw"} if name.endswith("tiff") else {}))


def _parts(shop: Workshop, folder: Path, logs: Path) -> None:
    shop.must(["predict", shop.reference("discovered"), shop.data, "--parts", folder, "--part-size", "8"], logs)


def _export(shop: Workshop, folder: Path, logs: Path) -> None:
    shop.must(["export", shop.reference("discovered"), "--as", "links", "--to", folder], logs)
