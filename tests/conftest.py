"""Shared fixtures: one thread, a backbone of 32 pixels with seeded weights, a few digits, and the command line."""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from sptnet.cli import main
from sptnet.config import Config
from sptnet.config.recipes import load_recipe
from sptnet.data.benchmarks.digits import digits
from sptnet.data.image_set import ImageSet
from sptnet.data.load import SplitImages
from sptnet.data.split import make_split
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.head import PrototypeHead
from sptnet.model.backbone import Backbone, build_backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.compute import choose_compute
from sptnet.training.batching.batches import TrainingData
from sptnet.training.experiment import Experiment

SIZE = 32
TIMING = ("seconds", "images_per_second", "waiting")
NUMERICAL = ("tests", "clustering", "helpers", "inference", "methods", "model", "training")
WHOLE_RUNS = frozenset({"call", "command", "run_it", "tiny_config"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make numerical` repeats: computations with derived tolerances.

    These are the tests in files of the folders above that import helpers.rounding. Whole runs and jobs of several
    processes are left out, as they take long and compute the same.
    """
    texts = {path: path.read_text(encoding="utf-8") for path in {item.path for item in items}}
    for item in items:
        derived = "helpers.rounding" in texts[item.path] and "helpers.torchrun" not in texts[item.path]
        whole_run = WHOLE_RUNS & set(getattr(item, "fixturenames", ()))
        if item.path.parent.name in NUMERICAL and derived and not whole_run:
            item.add_marker("numerical")


@pytest.fixture(autouse=True, scope="session")
def few_threads() -> Iterator[None]:
    """Use one thread unless OMP_NUM_THREADS is set: threads do not speed up small tensors."""
    before = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    yield
    torch.set_num_threads(before)


def random_backbone(seed: int = 0) -> Backbone:
    """The embedded architecture at 32 pixels with weights drawn by NumPy, equal in all versions of torch.

    Images are read exactly, since quick reading may round differently on another processor.
    """
    backbone = build_backbone("sptnet_digits_vit", image_size=SIZE, pretrained=False, reading="exact")
    fill(backbone, seed)
    return backbone


def fill(module: nn.Module, seed: int) -> None:
    """Set matrices to normal values that keep the scale of activations, biases to zero, other vectors to one."""
    random = np.random.RandomState(seed)
    with torch.no_grad():
        for name, p in sorted(module.named_parameters()):
            if p.ndim > 1:
                p.copy_(torch.from_numpy(random.standard_normal(p.shape) / p[0].numel() ** 0.5))
            else:
                p.fill_(0.0 if name.endswith("bias") else 1.0)


def random_model(trainable_blocks: int = 1, seed: int = 0, n_categories: int = 10) -> GcdModel:
    """Model with a small prototype head; all weights are drawn by NumPy."""
    backbone = random_backbone(seed)
    head = PrototypeHead(backbone.dim, n_categories, hidden=64, bottleneck=32)
    fill(head, seed + 1)
    return GcdModel(backbone, head, trainable_blocks)


def subset_of_digits(per_class: int = 6) -> ImageSet:
    """The first images of every digit."""
    image_set = digits()
    chosen = [np.flatnonzero(image_set.labels == c)[:per_class] for c in range(10)]
    return image_set.subset(np.sort(np.concatenate(chosen)))


def training_data(image_set: ImageSet, backbone: Backbone, flip: float = 0.0) -> TrainingData:
    """Training data with five known classes."""
    split = make_split(image_set, 5)
    labels = np.full(len(image_set), -1, dtype=np.int64)
    labels[split.labelled] = split.target[split.labelled]
    store = ImageStore(image_set.sources, backbone.pixels)
    return TrainingData(
        store, ViewMaker(backbone.pixels, flip), labels, split.labelled, split.unlabelled, image_set.ids
    )


@pytest.fixture
def few_digits() -> SplitImages:
    """Sixty digits: 0 to 4 known, fifteen images labelled."""
    image_set = subset_of_digits()
    return SplitImages(image_set, make_split(image_set, 5), [])


@pytest.fixture
def held_out_digits() -> SplitImages:
    """Eighty digits; half of the labelled images are held out."""
    image_set = subset_of_digits(8)
    return SplitImages(image_set, make_split(image_set, 5, holdout_share=0.5), [])


@pytest.fixture
def make_model() -> Callable[..., GcdModel]:
    return random_model


@pytest.fixture
def make_training_data() -> Callable[..., TrainingData]:
    return training_data


@pytest.fixture
def cpu() -> Any:
    return choose_compute("cpu", "float32")


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_file(random_backbone().vit.state_dict(), path)
    return path


@pytest.fixture(scope="session")
def tiny_settings(tiny_weights: Path) -> list[str]:
    """Settings that make the recipe digits fast: 32 pixels, a small head, five batches per epoch with both phases."""
    return [
        "device=cpu",
        "backbone.image_size=32",
        f'backbone.weights="{tiny_weights}"',
        "head.hidden=64",
        "head.bottleneck=32",
        "prompt.border=4",
        "simgcd.epochs=3",
        "sptnet.epochs=3",
        "sptnet.k=2",
        "sptnet.prompt_warm_up=5",
        "training.batch_size=12",
        "training.evaluate_every=2",
        "views.workers=0",
    ]


@pytest.fixture
def tiny_config(tiny_settings: list[str]) -> Config:
    return load_recipe("digits", tiny_settings)


def quiet(message: str) -> None:
    """Show no message."""


@pytest.fixture
def run_it() -> Callable[..., Path]:
    """Train into a folder and return it; without `config`, with the settings in the folder."""

    def run(folder: Path, config: Config | None = None, data: SplitImages | None = None, resume: bool = False) -> Path:
        run_folder = RunFolder(folder)
        chosen = run_folder.config() if config is None else config
        Experiment(chosen, run_folder, data, tell=quiet).run(resume=resume)
        return folder

    return run


@dataclass(frozen=True)
class RunOutcome:
    """Results of a run that must not depend on interruptions."""

    model: dict[str, torch.Tensor]
    earlier: dict[str, torch.Tensor]
    metrics: list[dict[str, Any]]
    predictions: str

    @staticmethod
    def of(folder: Path) -> "RunOutcome":
        lines = [{k: v for k, v in line.items() if k not in TIMING} for line in RunFolder(folder).metrics()]
        earlier = folder / "model-simgcd" / "model.safetensors"
        return RunOutcome(
            load_file(folder / "model" / "model.safetensors"),
            load_file(earlier) if earlier.exists() else {},
            lines,
            (folder / "predictions.csv").read_text(),
        )


def assert_same_tensors(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert different == []


@pytest.fixture
def assert_same_result() -> Callable[[Path, Path], None]:
    """Compare weights bitwise, metrics without timing, predictions byte by byte."""

    def compare(one: Path, other: Path) -> None:
        a, b = RunOutcome.of(one), RunOutcome.of(other)
        assert_same_tensors(a.model, b.model)
        assert_same_tensors(a.earlier, b.earlier)
        assert a.metrics == b.metrics
        assert a.predictions == b.predictions

    return compare


@pytest.fixture(scope="session")
def digit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty digits as PNG files, one folder per digit."""
    root = tmp_path_factory.mktemp("digits")
    image_set = subset_of_digits()
    for id_, label, pixels in zip(image_set.ids, image_set.labels, image_set.sources, strict=True):
        (root / str(label)).mkdir(exist_ok=True)
        Image.fromarray(np.asarray(pixels)).save(root / str(label) / f"{id_}.png")
    return root


@pytest.fixture(scope="session")
def train_words(tiny_settings: list[str], digit_folder: Path) -> list[str]:
    """Arguments of `sptnet train digits` on the folder of sixty digits, without --out."""
    settings = [word for setting in [*tiny_settings, "data.source=folder"] for word in ("--set", setting)]
    return ["train", "digits", "--data", str(digit_folder), *settings]


class Answer(NamedTuple):
    """Exit code and output of a command."""

    code: Any
    out: str
    err: str

    @property
    def table(self) -> dict[str, tuple[str, ...]]:
        """Rows of the printed table by their first column."""
        rows = [line.strip("│ ").split("│") for line in self.out.splitlines() if line.startswith("│")]
        return {row[0].strip(): tuple(cell.strip() for cell in row[1:]) for row in rows}


Call = Callable[..., Answer]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command in this process, which has already imported everything."""

    def run(*words: object) -> Answer:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["sptnet", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        answer = Answer(stop.value.code, *capsys.readouterr())
        assert "Traceback" not in answer.err
        return answer

    return run


class Command:
    """A command in a forked process, which need not import anything again."""

    def __init__(self, words: list[str], output: Path, prepare: Callable[[], None]):
        self.output = output
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            self._run(words, prepare)

    def _run(self, words: list[str], prepare: Callable[[], None]) -> None:
        code: Any = 99
        try:
            file = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1)
            os.dup2(file, 2)
            sys.stdout, sys.stderr = (open(n, "w", buffering=1, closefd=False) for n in (1, 2))  # noqa: SIM115
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            os.setsid()
            torch.set_num_threads(1)  # threads of the parent do not survive a fork
            warnings.simplefilter("ignore")
            sys.argv = ["sptnet", *words]
            prepare()
            from sptnet.cli import main

            main()
        except SystemExit as leaving:
            code = leaving.code
        finally:
            os._exit(code if isinstance(code, int) else 98)

    def kill(self, with_signal: int = signal.SIGKILL) -> None:
        """Send a signal."""
        os.kill(self.pid, with_signal)

    def wait(self) -> int:
        """Wait for the end and return the exit code, minus the number of the signal if a signal ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    @property
    def said(self) -> str:
        """Output so far."""
        return self.output.read_text()


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Command]:
    """Function that starts a command; `prepare` runs first in the new process."""

    def start(words: list[str], prepare: Callable[[], None] = lambda: None) -> Command:
        return Command(words, tmp_path / "said.txt", prepare)

    return start


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of images per call of the patch embedding."""
    seen, embed = [], Backbone.embed

    def recorded(self: Backbone, images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        return embed(self, images)

    monkeypatch.setattr(Backbone, "embed", recorded)
    return seen


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Finished and stopped runs that campaigns damage."""
    from tools.campaigns.workshop import Workshop

    return Workshop(tmp_path_factory.mktemp("workshop"))
