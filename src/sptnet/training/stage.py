"""One stage of a run: train, score and save a checkpoint, epoch by epoch."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sptnet.model.prompt_pictures import prompt_pictures
from sptnet.results.run_folder import RunFolder
from sptnet.results.scores import format_scores
from sptnet.results.track import RunTrack
from sptnet.runtime.progress import Say, bar
from sptnet.training.batching.batches import TrainingData
from sptnet.training.checkpoint import (
    Checkpoint,
    best_checkpoint,
    check_frozen,
    frozen_digest,
    load_checkpoint,
    save_checkpoint,
    write_checkpoint,
)
from sptnet.training.deadline import ANNEALED_SHARE, Ending
from sptnet.training.epoch_report import EpochReport
from sptnet.training.run_state import RunState
from sptnet.training.trainer import StageTrainer

WORTH_TELLING = 0.1  # share of an epoch's time spent waiting for images


class Stage:
    """A stage of a run; `run()` trains what is left of it and writes its model into the run directory."""

    def __init__(self, state: RunState, folder: RunFolder, number: int, tell_epoch: Say, track: RunTrack | None = None):
        self.state, self.folder, self.number, self.tell_epoch, self.track = state, folder, number, tell_epoch, track
        self.plan, self.selects = state.stages[number], state.config.training.select == "best-old-holdout"
        self.best: tuple[float, int] | None = None
        """Best accuracy on held-out images and its epoch, if the best epoch is selected."""
        self.trained_parameters = 0

    def run(self, checkpoint: Checkpoint | None, check_interrupt: Callable[[], None]) -> None:
        """Train from the checkpoint on, or from the start."""
        state, folder, number = self.state, self.folder, self.number
        if number > 0 and checkpoint is not None:
            state.load(folder.model_of_stage(state.stages[number - 1].name))
        state.begin_stage(self.plan)
        state.open_bank(folder.path)
        trainer = self.trainer()
        if self.plan.decides == "teacher" and trainer.teacher is not None:
            state.decider = trainer.teacher.model
        self.trained_parameters = sum(p.numel() for group in trainer.optimisers for p in state.model.group(group))
        frozen = frozen_digest(state.model, set(trainer.trained_names()))
        state.features.forget()
        if checkpoint is not None:
            check_frozen(checkpoint, frozen)
            trainer.restore(checkpoint)
            best = checkpoint.facts.get("best")
            self.best = tuple(best) if best else None
        due = True
        for report in epochs_with_bar(trainer, check_interrupt):
            state.features.forget()
            state.check_weights()
            line = self._line(report, trainer.finished)
            self._keep_best(line, trainer)
            state.world.do_first(partial(self._keep, line, trainer.checkpoint(frozen=frozen, best=self.best)))
            self.tell_epoch(in_words(line, self.plan.epochs))
            due = False
        ending = trainer.ending
        if self.selects:
            self._return_to_best(trainer)
        if self.selects or due:  # due: the run was stopped just here
            if state.is_last(number):
                state.compute_all_features()
            state.cluster()
        state.settle_decider()
        state.save(folder.model if state.is_last(number) else folder.model_of_stage(self.plan.name))
        self._record(ending)

    def trainer(self) -> StageTrainer:
        """Build the trainer of the stage with the present model."""
        state, training = self.state, self.state.config.training
        features = state.features
        state.model.backbone.checkpointing = training.checkpointing
        return StageTrainer(
            state.model,
            self.plan,
            TrainingData.of(state.images, features.store, features.maker),
            state.compute,
            stage=self.number,
            batch_size=training.batch_size,
            seed=state.config.seed,
            workers=features.workers,
            bank=state.bank,
            world=state.world,
            accumulate=training.accumulate,
            n_known=state.images.split.n_known,
            look=state.look,
        )

    def _line(self, report: EpochReport, last: bool) -> dict[str, Any]:
        """Metrics of an epoch: the trainer's report, and scores if they are due."""
        state, split = self.state, self.state.images.split
        line: dict[str, Any] = {"stage": self.plan.name, "stage_number": self.number, **vars(report)}
        scores_now = last or report.epoch % state.config.training.evaluate_every == 0
        if last and state.is_last(self.number) and not self.selects:
            state.compute_all_features()  # all that follows the training needs them
        elif scores_now and state.sorts_by != "no":
            state.look(split.training)  # for clustering and scores alike
        if scores_now or len(split.holdout):
            state.cluster()
        if scores_now:
            scored = np.concatenate([split.unlabelled, split.test])
            truth = bool((split.target[scored] >= 0).any())
            line["scores"] = state.scores(state.outputs(scored).categories, scored) if truth else {}
        if len(split.holdout):
            predicted = state.outputs(split.holdout).categories
            line["old_holdout"] = float((predicted == split.target[split.holdout]).mean())
        return line

    def _keep(self, line: dict[str, Any], checkpoint: Checkpoint) -> None:
        self.folder.add_metrics(line)
        save_checkpoint(self.folder.checkpoints, checkpoint)
        if self.track is not None:  # after the checkpoint: an epoch in the track is never trained again
            model = self.state.deciding
            self.track.add_epoch(line, lambda: {f"prompts/{p.title}": p.png for p in prompt_pictures(model)})

    def _keep_best(self, line: dict[str, Any], trainer: StageTrainer) -> None:
        """Keep the state of the stage if its accuracy on held-out labelled images is the best so far."""
        if self.selects and (self.best is None or line["old_holdout"] > self.best[0]):
            self.best = (line["old_holdout"], line["epoch"])
            self.state.world.do_first(lambda: write_checkpoint(self._best_file, trainer.checkpoint()))

    def _return_to_best(self, trainer: StageTrainer) -> None:
        """Put the best epoch back: weights with projections, mean teacher and memory, which a later stage may need."""
        if self._best_file.is_file():
            trainer.restore(load_checkpoint(self._best_file))
            self.state.features.forget()
        else:
            self.state.load(self.folder.path / f"best-{self.plan.name}")  # begun by version 0.2.0 or earlier

    def _record(self, ending: Ending | None) -> None:
        """Write the number of steps that a time limit allowed into the settings, so that the run can be repeated."""
        if ending is not None and self.plan.limit.steps is None:
            steps = {"max_steps": ending.steps, "anneal_steps": ending.steps - ending.anneal_from}
            self.state.config = self.state.config.changed(**{self.plan.name: steps})
            self.state.world.do_first(lambda: self.folder.write_config(self.state.config))

    @property
    def _best_file(self) -> Path:
        return best_checkpoint(self.folder.checkpoints, self.number)


