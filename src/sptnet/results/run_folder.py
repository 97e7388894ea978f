"""The run directory: everything a run writes, in files that a person can read.

config.toml      every setting, as resolved          metrics.jsonl    one line per epoch
run.json         versions, seed, command, data       predictions.csv  one row per image
split.json       which images are labelled           checkpoints/     to resume from
estimate.json    of n_categories = "auto"            tokens/          the token bank, if any
features.safetensors  of every image                 edits.jsonl      a person's changes
report.html      the page of `sptnet report`
counts/          the images in other numbers of categories
track/           for TensorBoard or Weights & Biases
labels.csv, earlier.csv  of another round: its labels, and the categories of the earlier run
model/           the finished model                  model-<stage>/   the model at the end of an earlier stage
"""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sptnet.config import Config
from sptnet.config.recipes import read_config, to_toml
from sptnet.errors import Failure, Misuse
from sptnet.runtime.files import check_new_folder, check_outside, write_text_atomically

EDITS, COUNTS, TRACK = "edits.jsonl", "counts", "track"
OWN = (
    *("config.toml*", "run.json*", "metrics.jsonl*", "split.json*", "predictions.csv*", "estimate.json*"),
    *("labels.csv*", "earlier.csv*"),
    *("features.safetensors*", "report.html*"),
    *("checkpoints", "categories", COUNTS, "model", "model.*", "model-*", "best-*", "tokens", TRACK),
)


class RunFolder:
    """Paths of a run directory, with readers and writers of its small files."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    config_file = property(lambda self: self.path / "config.toml")
    metrics_file = property(lambda self: self.path / "metrics.jsonl")
    facts_file = property(lambda self: self.path / "run.json")
    split_file = property(lambda self: self.path / "split.json")
    predictions_file = property(lambda self: self.path / "predictions.csv")
    estimate_file = property(lambda self: self.path / "estimate.json")
    checkpoints = property(lambda self: self.path / "checkpoints")
    model = property(lambda self: self.path / "model")

    def write_estimate(self, estimate: dict[str, Any]) -> None:
        """Write the estimated number of categories, its interval and its curve."""
        write_text_atomically(self.estimate_file, json.dumps(finite(estimate), indent=1) + "\n")

    def plausible_counts(self) -> tuple[int, int] | None:
        """Read the lowest and highest plausible number of categories; None if the number was given."""
        if not self.estimate_file.is_file():
            return None
        try:
            low, high = json.loads(self.estimate_file.read_text(encoding="utf-8"))["interval"]
            return int(low), int(high)
        except (ValueError, KeyError, TypeError) as error:
            raise Failure(f"{self.estimate_file} is damaged ({error!r}). Delete it to go on without it.") from error

    def model_of_stage(self, stage: str) -> Path:
        """Path of the model at the end of a stage before the last."""
        return self.path / f"model-{stage}"

    @property
    def is_run(self) -> bool:
        """True if the folder has the settings of a run."""
        return bool(self.config_file.is_file())

    def check_place(self, data_folder: str | None) -> None:
        """Refuse a folder among the images that the run reads."""
        check_outside(self.path, "out", {"the data folder": data_folder})

    def check_new(self, overwrite: bool = False, data_folder: str | None = None) -> None:
        """Refuse a folder where no new run may be written; only a run may be replaced, and only when asked."""
        self.check_place(data_folder)
        inside = sorted(self.path.iterdir()) if self.path.is_dir() else []
        strangers = [p.name for p in inside if not self.is_run or not (any(map(p.match, OWN)) or _only_carried(p))]
        check_new_folder(self.path, "a run", strangers, overwrite=overwrite, resume="Go on with `resume=True`, ")
        if inside:
            self.config()  # a config.toml of something else is not for us to delete

    def create(self, config: Config, overwrite: bool = False, files: Mapping[str, str] | None = None) -> None:
        """Start a new run with its settings and `files`, texts by name."""
        self.check_new(overwrite)
        if self.path.is_dir():
            for entry in self.path.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.path.mkdir(parents=True, exist_ok=True)
        for name, text in (files or {}).items():
            write_text_atomically(self.path / name, text)
        self.write_config(config)

    def write_config(self, config: Config) -> None:
        """Write every setting, as resolved."""
        write_text_atomically(self.config_file, to_toml(config))

    def config(self) -> Config:
        """Read the settings of the run."""
        if not self.is_run:
            raise Misuse(f"{self.path} is not a run: it has no config.toml. Give the folder of a run.")
        return read_config(self.config_file)

    def write_facts(self, facts: dict[str, Any]) -> None:
        """Write run.json."""
        write_text_atomically(self.facts_file, to_json(facts))

    def facts(self) -> dict[str, Any]:
        """Read run.json; empty if there is none."""
        if not self.facts_file.is_file():
            return {}
        try:
            facts: dict[str, Any] = json.loads(self.facts_file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise Failure(f"{self.facts_file} is damaged ({error}). Delete it to go on without it.") from error
        return facts

    def add_metrics(self, line: dict[str, Any]) -> None:
        """Append the line of an epoch to metrics.jsonl."""
        with self.metrics_file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(finite(line)) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Read all complete lines of metrics.jsonl; the last may have been cut by a kill."""
        if not self.metrics_file.is_file():
            return []
        text = self.metrics_file.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in whole.splitlines()]

    def forget_metrics_after(self, stage: int, epoch: int) -> None:
        """Drop the lines of epochs that a resumed run trains again."""
        kept = [m for m in self.metrics() if (m["stage_number"], m["epoch"]) <= (stage, epoch)]
        write_text_atomically(self.metrics_file, "".join(json.dumps(line) + "\n" for line in kept))


def _only_carried(file: Path) -> bool:
    """Return True for a log of edits that holds no edit of a person, only names from the earlier round."""
    if file.name != EDITS:
        return False
    try:
        lines = file.read_text(encoding="utf-8", errors="surrogatepass").split("\n")
        return all(json.loads(line)["verb"] == "carry" for line in lines if line)
    except (ValueError, KeyError, TypeError):
        return False  # damaged, so it may be a person's work


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
