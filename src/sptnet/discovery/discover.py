"""A discovery from plan to finished run: the first round on a folder, and rounds that go on from a person's edits."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sptnet.config import Config
from sptnet.config.recipes import Settings
from sptnet.data.load import SplitImages, resolve_n_categories
from sptnet.discovery.pace import measure_pace
from sptnet.discovery.plan import (
    PLANNED,
    ImageFacts,
    Plan,
    after_training,
    before_training,
    check_wishes,
    limit_stages,
    make_plan,
    with_batch_size,
)
from sptnet.discovery.rounds import LABELS, labels_text, next_round, read_round
from sptnet.discovery.settings import AUTO, change_settings, make_settings, read_images
from sptnet.errors import Misuse
from sptnet.model.backbone import EMBEDDED, Backbone, backbone_from, build_backbone
from sptnet.model.token_bank import free_disk
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.distributed import world
from sptnet.runtime.progress import Say
from sptnet.runtime.torchrun import available_cores
from sptnet.training.experiment import Experiment

WAYS_OUT = (
    "Ways out: connect to the network and try again; give a local weights file with --weights FILE; or, for small "
    f"drawings, take the backbone that comes with sptnet: --backbone {EMBEDDED}. (In Python: weights=..., backbone=...)"
)


@dataclass(frozen=True)
class Wishes:
    """What a person asks of a plan; None leaves the choice to it."""

    method: str | None = None
    minutes: float | None = None
    given: frozenset[str] = frozenset()
    """Settings that somebody has chosen."""
    report: bool = True


@dataclass
class Discovery:
    """Images, a backbone and a plan for them."""

    plan: Plan
    images: SplitImages
    backbone: Backbone
    run: RunFolder
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts that lie in the run from the beginning, by name."""
    planned_at: float = field(default_factory=time.perf_counter)

    def train(self, overwrite: bool, command: Sequence[str], tell_epoch: Say | None = None) -> Experiment:
        """Do what the plan says. Training gets the time that is left once features and count are there."""
        experiment = Experiment(self.plan.config, self.run, self.images, tell_epoch=tell_epoch, backbone=self.backbone)
        if self.plan.minutes is not None:
            used = time.perf_counter() - self.planned_at
            slower = min(4.0, max(0.5, used / max(before_training(self.plan), 1.0)))
            left = 60 * self.plan.minutes - used - slower * after_training(self.plan)
            experiment.use(world().from_first(lambda: limit_stages(self.plan, experiment.state.config, left)))
        experiment.run(False, overwrite, command, self.files)
        return experiment


def first_round(out: Path, changes: Settings, wishes: Wishes, overwrite: bool = False) -> Discovery:
    """Plan the discovery of a folder of images."""
    run, config = RunFolder(out), make_settings(AUTO, changes)
    check_target(run, config.data.folder, overwrite)
    config, images = read_images(config)
    return plan_discovery(config, images, run, wishes)


def another_round(
    earlier: Path, out: Path, changes: Settings, wishes: Wishes, choose: bool = False, overwrite: bool = False
) -> tuple[Discovery, int]:
    """Plan another round with the edits of an earlier run as labels; also returns how many labels it starts with.

    Settings stay as they were, unless they are given, `choose` asks for a fresh choice of the method, or the earlier
    run had no labels to learn from.
    """
    if "data.labels" in changes:
        raise Misuse("--continue takes its labels from the edits of the earlier run. Leave --labels out.")
    if out.resolve() == earlier.resolve():
        raise Misuse(f"the new round would replace {earlier}, which it builds on. Give another --out.")
    run, found = RunFolder(out), next_round(earlier, out)
    config = change_settings(found.config, changes)
    check_target(run, config.data.folder, overwrite)
    images = read_round(config, found.labels)
    if wishes.method is None and wishes.minutes is None and not choose and found.had_labels:
        wishes = Wishes(config.method, None, wishes.given | PLANNED, wishes.report)
    discovery = plan_discovery(config, images, run, wishes, {LABELS: labels_text(found.labels)}, limited=True)
    return discovery, len(found.labels)


def check_target(run: RunFolder, data_folder: str | None, overwrite: bool) -> None:
    """Refuse a place for the run before minutes are spent."""
    run.check_place(data_folder)
    world().do_first(lambda: run.check_new(overwrite))


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
    if config.n_categories != "auto":
        resolve_n_categories(config.n_categories, config.category_factor, split)
    training = len(split.labelled) + len(split.unlabelled)
    if "training.batch_size" not in wishes.given:
        config = with_batch_size(config, training)
    compute = choose_compute(config.device, config.precision, everyone.local_rank)
    settings = config.backbone
    backbone = (
        backbone_from(config, everyone, WAYS_OUT)
        if pretrained
        else build_backbone(settings.name, None, settings.image_size, pretrained=False, reading=config.reading)
    )

    def plan() -> Plan:
        alone = measure_pace(backbone, compute, images.image_set.sources, config)
        crowded = max(1.0, everyone.on_machine / available_cores()) if alone.device == "cpu" else 1.0
        view_bytes = 2 * backbone.tokens_per_view * backbone.dim  # float16
        size = backbone.pixels.image_size
        facts = ImageFacts(len(images.image_set), training, split.n_known, free_disk(run.path), view_bytes, size)
        pace = alone.shared(everyone.size / crowded)
        return make_plan(config, facts, pace, wishes.minutes, method, wishes.given, wishes.report, limited)

    return Discovery(everyone.from_first(plan), images, backbone, run, files or {})


def drop_tokens(run: Path) -> None:
    """Remove the token bank of a finished run: it may be large and has served its purpose."""
    if (run / "tokens").is_dir():
        shutil.rmtree(run / "tokens")
