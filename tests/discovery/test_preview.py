"""The plan of a discovery before it begins: from a folder, without weights, and without a trace on the disk."""

from pathlib import Path
from typing import Any

import pytest

from helpers.digit_folders import fill
from sptnet.config.recipes import Settings
from sptnet.discovery import pace
from sptnet.discovery.discover import Wishes
from sptnet.discovery.preview import Preview, preview_discovery
from sptnet.errors import Misuse
from sptnet.model.backbone import EMBEDDED
from sptnet.model.vit import timm_vit


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SECONDS", 0.005)


def preview(folder: Path, minutes: float | None = 1, method: str | None = None, **more: Any) -> Preview:
    changes: Settings = {"backbone.name": EMBEDDED, "data.folder": str(folder.resolve()), "device": "cpu", **more}
    return preview_discovery(changes, Wishes(method, minutes, frozenset(changes)))


def test_a_folder_is_planned_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = fill(tmp_path / "photos")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    found = preview(photos)
    assert found.possible and found.discovery is not None
    plan = found.discovery.plan
    assert plan.seconds > 0
    assert (plan.config.backbone.name, plan.config.data.folder) == (EMBEDDED, str(photos.resolve()))
    assert list(Path.cwd().iterdir()) == []


def test_labels_come_from_a_file_if_there_is_one(tmp_path: Path) -> None:
    photos = fill(tmp_path / "photos")
    images = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    labels = tmp_path / "labels.csv"
    labels.write_text("path,label\n" + "".join(f"{image},crow\n" for image in images[:8]), encoding="utf-8")
    found = preview(photos, **{"data.labels": str(labels)})
    assert found.discovery is not None and found.discovery.plan.config.data.labels == str(labels)
    assert [(c.name, c.labelled) for c in found.checked.categories] == [("crow", 8)]


def test_what_is_wrong_with_the_images_is_a_finding(tmp_path: Path) -> None:
    photos = fill(tmp_path / "photos")
    for path in [*(photos / "unlabelled").rglob("*.png"), *photos.glob("*.png")]:
        path.unlink()
    found = preview(photos)
    assert not found.possible and found.discovery is None
    assert found.findings[0].stops
    assert found.findings[0].sentence.startswith("every image is labelled, so there is nothing to discover")


@pytest.mark.parametrize("there", [False, True])
def test_weights_that_must_be_downloaded_are_a_finding(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, asked = "vit_tiny_patch16_224.augreg_in21k_ft_in1k", []

    def cached(repository: str, file: str) -> str | None:
        asked.append(repository)
        return str(tmp_path / file) if there else None

    monkeypatch.setattr(timm_vit, "try_to_load_from_cache", cached)
    photos = fill(tmp_path / "photos")
    changes: Settings = {"backbone.name": name, "data.folder": str(photos), "device": "cpu"}
    found = preview_discovery(changes, Wishes(None, 1, frozenset(changes)), timed=False)
    assert set(asked) == {f"timm/{name}"}
    assert found.possible
    sentences = [finding.sentence for finding in found.findings if finding.about == "weights"]
    assert sentences == (
        []
        if there
        else [
            f"the weights of {name} are not on this machine yet: they are downloaded first, which needs a network. "
            "Without one, give a file with `backbone.weights=FILE`."
        ]
    )


def test_what_is_wrong_with_the_options_raises(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="unknown method 'magic'"):
        preview(tmp_path / "gone", method="magic")
    with pytest.raises(Misuse, match="minutes is -1"):
        preview(tmp_path / "gone", minutes=-1)


def test_each_image_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sptnet.data import readable

    def decode(*arguments: Any) -> None:
        raise AssertionError("the check has decoded it already")

    monkeypatch.setattr(readable, "check_image", decode)
    photos = fill(tmp_path / "photos")
    (photos / "0" / "bad.png").write_bytes(b"")
    found = preview(photos, **{"data.max_unreadable": 0.1})
    assert found.discovery is not None
    images = found.discovery.images
    assert (len(images.image_set), [problem.name for problem in images.unreadable]) == (48, ["0/bad.png"])
