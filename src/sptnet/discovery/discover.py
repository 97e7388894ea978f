"""Discovery from plan to finished run: the first round on a folder, and further rounds from a person's edits."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from sptnet.config import Config
from sptnet.config.recipes import Settings
from sptnet.data.load import SplitImages
from sptnet.discovery.decide import check_images, check_plan, check_request
from sptnet.discovery.pace import Pace, measure_pace
from sptnet.discovery.plan import ImageFacts, Plan, after_training, before_training, before_trial, limit_stages
from sptnet.discovery.planner import PLANNED, make_plan, with_batch_size
from sptnet.discovery.revise import LEAST_SECONDS, correction, revised_plan, slowdown, with_lengths
from sptnet.discovery.rounds import carry_names, next_round, read_round, round_files, table_text
from sptnet.discovery.settings import AUTO, change_settings, make_settings, read_images
from sptnet.discovery.trial import after_trial, can_try, without_training
from sptnet.errors import Misuse
from sptnet.model.backbone import EMBEDDED, Backbone, backbone_from, build_backbone
from sptnet.model.token_bank import banks_with_room
from sptnet.report.page.write import Report, read_for_report, write_report
from sptnet.results.run_content import DUPLICATES, UNREADABLE
from sptnet.results.run_folder import RunFolder
from sptnet.results.track import check_track
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.distributed import world
from sptnet.runtime.files import remove
from sptnet.runtime.progress import Say
from sptnet.runtime.torchrun import available_cores
from sptnet.schedules import steps_per_epoch
from sptnet.training.checkpoint import newest_checkpoint
from sptnet.training.experiment import Experiment, writing

WAYS_OUT = (
    "Ways out: connect to the network and try again; give a local weights file with `weights=FILE`; or, for small "
    f"drawings, take the backbone that comes with sptnet: `backbone={EMBEDDED}`."
)
LEAST_FIT = 0.5  # of a training that is kept from the earlier round


@dataclass(frozen=True)
class Wishes:
    """Requirements of the user; None leaves the choice to the plan."""

    method: str | None = None
    minutes: float | None = None
    given: frozenset[str] = frozenset()
    """Keys of settings that the user has chosen."""
    report: bool = True


@dataclass
class Discovery:
    """Images with a backbone and a plan."""

    plan: Plan
    images: SplitImages
    backbone: Backbone
    run: RunFolder
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts that the run contains from the start, by name."""
    wishes: Wishes = field(default_factory=Wishes)
    planned_at: float = field(default_factory=time.perf_counter)
    began: float = field(default_factory=time.perf_counter)
    """Time at which the round began, before its images were read; the limit counts from here."""

    def train(self, overwrite: bool, command: Sequence[str], tell_epoch: Say | None = None) -> Experiment:
        """Carry out the plan. Training gets the time that is left after images, features, count and trial."""
        experiment = Experiment(self.plan.config, self.run, self.images, tell_epoch=tell_epoch, backbone=self.backbone)
        experiment.began = self.began
        with writing(self.run, False, overwrite):
            experiment.begin(False, overwrite, command, self._files())
            self._note(experiment)
            self._limit(experiment, before_trial(self.plan))  # a run that is stopped in its trial keeps the limit
            if self.plan.tries:
                experiment = after_trial(experiment)
            self._revise(experiment)
            self._limit(experiment, before_training(self.plan))
            experiment.complete()
        return experiment

    def _files(self) -> dict[str, str]:
        """Return the texts that the run starts with; the list of unreadable images is one of them."""
        rows = {problem.name: problem.reason for problem in self.images.unreadable}
        return {**self.files, **({UNREADABLE: table_text(("image", "reason"), rows)} if rows else {})}

    def _note(self, experiment: Experiment) -> None:
        """Write the plan into run.json, with the limit that later rounds keep."""
        plan = {
            "minutes": self.wishes.minutes,
            "seconds": round(self.plan.seconds),
            "reasons": list(self.plan.reasons),
            "tries": self.plan.tries,
        }
        experiment.state.world.do_first(lambda: self.run.write_facts(self.run.facts() | {"plan": plan}))
        if self.images.unreadable:
            experiment.tell(f"the unreadable images are listed in {self.run.path / UNREADABLE}")
        if self.images.duplicates:
            experiment.tell(f"the duplicates are listed in {self.run.path / DUPLICATES}")

    def _slower(self, expected: float) -> float:
        return slowdown(expected, time.perf_counter() - self.planned_at)

    def _left(self, expected: float) -> float:
        """Seconds left for training; `expected` is the planned time of the steps that are done."""
        assert self.plan.minutes is not None
        used = time.perf_counter() - self.began
        return 60 * self.plan.minutes - used - self._slower(expected) * after_training(self.plan)

    def _limit(self, experiment: Experiment, expected: float) -> None:
        """Give the stages the time that is left."""
        if self.plan.minutes is None or not experiment.state.stages:
            return
        config = experiment.state.config
        experiment.use(world().from_first(lambda: limit_stages(self.plan, config, self._left(expected))))

    def _revise(self, experiment: Experiment) -> None:
        """Plan the lengths of the stages anew if the machine is slower or faster than measured, and say so."""
        if self.plan.minutes is None or not experiment.state.stages:
            return
        expected, after = before_training(self.plan), after_training(self.plan)

        def revise() -> tuple[Plan, float]:
            quick = time.perf_counter() - self.planned_at < LEAST_SECONDS
            slower = 1.0 if quick else self._slower(expected)
            return revised_plan(self.plan, self._left(expected), slower), slower

        plan, slower = world().from_first(revise)
        rest, left = (sum(step.seconds for step in p.steps if step.stage is not None) for p in (self.plan, plan))
        message = correction(rest + after, left + slower * after)
        if message is not None:
            experiment.tell(message)
        state, given = experiment.state, self.wishes.given
        batches = max(1, steps_per_epoch(len(self.images.split.training), state.config.training.batch_size))
        self.plan = replace(plan, config=with_lengths(plan.config, plan, batches, given))
        experiment.use(with_lengths(state.config, plan, batches, given))


