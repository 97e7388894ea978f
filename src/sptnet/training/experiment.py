"""One run from settings to a finished run directory: prepare, train stage by stage, score, write."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.data.split_file import write_split
from sptnet.inference.features import Outputs
from sptnet.model.backbone import Backbone
from sptnet.results.contact_sheets import write_contact_sheets
from sptnet.results.counts import keep_counts
from sptnet.results.predictions import FEATURES, write_features, write_predictions
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.interrupt import noted_interrupts
from sptnet.runtime.progress import Say, duration, say
from sptnet.training.checkpoint import Checkpoint, load_checkpoint, newest_checkpoint
from sptnet.training.prepare import prepare
from sptnet.training.run_facts import now, starting_facts
from sptnet.training.stage import Stage


class Experiment:
    """A run in progress; `run()` trains, scores and writes the results."""

    outputs_of_all: Outputs
    """Features and logits of all images by the finished model; set by `run`."""
    trained_parameters = 0
    """Number of parameters that the last stage trained."""

    def __init__(
        self,
        config: Config,
        run: RunFolder,
        images: SplitImages | None = None,
        tell: Say = say,
        tell_epoch: Say | None = None,
        backbone: Backbone | None = None,
    ):
        self.run_folder, self.tell, self.tell_epoch = run, tell, tell_epoch or tell
        self.began = time.perf_counter()
        self.state = prepare(config, run, images, backbone, tell)

    def use(self, config: Config) -> None:
        """Replace the settings before the first step."""
        self.state.config, self.state.stages = config, self.state.method.stages(config)

    def run(
        self,
        resume: bool = False,
        overwrite: bool = False,
        command: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Train what is left to train and return the scores; `files` are texts that a new run starts with."""
        state, selected = self.state, None
        state.world.do_first(lambda: self._begin(resume, overwrite, command, files))
        checkpoint = self._resume_point() if resume else None
        with noted_interrupts() as check_interrupt:
            for number in range(len(state.stages)):
                if checkpoint is None or checkpoint.stage <= number:
                    stage = Stage(state, self.run_folder, number, self.tell_epoch)
                    stage.run(checkpoint, check_interrupt)
                    self.trained_parameters, selected = stage.trained_parameters, stage.best
                    checkpoint = None
        if not state.stages:
            state.compute_all_features()
            state.cluster()
            state.save(self.run_folder.model)
        return self._finish(selected[1] if selected else None, time.perf_counter() - self.began)

    def _begin(self, resume: bool, overwrite: bool, command: Sequence[str], files: Mapping[str, str] | None) -> None:
        """Write the first files of a run; for a resumed one the missing ones, and drop metrics of unsaved epochs."""
        folder, state = self.run_folder, self.state
        earlier = folder.facts() if resume else {}
        facts = starting_facts(earlier, command, state.config, state.compute, state.images, state.fingerprint)
        if resume:
            path = newest_checkpoint(folder.checkpoints)
            folder.forget_metrics_after(*((-1, 0) if path is None else load_checkpoint(path).reached))
        else:
            folder.create(state.config, overwrite, files)
            if state.estimate is not None:
                folder.write_estimate(asdict(state.estimate))
        if not folder.split_file.is_file():  # the rule that draws it is in the settings, so a resume can write it too
            write_split(state.images.split, state.images.image_set, folder.split_file)
        folder.write_facts(facts)

    def _resume_point(self) -> Checkpoint | None:
        path = newest_checkpoint(self.run_folder.checkpoints)
        if path is None:
            self.tell(f"{self.run_folder.path} has no checkpoint yet: starting from the beginning")
            return None
        self.tell(f"going on from {path.name}")
        return load_checkpoint(path)

    def _finish(self, selected_epoch: int | None, seconds: float) -> dict[str, Any]:
        """Write predictions and pictures of all images; returns the final scores."""
        state, everything = self.state, np.arange(len(self.state.images.image_set))
        state.compute_all_features()
        self.outputs_of_all = outputs = state.outputs(everything)
        categories, certainty = outputs.categories, outputs.probabilities.max(1)
        scores = state.scores(categories, everything)
        state.world.do_first(lambda: self._write_results(categories, certainty, scores, selected_epoch, seconds))
        self.tell(f"finished in {duration(seconds)}: {self.run_folder.path}")
        return scores

    def _write_results(
        self,
        categories: npt.NDArray[np.int64],
        certainty: npt.NDArray[np.float32],
        scores: dict[str, Any],
        selected_epoch: int | None,
        seconds: float,
    ) -> None:
        folder, state, outputs = self.run_folder, self.state, self.outputs_of_all
        image_set, names = state.images.image_set, state.names
        write_predictions(folder.predictions_file, image_set, state.images.split, names, categories, certainty)
        write_features(folder.path / FEATURES, outputs.features)
        keep_counts(folder, state.images.split, len(names), state.config.seed)
        write_contact_sheets(folder.path / "categories", image_set, names, categories, certainty)
        facts = folder.facts()
        facts.update(status="finished", finished=now(), scores=scores)
        facts["seconds"] = facts.get("seconds", 0.0) + seconds
        if selected_epoch is not None:
            facts["selected_epoch"] = selected_epoch
        folder.write_facts(facts)


def train(
    config: Config, out: str | Path, *, resume: bool = False, overwrite: bool = False, command: Sequence[str] = ()
) -> dict[str, Any]:
    """Train as configured into `out`; returns the scores by set of images."""
    run = RunFolder(out)
    if not resume:
        run.check_new(overwrite)
    return Experiment(config, run).run(resume, overwrite, command or sys.argv)
