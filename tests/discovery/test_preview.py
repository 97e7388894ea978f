"""The plan of a discovery before it begins: from a folder, without weights, and without a trace on the disk."""

from pathlib import Path

import pytest

from helpers.digit_folders import fill
from sptnet.discovery.preview import preview_plan
from sptnet.errors import Misuse
from sptnet.model.backbone import EMBEDDED


def test_a_folder_is_planned_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = fill(tmp_path / "photos")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    plan = preview_plan(photos, backbone=EMBEDDED, minutes=1)
    assert plan.seconds > 0
    assert (plan.config.backbone.name, plan.config.data.folder) == (EMBEDDED, str(photos.resolve()))
    assert list(Path.cwd().iterdir()) == []


def test_labels_come_from_a_file_if_there_is_one(tmp_path: Path) -> None:
    photos = fill(tmp_path / "photos")
    images = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    labels = tmp_path / "labels.csv"
    labels.write_text("path,label\n" + "".join(f"{image},crow\n" for image in images[:8]), encoding="utf-8")
    assert preview_plan(photos, labels, backbone=EMBEDDED, minutes=1).config.data.labels == str(labels.resolve())


def test_a_folder_without_unsorted_images_is_refused(tmp_path: Path) -> None:
    photos = fill(tmp_path / "photos")
    for path in [*(photos / "unlabelled").rglob("*.png"), *photos.glob("*.png")]:
        path.unlink()
    with pytest.raises(Misuse, match="every image is labelled, so there is nothing to discover"):
        preview_plan(photos, backbone=EMBEDDED)