def resume_round(out: Path, tell_epoch: Say | None = None) -> Experiment:
    """Finish a round that was stopped. A trial that was planned comes first, unless it is over."""
    run = RunFolder(out)
    run.check_free()
    experiment = Experiment(run.config(), run, tell_epoch=tell_epoch)
    with writing(run, resume=True):
        facts, checkpoint = world().from_first(lambda: (run.facts(), newest_checkpoint(run.checkpoints)))
        experiment.begin(resume=True)
        if experiment.state.stages and checkpoint is None and facts.get("plan", {}).get("tries"):
            if "trial" not in facts:
                experiment = after_trial(experiment)
            elif facts["trial"]["prefers_clustering"]:  # stopped just after the verdict
                experiment = without_training(experiment)
        experiment.complete(resume=True)
    return experiment


def first_round(
    out: Path, changes: Settings, wishes: Wishes, overwrite: bool = False, dry_run: bool = False
) -> Discovery:
    """Plan the discovery of a folder of images. A `dry_run` is for its plan only, whatever exists in `out`."""
    began = time.perf_counter()
    config, run = make_settings(AUTO, changes), RunFolder(out)
    check_request(config, wishes.minutes, wishes.method)
    if not dry_run:
        world().do_first(lambda: run.check_new(overwrite, config.data.folder))
    config, images = read_images(config)
    return plan_discovery(config, images, run, wishes, began=began)


def another_round(
    earlier: Path,
    out: Path,
    changes: Settings,
    wishes: Wishes,
    choose: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
) -> tuple[Discovery, int]:
    """Plan another round with the edits of an earlier run as labels; also returns the number of labels.

    Settings and the time limit stay as they were unless they are given. The method is chosen anew if `choose` or a time
    asks for it, if the earlier run had no labels, or if the method does not fit into the time. A `dry_run` is for its
    plan only, whatever exists in `out`.
    """
    began = time.perf_counter()
    if "data.labels" in changes:
        raise Misuse("another round takes its labels from the edits of the earlier run. Leave `data.labels` out.")
    if out.resolve() == earlier.resolve():
        raise Misuse(f"the new round would replace {earlier}, which it builds on. Give another `out`.")
    run, found = RunFolder(out), next_round(earlier, out)
    config = change_settings(found.config, changes)
    check_request(config, wishes.minutes, wishes.method)
    if not dry_run:
        world().do_first(lambda: run.check_new(overwrite, config.data.folder))
    images = read_round(config, found.labels)
    minutes = found.minutes if wishes.minutes is None else wishes.minutes
    anew = Wishes(wishes.method, minutes, wishes.given, wishes.report)
    keeps = wishes.method is None and wishes.minutes is None and not choose and found.had_labels
    kept = Wishes(config.method, minutes, wishes.given | PLANNED, wishes.report) if keeps else anew
    discovery = plan_discovery(config, images, run, kept, round_files(found), limited=True, began=began)
    if keeps and discovery.plan.fits < LEAST_FIT:
        discovery = plan_discovery(config, images, run, anew, round_files(found), limited=True, began=began)
    return discovery, len(found.labels)


