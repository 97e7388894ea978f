"""Small data, commands that take about a second, and runs that nothing disturbed, to compare with."""

import ast
import contextlib
import hashlib
import importlib
import json
import pkgutil
import shutil
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_digits

import sptnet

from .children import Child, Ended, nothing

KNOWN, NEW, PER_DIGIT, LABELLED = (0, 1), (2, 3), 8, 5
TIMING = ("seconds", "images_per_second", "waiting")
TINY = {
    "device": "cpu",
    "backbone.image_size": 32,
    "head.hidden": 16,
    "head.bottleneck": 8,
    "prompt.border": 4,
    "simgcd.epochs": 2,
    "sptnet.epochs": 2,
    "sptnet.k": 1,
    "sptnet.counter": "continuous",
    "sptnet.prompt_warm_up": 2,
    "training.batch_size": 16,
    "training.evaluate_every": 1,
    "views.workers": 0,
    "n_categories": 4,
}
CHOOSY = {"training.select": "best-old-holdout", "data.holdout_share": 0.2}
BANKED = {"method": "simgcd", "views.bank": 2}


class Broken(Exception):
    """A command failed that nothing disturbed, so no case can be judged."""


class Workshop:
    """Folder for all cases of a campaign, with data and finished runs."""

    def __init__(self, root: Path):
        preload()
        torch.set_num_threads(1)  # a pool of threads would not survive a fork
        self.root, self._made = root, dict[str, Path]()
        self._images: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        """Time that each reference took."""
        root.mkdir(parents=True, exist_ok=True)

    @cached_property
    def data(self) -> Path:
        """Folder of 32 digits: 0 and 1 are known, with five labelled images each."""
        pictures = load_digits()
        for digit in (*KNOWN, *NEW):
            for n, i in enumerate(np.flatnonzero(pictures.target == digit)[:PER_DIGIT]):
                folder = self.root / "data" / (str(digit) if digit in KNOWN and n < LABELLED else "unlabelled")
                folder.mkdir(parents=True, exist_ok=True)
                pixels = np.kron(pictures.images[i] * 15, np.ones((4, 4))).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{digit}-{n}.png")
        self._images = inventory(self.root / "data")
        return self.root / "data"

    @cached_property
    def weights(self) -> Path:
        """Weights of the embedded backbone at 32 pixels, drawn at random."""
        from sptnet.model.backbone import build_backbone

        vit = build_backbone("sptnet_digits_vit", image_size=32, pretrained=False).vit
        random = np.random.RandomState(0)
        drawn = {}
        for name, value in sorted(vit.state_dict().items()):
            scale = 0.0 if name.endswith("bias") else 1.0
            matrix = random.standard_normal(value.shape) / max(1, value[0].numel()) ** 0.5
            drawn[name] = torch.from_numpy(matrix).float() if value.ndim > 1 else torch.full_like(value, scale)
        save_file(drawn, self.root / "weights.safetensors")
        return self.root / "weights.safetensors"

    def settings(self, more: dict[str, Any] | None = None) -> list[str]:
        """Words that set the smallest sizes."""
        own = {"backbone.name": "sptnet_digits_vit", "backbone.weights": f'"{self.weights}"'}
        return [word for key, value in {**own, **TINY, **(more or {})}.items() for word in ("--set", f"{key}={value}")]

    def train(self, out: Path, more: dict[str, Any] | None = None, data: Path | None = None) -> list[str]:
        """Words of a training of two stages with two epochs each."""
        return ["train", "sptnet", "--data", str(data or self.data), "--out", str(out), *self.settings(more)]

    def discover(self, out: Path, more: dict[str, Any] | None = None, data: Path | None = None) -> list[str]:
        """Words of a discovery with SimGCD."""
        chosen = ["--method", "simgcd", "--epochs", "1"]
        own = {"views.bank": 2, **(more or {})}  # not as many views as the disk has room for
        return ["discover", str(data or self.data), "--out", str(out), *chosen, *self.settings(own)]

    def call(
        self, words: Sequence[object], logs: Path, prepare: Callable[[], object] = nothing, terminal: bool = False
    ) -> Ended:
        """Run a command in a forked process."""
        return Child(words, logs, prepare, terminal=terminal).wait()

    def must(self, words: Sequence[object], logs: Path) -> Ended:
        """Run a command that has no reason to fail."""
        ended = self.call(words, logs)
        if ended.code != 0:
            raise Broken(f"sptnet {' '.join(map(str, words))}: {ended.complaint or ended.last_line}")
        return ended

    def reference(self, name: str) -> Path:
        """Return a run that nothing disturbed, made once: choosy, banked, other, discovered or continued."""
        if name not in self._made:
            folder, logs = self.root / "references" / name, self.root / "logs" / name
            words = {
                "choosy": lambda: self.train(folder, CHOOSY),
                "banked": lambda: self.train(folder, BANKED),
                "other": lambda: self.train(folder, {"method": "simgcd", "seed": 1}),
                "discovered": lambda: self.discover(folder),
            }[name]()
            start = time.monotonic()
            self.must(words, logs)
            self.seconds[name] = time.monotonic() - start
            self._made[name] = folder
        return self._made[name]

    def expected(self, name: str, words: Sequence[str]) -> dict[str, str]:
        """Return what a command writes at a path that ends in `sorted` when nothing disturbs it, made once."""
        folder = self.root / "references" / name
        if not folder.exists():
            folder.mkdir(parents=True)
            own = [str(folder / "sorted") if Path(word).name == "sorted" else word for word in words]
            self.must([word for word in own if word != "--overwrite"], self.root / "logs" / name)
        return tree(folder / "sorted")

    def images_changed(self) -> bool:
        """Return True if an image of the data folder is not as it was."""
        return bool(changed(self._images, self.data))

    def case(self, name: str) -> Path:
        """Return a new empty folder for a case."""
        folder = self.root / "cases" / name
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def copy_run(self, name: str, to: Path) -> Path:
        """Copy a reference."""
        shutil.copytree(self.reference(name), to)
        return to


