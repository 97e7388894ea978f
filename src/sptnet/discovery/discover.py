"""Discovery from plan to finished run: the first round on a folder, and further rounds from a person's edits."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sptnet.config import Config
from sptnet.config.recipes import Settings
from sptnet.data.load import SplitImages, resolve_n_categories
from sptnet.discovery.pace import measure_pace
from sptnet.discovery.plan import ImageFacts, Plan, after_training, before_training, limit_stages
from sptnet.discovery.planner import PLANNED, check_wishes, make_plan, with_batch_size
from sptnet.discovery.rounds import carry_names, next_round, read_round, round_files
from sptnet.discovery.settings import AUTO, change_settings, make_settings, read_images
from sptnet.discovery.trial import can_try, try_training
from sptnet.errors import Misuse
from sptnet.model.backbone import EMBEDDED, Backbone, backbone_from, build_backbone
from sptnet.model.token_bank import banks_with_room
from sptnet.report.page.write import Report, read_for_report, write_report
from sptnet.results.run_folder import RunFolder
from sptnet.results.track import check_track
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.distributed import world
from sptnet.runtime.progress import Say
from sptnet.runtime.torchrun import available_cores
from sptnet.training.experiment import Experiment

WAYS_OUT = (
    "Ways out: connect to the network and try again; give a local weights file with `weights=FILE`; or, for small "
    f"drawings, take the backbone that comes with sptnet: `backbone={EMBEDDED}`."
)


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
    planned_at: float = field(default_factory=time.perf_counter)

    def train(self, overwrite: bool, command: Sequence[str], tell_epoch: Say | None = None) -> Experiment:
        """Carry out the plan. Training gets the time that is left after features, count and trial."""
        experiment = Experiment(self.plan.config, self.run, self.images, tell_epoch=tell_epoch, backbone=self.backbone)
        experiment.begin(False, overwrite, command, self.files)
        self._limit(experiment)  # so that a run that is stopped in its trial keeps the limit when it is resumed
        if self.plan.tries:
            experiment = self._tried(experiment)
            self._limit(experiment)
        experiment.complete()
        return experiment

    def _limit(self, experiment: Experiment) -> None:
        """Give the stages the time that is left."""
        if self.plan.minutes is None or not experiment.state.stages:
            return
        used = time.perf_counter() - self.planned_at
        slower = min(4.0, max(0.5, used / max(before_training(self.plan), 1.0)))
        left = 60 * self.plan.minutes - used - slower * after_training(self.plan)
        experiment.use(world().from_first(lambda: limit_stages(self.plan, experiment.state.config, left)))

    def _tried(self, experiment: Experiment) -> Experiment:
        """Try the training on hidden labels; if the clustering alone is better, return an experiment that clusters."""
        state, run = experiment.state, self.run
        features = state.features.compute_all(self.backbone)
        verdict = try_training(state.config, self.images, self.backbone, features, run)
        experiment.tell(str(verdict))
        state.world.do_first(lambda: run.write_facts(run.facts() | {"trial": verdict.as_dict()}))
        if not verdict.prefers_clustering:
            return experiment
        config = state.config.changed(head={"start": "random"}).model_copy(update={"method": "sskmeans"})
        clustering = Experiment(
            config, run, self.images, experiment.tell, experiment.tell_epoch, self.backbone, features
        )
        clustering.began, clustering.state.estimate = experiment.began, state.estimate
        clustering.use(clustering.state.config)
        return clustering


def first_round(out: Path, changes: Settings, wishes: Wishes, overwrite: bool = False) -> Discovery:
    """Plan the discovery of a folder of images."""
    config, run = make_settings(AUTO, changes), RunFolder(out)
    world().do_first(lambda: run.check_new(overwrite, config.data.folder))
    config, images = read_images(config)
    return plan_discovery(config, images, run, wishes)


def another_round(
    earlier: Path, out: Path, changes: Settings, wishes: Wishes, choose: bool = False, overwrite: bool = False
) -> tuple[Discovery, int]:
    """Plan another round with the edits of an earlier run as labels; also returns the number of labels.

    Settings stay as they were unless they are given, `choose` asks for a new choice of the method, or the earlier run
    had no labels.
    """
    if "data.labels" in changes:
        raise Misuse("another round takes its labels from the edits of the earlier run. Leave `data.labels` out.")
    if out.resolve() == earlier.resolve():
        raise Misuse(f"the new round would replace {earlier}, which it builds on. Give another `out`.")
    run, found = RunFolder(out), next_round(earlier, out)
    config = change_settings(found.config, changes)
    world().do_first(lambda: run.check_new(overwrite, config.data.folder))
    images = read_round(config, found.labels)
    if wishes.method is None and wishes.minutes is None and not choose and found.had_labels:
        wishes = Wishes(config.method, None, wishes.given | PLANNED, wishes.report)
    discovery = plan_discovery(config, images, run, wishes, round_files(found), limited=True)
    return discovery, len(found.labels)


def plan_discovery(
    config: Config,
    images: SplitImages,
    run: RunFolder,
    wishes: Wishes,
    files: Mapping[str, str] | None = None,
    limited: bool = False,
    pretrained: bool = True,
) -> Discovery:
    """Build the backbone once, measure the machine with it, and plan. Several processes follow the plan of rank 0.

    Without `pretrained` weights nothing is downloaded; such a discovery is for its plan only.
    """
    split, everyone = images.split, world()
    method = config.method if wishes.method is None and "method" in wishes.given else wishes.method
    check_wishes(wishes.minutes, method, split.n_known)  # before time is spent
    check_track(config.training.track)
    if config.n_categories != "auto":
        resolve_n_categories(config.n_categories, config.category_factor, split)
    training = len(split.training)
    if "training.batch_size" not in wishes.given:
        config = with_batch_size(config, training)
    compute = choose_compute(config.device, config.precision, everyone.local_rank)
    settings = config.backbone
    backbone = (
        backbone_from(config, everyone, WAYS_OUT)
        if pretrained
        else build_backbone(settings.name, None, settings.image_size, pretrained=False, reading=config.reading)
    )

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

    def plan() -> Plan:
        alone = measure_pace(backbone, compute, images.image_set.sources, config)
        crowded = max(1.0, everyone.on_machine / available_cores()) if alone.device == "cpu" else 1.0
        pace = alone.shared(everyone.size / crowded)
        return make_plan(config, facts, pace, wishes.minutes, method, wishes.given, wishes.report, limited)

    return Discovery(everyone.from_first(plan), images, backbone, run, files or {})


def finish(run: Path, experiment: Experiment, page: bool = True) -> Report:
    """Remove the token bank of a finished run, carry names over from the earlier round, and write the report."""
    if (run / "tokens").is_dir():
        shutil.rmtree(run / "tokens")
    carry_names(run)
    state = experiment.state
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