def plan_discovery(
    config: Config,
    images: SplitImages,
    run: RunFolder,
    wishes: Wishes,
    files: Mapping[str, str] | None = None,
    limited: bool = False,
    began: float | None = None,
    pretrained: bool = True,
    pace: Pace | None = None,
) -> Discovery:
    """Build the backbone once, measure the machine with it, and plan. Several processes follow the plan of rank 0.

    `began` is the time at which the round began, from which its limit counts. Without `pretrained` weights nothing is
    downloaded, and with a given `pace` nothing is measured; such a discovery is for its plan only.
    """
    began = time.perf_counter() if began is None else began
    split, everyone = images.split, world()
    method = config.method if wishes.method is None and "method" in wishes.given else wishes.method
    check_images(config, split, wishes.minutes, method)
    check_track(config.training.track)
    training = len(split.training)
    if "training.batch_size" not in wishes.given:
        config = with_batch_size(config, training)
    compute = choose_compute(config.device, config.precision, everyone.local_rank)
    backbone = backbone_from(config, everyone, WAYS_OUT) if pretrained else empty_backbone(config, pace is None)

    banks = banks_with_room(config.views, run.path, training, backbone)
    facts = ImageFacts(
        len(images.image_set),
        training,
        len(split.labelled),
        split.n_known,
        banks,
        backbone.pixels.image_size,
        can_try(split),
    )

    def measured() -> Pace:
        alone = measure_pace(backbone, compute, images.image_set.sources, config)
        crowded = max(1.0, everyone.on_machine / available_cores()) if alone.device == "cpu" else 1.0
        return alone.shared(everyone.size / crowded)

    def planned(at: Pace) -> Plan:
        spent = time.perf_counter() - began
        return make_plan(config, facts, at, wishes.minutes, method, wishes.given, wishes.report, limited, spent)

    def plan() -> Plan:
        if pace is not None:
            return planned(pace)
        first = measured()
        found = planned(first)
        # Something else may have kept the cores busy for a moment, so that too much is left out for want of time.
        return planned(first.quickest(measured())) if found.short_of_time else found

    found = everyone.from_first(plan)
    check_plan(found.config, split, backbone)
    return Discovery(found, images, backbone, run, files or {}, wishes, began=began)


def empty_backbone(config: Config, computes: bool) -> Backbone:
    """Build the backbone of the settings with random weights, or without memory for them unless it `computes`."""
    settings = config.backbone
    with torch.device("cpu" if computes else "meta"):
        return build_backbone(settings.name, None, settings.image_size, pretrained=False, reading=config.reading)


def finish(run: Path, experiment: Experiment, page: bool = True) -> Report:
    """Remove the token bank of a finished run, carry names over from the earlier round, and write the report."""
    state = experiment.state
    with RunFolder(run).lock():
        if (run / "tokens").is_dir():
            remove(run / "tokens")
        carry_names(run)
        state.drop_projection()
        report = write_report(run, model=(state.model, state.card)) if page else read_for_report(run)
        experiment.end_track(report.page)
    return report


def end_training(run: Path, experiment: Experiment) -> None:
    """Write the report of a tracked run, which is a part of its track, and close the track; nothing of another run."""
    if experiment.track is not None:
        state = experiment.state
        state.drop_projection()
        experiment.end_track(write_report(run, model=(state.model, state.card)).page)
