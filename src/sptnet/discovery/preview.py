"""Check a folder and plan its discovery before anything is downloaded or written."""

from dataclasses import dataclass
from pathlib import Path

from sptnet.config import Config
from sptnet.config.recipes import Settings
from sptnet.data.check.findings import Finding, can_train, findings_of
from sptnet.data.check.folder_check import FolderCheck, check_folder
from sptnet.data.check.skip_duplicates import without_duplicates
from sptnet.data.image_file import UnreadableImage
from sptnet.data.load import SplitImages, read_image_set, split_unsorted, with_folder_labels
from sptnet.discovery.decide import check_request
from sptnet.discovery.discover import Discovery, Wishes, plan_discovery
from sptnet.discovery.pace import Pace
from sptnet.discovery.settings import AUTO, make_settings
from sptnet.errors import SptnetError
from sptnet.model.backbone import awaits_download
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.progress import Say, say

FAST = 1e-6  # seconds of everything, for a plan that is only to show whether it is possible


@dataclass(frozen=True)
class Preview:
    """Result of `preview_discovery`."""

    checked: FolderCheck
    findings: list[Finding]
    """Problems, those that prevent the discovery first."""
    discovery: Discovery | None
    """What `discover` would do, for its plan only; None if it is refused, or if no times were asked for."""

    @property
    def possible(self) -> bool:
        """True if `discover` would begin."""
        return can_train(self.findings)


def preview_discovery(changes: Settings, wishes: Wishes | None = None, timed: bool = True, tell: Say = say) -> Preview:
    """Read every image of a folder once, decide as `discover` does, and plan with times measured on this machine.

    `changes` are settings by key, `data.folder` among them. Wrong options raise; what is wrong with the images is a
    finding. A weights file is read; without one the backbone has random weights, and nothing is downloaded.
    """
    wishes = wishes or Wishes(given=frozenset(changes))
    config = make_settings(AUTO, changes)
    check_request(config, wishes.minutes, wishes.method)
    data = with_folder_labels(config.data, tell)
    config = config.model_copy(update={"data": data})
    whole = read_image_set(data, lambda line: None)
    checked = check_folder(
        data.folder or "",
        data.labels,
        data.unlabelled,
        data.max_unreadable,
        folder_labels=data.folder_labels,
        device=config.device,
        precision=config.precision,
        skip_duplicates=data.skip_duplicates,
    )
    findings = [*findings_of(checked), *_weights(config)]
    if not can_train(findings):
        return Preview(checked, findings, None)
    try:
        unreadable = {image.name: UnreadableImage(image.name, image.reason) for image in checked.unreadable}
        image_set = whole.subset([i for i, id_ in enumerate(whole.ids) if id_ not in unreadable])
        duplicates = checked.duplicates if data.skip_duplicates else ()
        image_set = without_duplicates(image_set, duplicates)
        data, images = split_unsorted(data, image_set, list(unreadable.values()), duplicates)
        discovery = _plan(config.model_copy(update={"data": data}), images, wishes, timed)
    except SptnetError as error:
        return Preview(checked, [Finding("refused", str(error), stops=True), *findings], None)
    return Preview(checked, findings, discovery if timed else None)


def _weights(config: Config) -> list[Finding]:
    """Tell that a network is needed, if the weights are not on this machine."""
    name = config.backbone.name
    if not awaits_download(name, config.backbone.weights):
        return []
    return [
        Finding(
            "weights",
            f"the weights of {name} are not on this machine yet: they are downloaded first, which needs a network. "
            "Without one, give a file with `backbone.weights=FILE`.",
        )
    ]


def _plan(config: Config, images: SplitImages, wishes: Wishes, timed: bool) -> Discovery:
    run = RunFolder(Path.cwd())
    pace = None if timed else Pace("cpu", FAST, FAST, FAST)
    return plan_discovery(config, images, run, wishes, pretrained=config.backbone.weights is not None, pace=pace)
