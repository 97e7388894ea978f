"""The run directory: everything a run leaves behind, in files that a person can read.

config.toml      every setting, as resolved          metrics.jsonl    one line an epoch
run.json         versions, seed, command, data       predictions.csv  one row an image
split.json       who was labelled                    checkpoints/     to resume from
estimate.json    behind n_categories = "auto"        tokens/          the token bank, if any
features.safetensors  of every image                 edits.jsonl      what a person changed
report.html      the page of `sptnet report`
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

OWN = (
    *("config.toml*", "run.json*", "metrics.jsonl*", "split.json*", "predictions.csv*", "estimate.json*"),
    "labels.csv*",
    *("features.safetensors*", "report.html*"),
    *("checkpoints", "categories", "model", "model.*", "model-*", "best-*", "tokens"),
)


class RunFolder:
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
        """Behind `n_categories = "auto"`: the number, its interval, and the curve it was read from."""
        write_text_atomically(self.estimate_file, json.dumps(finite(estimate), indent=1) + "\n")

    def model_of_stage(self, stage: str) -> Path:
        return self.path / f"model-{stage}"

    @property
    def is_run(self) -> bool:
        return bool(self.config_file.is_file())

    def check_place(self, data_folder: str | None) -> None:
        """Refuse a place among the images that the run reads."""
        check_outside(self.path, "out", {"the data folder": data_folder})

    def check_new(self, overwrite: bool = False, data_folder: str | None = None) -> None:
        """Refuse a folder where no new run may be written; only a run may be replaced, and only when asked."""
        self.check_place(data_folder)
        inside = sorted(self.path.iterdir()) if self.path.is_dir() else []
        strangers = [p.name for p in inside if not self.is_run or not any(p.match(own) for own in OWN)]
        check_new_folder(self.path, "a run", strangers, overwrite=overwrite, resume="Go on with `resume=True`, ")
        if inside:
            self.config()  # a config.toml of something else is not for us to delete

    def create(self, config: Config, overwrite: bool = False, files: Mapping[str, str] | None = None) -> None:
        """Begin a new run; `files` are texts that belong to it from the beginning, by name."""
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
        if not self.is_run:
            raise Misuse(f"{self.path} is not a run: it has no config.toml. Give the folder that --out named.")
        return read_config(self.config_file)

    def write_facts(self, facts: dict[str, Any]) -> None:
        write_text_atomically(self.facts_file, to_json(facts))

    def facts(self) -> dict[str, Any]:
        if not self.facts_file.is_file():
            return {}
        try:
            facts: dict[str, Any] = json.loads(self.facts_file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise Failure(f"{self.facts_file} is damaged ({error}). Delete it to go on without it.") from error
        return facts

    def add_metrics(self, line: dict[str, Any]) -> None:
        with self.metrics_file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(finite(line)) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All whole lines; the last may have been cut by a kill."""
        if not self.metrics_file.is_file():
            return []
        text = self.metrics_file.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in whole.splitlines()]

    def forget_metrics_after(self, stage: int, epoch: int) -> None:
        """Drops lines of epochs that a resumed run will train again."""
        kept = [m for m in self.metrics() if (m["stage_number"], m["epoch"]) <= (stage, epoch)]
        write_text_atomically(self.metrics_file, "".join(json.dumps(line) + "\n" for line in kept))


def finite(value: Any) -> Any:
    """JSON has no nan: an accuracy that does not exist becomes null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(value: Any) -> str:
    return json.dumps(finite(value), indent=1, ensure_ascii=False) + "\n"
