"""The track of a run for TensorBoard or Weights & Biases: metrics per epoch, prompts as pictures, scores, the report.

A track is written into the folder `track` of the run, beside the run's own files, and changes none of them.
`track/<kind>.json` counts the epochs in it, so that a resumed run adds each epoch once.
"""

import io
import json
import math
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
from PIL import Image
from pydantic import Field

from sptnet.config.recipes import to_toml
from sptnet.errors import Failure, Misuse
from sptnet.results.run_content import TRACK
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.files import write_text_atomically
from sptnet.runtime.readers import FileShape, read_json

Pictures = Mapping[str, bytes]
"""PNG files by title."""


class Tracker(Protocol):
    """Writer of a track."""

    def add_epoch(self, step: int, scalars: Mapping[str, float], pictures: Pictures) -> None:
        """Add the metrics of an epoch, by name, and pictures; steps increase."""

    def add_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Add the scores of the finished run after its last step."""

    def add_report(self, step: int, page: Path) -> None:
        """Add the report page of the finished run."""

    def close(self) -> None:
        """Write what is left to write."""


class TensorBoardTracker:
    """Event files for TensorBoard in `folder`/tensorboard."""

    def __init__(self, folder: Path, name: str, id_: str, epochs: int, settings: Mapping[str, Any], text: str):
        from torch.utils.tensorboard import SummaryWriter

        # Whatever a killed run wrote after the last epoch that was counted is hidden.
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=epochs + 1 if epochs else None)
        if not epochs:
            self.writer.add_text("settings", "\n".join(f"    {line}" for line in text.splitlines()), 0)

    def add_epoch(self, step: int, scalars: Mapping[str, float], pictures: Pictures) -> None:
        """Add the metrics of an epoch, by name, and pictures; steps increase."""
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, step)
        for title, png in pictures.items():
            self.writer.add_image(title, np.asarray(_picture(png)), step, dataformats="HWC")
        self.writer.flush()

    def add_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Add the scores of the finished run after its last step."""
        self.add_epoch(step, scores, {})

    def add_report(self, step: int, page: Path) -> None:
        """Say where the report page is, since TensorBoard holds no files."""
        self.writer.add_text("report", f"The report of this run is `{page.absolute().as_uri()}`.", step)
        self.writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self.writer.close()


