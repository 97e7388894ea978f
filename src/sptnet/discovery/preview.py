"""Plan of a discovery before anything is downloaded or written."""

from pathlib import Path
from typing import Any

from sptnet.discovery.discover import Wishes, plan_discovery
from sptnet.discovery.plan import Plan
from sptnet.discovery.settings import make_settings, read_images
from sptnet.results.run_folder import RunFolder


def preview_plan(
    folder: Path,
    labels: Path | None = None,
    unlabelled: str = "unlabelled",
    backbone: str = "auto",
    minutes: float | None = None,
) -> Plan:
    """Plan the discovery of a folder with times measured on this machine; the backbone has random weights."""
    changes: dict[str, Any] = {"data.folder": str(folder.resolve()), "data.unlabelled": unlabelled}
    if labels is not None:
        changes["data.labels"] = str(labels.resolve())
    config, images = read_images(make_settings(backbone, changes), lambda line: None)
    wishes = Wishes(minutes=minutes, given=frozenset(changes))
    return plan_discovery(config, images, RunFolder(Path.cwd()), wishes, pretrained=False).plan