def in_words(line: dict[str, Any], epochs: int) -> str:
    """Metrics of an epoch as text; time spent waiting for images is mentioned if it matters."""
    losses = ", ".join(f"{phase} {parts['total']:.3f}" for phase, parts in line["losses"].items())
    waiting = f", {line['waiting']:.0%} waiting for images" if line["waiting"] >= WORTH_TELLING else ""
    numbers = "".join(f", {name} {value:.4g}" for name, value in line.get("memory", {}).items())
    scores = line.get("scores", {}).get("unlabelled")
    return (
        f"{line['stage']} epoch {line['epoch']}/{epochs}  loss {losses}{numbers}  "
        f"{line['images_per_second']:.0f} images/s{waiting}{f'  {format_scores(scores)}' if scores else ''}"
    )


def share_done(trainer: StageTrainer) -> float:
    """Share of a stage that is over: of its steps, or of its time if the limit comes first."""
    ending, deadline = trainer.ending, trainer.deadline
    if ending is None:
        steps = trainer.steps_done / trainer.planned_steps
        return steps if deadline is None else min(1.0, max(steps, deadline.used / deadline.seconds))
    if deadline is None:
        return min(1.0, trainer.steps_done / ending.steps)
    left = (ending.steps - trainer.steps_done) / (ending.steps - ending.anneal_from)
    return 1 - ANNEALED_SHARE * max(0.0, left)


def epochs_with_bar(
    trainer: StageTrainer, check_interrupt: Callable[[], None], what: str | None = None
) -> Iterator[EpochReport]:
    """Train epoch by epoch under a progress bar; the last report is yielded after the bar has closed."""
    report: EpochReport | None = None
    with bar(what or trainer.plan.name, 1.0) as update:

        def on_step(done: int, total: int) -> None:
            update(share_done(trainer))
            check_interrupt()

        while not trainer.finished:
            if report is not None:
                yield report
            report = trainer.run_epoch(on_step)
    if report is not None:
        yield report
