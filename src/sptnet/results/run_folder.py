"""The run directory: everything a run writes, in files that a person can read.

config.toml      every setting, as resolved          metrics.jsonl    one line per epoch
run.json         versions, seed, command, data       predictions.csv  one row per image
split.json       which images are labelled           checkpoints/     to resume from; the best epoch, if selected
estimate.json    of n_categories = "auto"            tokens/          the token bank, if any
features.safetensors  of every image                 edits.jsonl      a person's changes
report.html      the page of `sptnet report`
counts/          the images in other numbers of categories
track/           for TensorBoard or Weights & Biases
labels.csv, earlier.csv  of another round: its labels, and the categories of the earlier run
unreadable.csv   images that a discovery skipped, with the reason
duplicates.csv   of `data.skip_duplicates`: duplicates, and which ones were left out
model/           the finished model                  model-<stage>/   the model at the end of an earlier stage
.sptnet-run      marks the folder as a run           .lock            while a process writes the run
.edits.lock      while an edit is added
"""

import json
import math
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sptnet.config import Config
from sptnet.config.recipes import read_config, to_toml
from sptnet.errors import Misuse
from sptnet.results.file_shapes import FactsShape, IntervalShape, MetricsShape
from sptnet.results.run_content import (
    CONFIG,
    DUPLICATES,
    EDITS,
    EDITS_LOCK,
    FACTS,
    FILES,
    LOCK,
    MARKER,
    MARKER_TEXT,
    MODELS,
    has_marker,
    is_bookkeeping,
    strangers,
    strangers_at,
)
from sptnet.runtime.files import (
    append_line,
    check_new_folder,
    check_outside,
    make_folder,
    remove,
    sweep,
    write_text_atomically,
)
from sptnet.runtime.locks import check_free, hold
from sptnet.runtime.readers import check_shape, read_json, read_json_lines

WITHOUT_IT = "Delete it to go on without it."
SECONDS_FOR_AN_EDIT = 60.0