class WandbTracker:
    """Run of Weights & Biases in `folder`/wandb; offline unless the variable WANDB_MODE says otherwise."""

    def __init__(self, folder: Path, name: str, id_: str, epochs: int, settings: Mapping[str, Any], text: str):
        import wandb

        self.wandb, self.folder = wandb, folder
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        try:
            self.run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "sptnet"),
                name=name,
                id=id_,
                dir=str(folder),
                mode=mode,
                resume="allow" if epochs else None,
                config=dict(settings),
                settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
            )
        except wandb.Error as error:
            raise Failure(
                f"Weights & Biases cannot begin ({error}). Track without a network by leaving WANDB_MODE unset."
            ) from error

    def add_epoch(self, step: int, scalars: Mapping[str, float], pictures: Pictures) -> None:
        """Add the metrics of an epoch, by name, and pictures; steps increase."""
        images = {title: self.wandb.Image(_picture(png)) for title, png in pictures.items()}
        self.run.log({**scalars, **images}, step=step, commit=True)

    def add_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Add the scores of the finished run to its summary."""
        self.run.summary.update(dict(scores))

    def add_report(self, step: int, page: Path) -> None:
        """Add a copy of the report page as an artefact of type report; the page itself may be written again."""
        copy = self.folder / "wandb" / page.name
        shutil.copyfile(page, copy)
        artefact = self.wandb.Artifact(f"report-{self.run.id}", type="report")
        artefact.add_file(str(copy), policy="immutable", skip_cache=True)
        self.run.log_artifact(artefact)

    def close(self) -> None:
        """End the run of Weights & Biases."""
        self.run.finish()


TRACKERS: dict[str, Callable[[Path, str, str, int, Mapping[str, Any], str], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
}
"""Kinds of tracks; each is the package that it needs and the extra that installs it."""
WRITE_LATE = frozenset({"wandb"})
"""Kinds that keep the last epochs in memory: a process that is killed leaves gaps, so the track is written again."""


def check_track(kind: str) -> None:
    """Raise if the package of a kind of track is not installed; "none" needs none."""
    if kind in TRACKERS and find_spec(kind) is None:
        raise Misuse(
            f"tracking with {kind} needs a package of that name. Install it with: pip install 'sptnet[{kind}]', or "
            "leave `training.track` out."
        )


NOTHING: dict[str, Any] = {"epochs": 0, "scores": False, "report": False, "open": False}
"""Contents of a new track: the number of epochs, and if it has scores and report and was not closed."""


class RunTrack:
    """The track of a run in progress, a step per epoch over all stages."""

    def __init__(self, kind: str, run: RunFolder):
        """Open the track; epochs of a resumed run that are not in it yet are added."""
        check_track(kind)
        self.folder = run.path / TRACK
        self.folder.mkdir(exist_ok=True)
        self._file = self.folder / f"{kind}.json"
        self._state = {"id": uuid.uuid4().hex[:12], **NOTHING} | _read_state(self._file)
        if self._state["open"] and kind in WRITE_LATE:
            if (self.folder / kind).exists():
                shutil.rmtree(self.folder / kind)
            self._state |= NOTHING
        config = run.config()
        name, epochs = run.path.resolve().name, self._state["epochs"]
        self.tracker = TRACKERS[kind](
            self.folder, name, self._state["id"], epochs, config.model_dump(), to_toml(config)
        )
        self._keep(open=True)
        self.step = 0
        """Number of epochs that are trained."""
        for line in run.metrics():
            self.add_epoch(line)

    def add_epoch(self, line: Mapping[str, Any], pictures: Callable[[], Pictures] = dict) -> None:
        """Add the next line of metrics.jsonl, and pictures if it has scores; nothing if it is in the track already."""
        self.step += 1
        if self.step > self._state["epochs"]:
            self.tracker.add_epoch(self.step, scalars_of(line), pictures() if "scores" in line else {})
            self._keep(epochs=self.step)

    def add_scores(self, scores: Mapping[str, Any]) -> None:
        """Add the scores of the finished run, by set of images; once."""
        if not self._state["scores"]:
            self.tracker.add_scores(self.step, flattened(scores, "final"))
            self._keep(scores=True)

    def add_report(self, page: Path) -> None:
        """Add the report page; once."""
        if not self._state["report"]:
            self.tracker.add_report(self.step, page)
            self._keep(report=True)

    def close(self) -> None:
        """Close the track."""
        self.tracker.close()
        self._keep(open=False)

    def _keep(self, **changes: Any) -> None:
        self._state |= changes
        write_text_atomically(self._file, json.dumps(self._state) + "\n")


class StateShape(FileShape):
    """track/<kind>.json: what is in the track so far."""

    id: str
    epochs: Annotated[int, Field(ge=0)]
    scores: bool
    report: bool
    open: bool


def _read_state(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    state: dict[str, Any] = read_json(file, f"Delete {file.parent} to track the run anew.", StateShape)
    return state


def scalars_of(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers in a line of metrics.jsonl by name, such as loss/simgcd/raw/total or score/test/all."""
    stage = line["stage"]
    scalars = flattened(line["losses"], f"loss/{stage}")
    scalars |= flattened(line.get("learning_rates", {}), f"learning_rate/{stage}")
    scalars |= flattened(line.get("memory", {}), f"memory/{stage}")
    scalars |= flattened(line.get("scores", {}), "score")
    others = {"score/old_holdout": "old_holdout", "speed/images_per_second": "images_per_second"}
    return scalars | {name: float(line[key]) for name, key in others.items() if line.get(key) is not None}


def flattened(values: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Return the numbers of nested dicts by their joined keys; without missing, infinite and undefined ones."""
    flat: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}/{key}")
        elif value is not None and math.isfinite(value):
            flat[f"{prefix}/{key}"] = float(value)
    return flat


def _picture(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")
