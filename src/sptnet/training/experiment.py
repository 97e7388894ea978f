"""One run from settings to a finished run directory: prepare, train stage by stage, score, write."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.data.split_file import write_split
from sptnet.errors import SptnetError
from sptnet.inference.assess import assess
from sptnet.inference.features import Outputs
from sptnet.model.backbone import Backbone
from sptnet.model.model_folder import update_card
from sptnet.results.assessment import Assessment
from sptnet.results.contact_sheets import write_contact_sheets
from sptnet.results.counts import keep_counts
from sptnet.results.duplicates import write_duplicates
from sptnet.results.predictions import FEATURES, final_categories, write_features, write_predictions
from sptnet.results.run_folder import RunFolder
from sptnet.results.track import RunTrack
from sptnet.runtime.disk import NotWritten
from sptnet.runtime.distributed import world
from sptnet.runtime.interrupt import noted_interrupts
from sptnet.runtime.progress import Say, duration, say
from sptnet.runtime.seeds import seed_of
from sptnet.training.checkpoint import Checkpoint, check_stage, load_checkpoint, newest_checkpoint
from sptnet.training.prepare import prepare
from sptnet.training.run_facts import finished_facts, starting_facts
from sptnet.training.stage import Stage


class Experiment:
    """A run in progress; `run()` trains, scores and writes the results."""

    outputs_of_all: Outputs
    """Features and logits of all images by the finished model; set by `run`."""
    trained_parameters = 0
    """Number of parameters that the last stage trained."""
    track: RunTrack | None = None
    """Track of the run, on rank 0 from the start of training until `end_track`, if the settings ask for one."""

    def __init__(
        self,
        config: Config,
        run: RunFolder,
        images: SplitImages | None = None,
        tell: Say = say,
        tell_epoch: Say | None = None,
        backbone: Backbone | None = None,
        features: Float[Tensor, "n dim"] | None = None,
    ):
        self.run_folder, self.tell, self.tell_epoch = run, tell, tell_epoch or tell
        self.began = time.perf_counter()
        self.state = prepare(config, run, images, backbone, tell, features)

    def use(self, config: Config) -> None:
        """Replace the settings of a run that has begun, before the first step."""
        self.state.config, self.state.stages = config, self.state.method.stages(config)
        self.state.world.do_first(lambda: self.run_folder.write_config(config))

    def run(
        self,
        resume: bool = False,
        overwrite: bool = False,
        command: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Train what is left to train and return the scores; `files` are texts that a new run starts with."""
        with writing(self.run_folder, resume, overwrite):
            self.begin(resume, overwrite, command, files)
            return self.complete(resume)

    def begin(
        self,
        resume: bool = False,
        overwrite: bool = False,
        command: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Write the first files of the run, inside `writing`."""
        self.state.world.do_first(lambda: self._begin(resume, overwrite, command, files))

    def complete(self, resume: bool = False) -> dict[str, Any]:
        """Train what is left to train of a run that has begun, and return the scores.

        The track of the run is left open for the report; `end_track` closes it.
        """
        self.state.world.do_first(self._open_track)
        try:
            return self._complete(resume)
        except BaseException:
            self.end_track()
            raise

    def end_track(self, page: Path | None = None) -> None:
        """Add the report page to the track, if there are both, and close the track."""
        if self.track is not None:
            if page is not None:
                self.track.add_report(page)
            self.track.close()
            self.track = None

    def _open_track(self) -> None:
        kind = self.state.config.training.track
        if kind != "none":
            self.track = RunTrack(kind, self.run_folder)
            self.tell(f"tracking with {kind} in {self.track.folder}")

    def _complete(self, resume: bool) -> dict[str, Any]:
        state, selected = self.state, None
        checkpoint = self._resume_point() if resume else None
        with noted_interrupts() as check_interrupt:
            for number in range(len(state.stages)):
                if checkpoint is None or checkpoint.stage <= number:
                    stage = Stage(state, self.run_folder, number, self.tell_epoch, self.track)
                    stage.run(checkpoint, check_interrupt)
                    self.trained_parameters, selected = stage.trained_parameters, stage.best
                    checkpoint = None
        if not state.stages:
            if state.config.views.bank_at_end:
                state.open_bank(self.run_folder.path)
            state.compute_all_features()
            state.cluster()
            state.save(self.run_folder.model)
        return self._finish(selected[1] if selected else None, time.perf_counter() - self.began)

    def _begin(self, resume: bool, overwrite: bool, command: Sequence[str], files: Mapping[str, str] | None) -> None:
        """Write the first files of a run; for a resumed one the missing ones, and drop metrics of unsaved epochs."""
        folder, state = self.run_folder, self.state
        earlier = folder.facts() if resume else {}
        earlier.pop("reason", None)  # of an earlier failure
        facts = starting_facts(
            earlier,
            command,
            state.config,
            state.compute,
            state.images,
            state.fingerprint,
            folder.metrics() if resume else (),
            time.perf_counter() - self.began,
        )
        if resume:
            folder.recover()
            path = newest_checkpoint(folder.checkpoints)
            folder.forget_metrics_after(*((-1, 0) if path is None else load_checkpoint(path).reached))
        else:
            folder.create(state.config, overwrite, files)
            if state.estimate is not None:
                folder.write_estimate(asdict(state.estimate))
        if not folder.split_file.is_file():  # the rule that draws it is in the settings, so a resume can write it too
            write_split(state.images.split, state.images.image_set, folder.split_file)
        if state.config.data.skip_duplicates and not folder.duplicates_file.is_file():
            write_duplicates(folder.duplicates_file, state.images.duplicates)
        folder.write_facts(facts)

    def _resume_point(self) -> Checkpoint | None:
        path = newest_checkpoint(self.run_folder.checkpoints)
        if path is None and not self.state.stages:
            return None
        if path is None:
            self.tell(f"{self.run_folder.path} has no checkpoint yet: starting from the beginning")
            return None
        self.tell(f"going on from {path.name}")
        checkpoint = load_checkpoint(path)
        check_stage(checkpoint, len(self.state.stages))
        return checkpoint

    def _finish(self, selected_epoch: int | None, seconds: float) -> dict[str, Any]:
        """Write predictions and pictures of all images; returns the final scores."""
        state, everything = self.state, np.arange(len(self.state.images.image_set))
        state.compute_all_features()
        self.outputs_of_all = outputs = state.outputs(everything)
        frozen = state.frozen if state.stages else outputs.features
        seed = seed_of(state.config.seed, "certainty") % 2**32
        split, trained = state.images.split, bool(state.stages)
        assessment = state.world.from_first(lambda: assess(outputs, split, state.names, frozen, seed, trained))
        state.calibrator = assessment.calibrator
        scores = state.scores(assessment.guess, everything)
        state.world.do_first(lambda: self._write_results(assessment, scores, selected_epoch, seconds))
        self.tell(f"finished in {duration(seconds)}: {self.run_folder.path}")
        return scores

    def _write_results(
        self, assessment: Assessment, scores: dict[str, Any], selected_epoch: int | None, seconds: float
    ) -> None:
        """Write the files of a finished run; run.json comes last, so that a run killed before is resumed."""
        folder, state, outputs = self.run_folder, self.state, self.outputs_of_all
        image_set, names = state.images.image_set, state.names
        if assessment.calibrator is not None:
            update_card(folder.model, state.card)
        write_predictions(folder.predictions_file, image_set, state.images.split, names, assessment)
        write_features(folder.path / FEATURES, outputs.features.float().numpy())
        keep_counts(folder, state.images.split, len(names), state.config.seed)
        categories = final_categories(state.images.split, assessment.guess)
        agreed = np.where(categories == assessment.guess, assessment.certainty, 0)  # contradicted labels come last
        write_contact_sheets(folder.path / "categories", image_set, names, categories, agreed)
        facts = folder.facts()
        facts.pop("expected_accuracy_reason", None)  # of an earlier end of this run
        facts.update(status="finished", scores=scores, **assessment.facts(), **finished_facts(facts, seconds))
        if selected_epoch is not None:
            facts["selected_epoch"] = selected_epoch
        folder.write_facts(facts)
        if self.track is not None:
            self.track.add_scores(scores)


@contextmanager
def writing(run: RunFolder, resume: bool = False, overwrite: bool = False) -> Iterator[None]:
    """Lock a run while this process or its job writes it; run.json says afterwards how it ended.

    Rank 0 locks for all ranks. A full disk raises an error that says how to resume.
    """
    everyone = world()
    with ExitStack() as stack:

        def lock() -> None:
            if not resume:
                run.check_new(overwrite)
            stack.enter_context(run.lock())

        everyone.do_first(lock)
        try:
            with noted_interrupts():  # the end of a worker by a signal is a stop, not a failure
                yield
        except BaseException as error:
            if everyone.is_first:
                _write_end(run, error)
            if isinstance(error, NotWritten) and run.is_run:
                then = "go on with `resume=True`; whole epochs are kept"
                raise NotWritten(error.path, error.number, then) from error
            raise


def _write_end(run: RunFolder, error: BaseException) -> None:
    """Write into run.json that the run failed or was stopped; a line says so if even that fails."""
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    try:
        if isinstance(error, Exception):
            run.write_end("failed", reason)
        else:
            run.write_end("stopped")
    except (SptnetError, OSError) as problem:
        say(f"{run.facts_file} does not say that the run has ended ({problem})")


def train(
    config: Config, out: str | Path, *, resume: bool = False, overwrite: bool = False, command: Sequence[str] = ()
) -> dict[str, Any]:
    """Train as configured into `out`; returns the scores by set of images."""
    run = RunFolder(out)
    if not resume:
        run.check_new(overwrite)
    experiment = Experiment(config, run)
    scores = experiment.run(resume, overwrite, command or sys.argv)
    experiment.end_track()
    return scores