class RunFolder:
    """Paths of a run directory, with readers and writers of its small files."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    config_file = property(lambda self: self.path / CONFIG)
    metrics_file = property(lambda self: self.path / "metrics.jsonl")
    facts_file = property(lambda self: self.path / FACTS)
    split_file = property(lambda self: self.path / "split.json")
    predictions_file = property(lambda self: self.path / "predictions.csv")
    estimate_file = property(lambda self: self.path / "estimate.json")
    duplicates_file = property(lambda self: self.path / DUPLICATES)
    checkpoints = property(lambda self: self.path / "checkpoints")
    model = property(lambda self: self.path / "model")

    def write_estimate(self, estimate: dict[str, Any]) -> None:
        """Write the estimated number of categories, its interval and its curve."""
        write_text_atomically(self.estimate_file, json.dumps(finite(estimate), indent=1) + "\n")

    def plausible_counts(self) -> tuple[int, int] | None:
        """Read the lowest and highest plausible number of categories; None if the number was given."""
        if not self.estimate_file.is_file():
            return None
        low, high = read_json(self.estimate_file, WITHOUT_IT, IntervalShape)["interval"]
        return low, high

    def model_of_stage(self, stage: str) -> Path:
        """Path of the model at the end of a stage before the last."""
        return self.path / f"model-{stage}"

    @property
    def is_run(self) -> bool:
        """True if the folder has the settings of a run."""
        return bool(self.config_file.is_file()) and self.config_file.stat().st_size > 0

    def check_place(self, data_folder: str | None) -> None:
        """Refuse a folder among the images that the run reads."""
        check_outside(self.path, "out", {"the data folder": data_folder})

    def check_new(self, overwrite: bool = False, data_folder: str | None = None) -> None:
        """Refuse a folder where no new run may be written; only a run may be replaced, and only when asked."""
        self.check_place(data_folder)
        self.check_free()
        self._check_content(overwrite)

    def _check_content(self, overwrite: bool) -> None:
        is_folder = self.path.is_dir() and not self.path.is_symlink()
        if is_folder and all(map(is_bookkeeping, self.path.iterdir())):
            return  # new, or stopped before its first file
        names = strangers(self.path) if is_folder else []
        check_new_folder(self.path, "a run", names, overwrite=overwrite, resume="Go on with `resume=True`, ")

    def check_free(self) -> None:
        """Raise if another process is writing the run."""
        check_free(self.path / LOCK, f"the run {self.path}")

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes from writing the run, whose folder is created if it is missing."""
        make_folder(self.path)
        return hold(self.path / LOCK, f"the run {self.path}")

    def lock_edits(self) -> AbstractContextManager[None]:
        """Keep other processes from adding an edit; wait for one that is doing so."""
        return hold(self.path / EDITS_LOCK, str(self.path / EDITS), wait=SECONDS_FOR_AN_EDIT)

    def create(self, config: Config, overwrite: bool = False, files: Mapping[str, str] | None = None) -> None:
        """Start a new run with its settings and `files`, texts by name.

        The marker comes first, and settings that are replaced go first: a folder with the marker alone has not begun.
        """
        self._check_content(overwrite)
        make_folder(self.path)
        self.mark()
        if self.config_file.is_symlink() or self.config_file.exists():
            remove(self.config_file)
        for entry in sorted(self.path.iterdir()):
            if entry.name not in (MARKER, LOCK):
                remove(entry)
        for name, text in (files or {}).items():
            write_text_atomically(self.path / name, text)
        self.write_config(config)

    def mark(self) -> None:
        """Mark the folder as a run."""
        if not has_marker(self.path):
            write_text_atomically(self.path / MARKER, MARKER_TEXT)

    def recover(self) -> None:
        """Put right what a killed process left, before the run is resumed.

        Unfinished files are removed, and a model that was being replaced is put back. Names without a random part are
        those of version 0.1.0.
        """
        self.mark()
        sweep(self.path)
        sweep(self.checkpoints)
        for model in (self.path / name for name in MODELS):
            aside = model.with_name(f"{model.name}.old")
            if aside.is_dir() and not model.exists():
                aside.rename(model)
        left = [self.path / f"{name}{end}" for name in (*FILES, *MODELS) for end in (".part", ".old")]
        left = [entry for entry in left if os.path.lexists(entry) and not strangers_at(entry)]
        for entry in (*left, *self.checkpoints.glob("stage*-epoch*.safetensors.part")):
            remove(entry)

    def write_config(self, config: Config) -> None:
        """Write every setting, as resolved."""
        write_text_atomically(self.config_file, to_toml(config))

    def config(self) -> Config:
        """Read the settings of the run."""
        if not self.is_run:
            if has_marker(self.path):
                raise Misuse(
                    f"the run {self.path} was stopped before its settings were written. Begin it again with "
                    "`overwrite=True`."
                )
            lacks = f"its {CONFIG} is empty" if self.config_file.is_file() else f"it has no {CONFIG}"
            raise Misuse(f"{self.path} is not a run: {lacks}. Give the folder of a run.")
        return read_config(self.config_file)

    def write_facts(self, facts: dict[str, Any]) -> None:
        """Write run.json."""
        write_text_atomically(self.facts_file, to_json(facts))

    def facts(self) -> dict[str, Any]:
        """Read run.json; empty if there is none."""
        if not self.facts_file.is_file():
            return {}
        facts: dict[str, Any] = read_json(self.facts_file, WITHOUT_IT, FactsShape, errors="surrogatepass")
        return facts

    def write_end(self, status: str, reason: str = "") -> None:
        """Write into run.json how a run ended that did not finish; nothing if it had not begun, or was finished."""
        facts = self.facts()
        if facts.get("status") == "running":
            self.write_facts(facts | {"status": status} | ({"reason": reason} if reason else {}))

    def add_metrics(self, line: dict[str, Any]) -> None:
        """Append the line of an epoch to metrics.jsonl."""
        append_line(self.metrics_file, json.dumps(finite(line)))

    def metrics(self) -> list[dict[str, Any]]:
        """Read all complete lines of metrics.jsonl; the last may have been cut by a kill."""
        if not self.metrics_file.is_file():
            return []
        return read_json_lines(self.metrics_file, "Repair or delete that line.", _parse_metrics, only_whole=True)

    def forget_metrics_after(self, stage: int, epoch: int) -> None:
        """Drop the lines of epochs that a resumed run trains again."""
        kept = [m for m in self.metrics() if (m.get("stage_number", 0), m["epoch"]) <= (stage, epoch)]
        write_text_atomically(self.metrics_file, "".join(json.dumps(line) + "\n" for line in kept))


def _parse_metrics(line: Any) -> dict[str, Any]:
    check_shape(line, MetricsShape)
    metrics: dict[str, Any] = line
    return metrics


def finite(value: Any) -> Any:
    """Replace nan and infinity by None, since JSON has neither."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(value: Any) -> str:
    """Indented JSON text without nan."""
    return json.dumps(finite(value), indent=1, ensure_ascii=False) + "\n"