def preload() -> None:
    """Import every module of sptnet and all that it imports later, so that no forked process has to."""
    for module in pkgutil.walk_packages(sptnet.__path__, "sptnet."):
        if not module.name.endswith("__main__"):
            _import_all(Path(str(importlib.import_module(module.name).__file__)))
    Image.init()


def _import_all(file: Path) -> None:
    """Import what a file imports, inside functions too; an extra that is not installed is left out."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        for name in names:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def outcome(run: Path) -> dict[str, str]:
    """Digest the results of a run by file, without times: they must not depend on interruptions."""
    files = ["config.toml", "predictions.csv", "features.safetensors", "split.json", "estimate.json"]
    files += [path.relative_to(run).as_posix() for path in run.glob("model*/model.*")]
    files += [path.relative_to(run).as_posix() for path in run.glob("counts/*")]
    found = {name: _digest((run / name).read_bytes()) for name in files if (run / name).is_file()}
    if (run / "metrics.jsonl").is_file():
        text = (run / "metrics.jsonl").read_text(encoding="utf-8")
        lines = [{k: v for k, v in json.loads(line).items() if k not in TIMING} for line in text.splitlines()]
        found["metrics.jsonl"] = _digest(json.dumps(lines).encode())
    status = json.loads((run / "run.json").read_text(encoding="utf-8")) if (run / "run.json").is_file() else {}
    return {**found, "run.json": json.dumps([status.get("status"), status.get("scores")])}


def differences(run: Path, reference: Path, but: Sequence[str] = ()) -> str:
    """Name the results of a run that differ from those of another, but for some files; empty if none does."""
    try:
        one, other = outcome(run), outcome(reference)
    except (OSError, ValueError, AttributeError) as error:
        return f"results are unreadable ({error})"
    names = sorted(name for name in {*one, *other}.difference(but) if one.get(name) != other.get(name))
    return f"other results than those of an undisturbed run: {', '.join(names)}" if names else ""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def tree(path: Path) -> dict[str, str]:
    """Describe a file, or every entry of a folder."""
    return inventory(path) if path.is_dir() else {path.name: _digest(path.read_bytes())} if path.is_file() else {}


def inventory(folder: Path) -> dict[str, str]:
    """Describe every entry below a folder: digest, link target, or that it is a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        else:
            found[name] = "folder" if path.is_dir() else _digest(path.read_bytes())
    return found


def changed(before: dict[str, str], folder: Path) -> str:
    """Name the entries that are no longer as they were; new entries do not count."""
    now = inventory(folder)
    names = [name for name, what in before.items() if now.get(name) != what]
    return f"changed or lost: {', '.join(names[:5])}" if names else ""
