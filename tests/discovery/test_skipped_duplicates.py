"""`sptnet discover --skip-duplicates`: the run is that of a folder without duplicates, and exports have them all."""

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from conftest import Call
from helpers.digit_folders import fill
from helpers.result_runs import IDS, make_run
from sptnet.data.check.skip_duplicates import Duplicate
from sptnet.data.load import load_image_set
from sptnet.data.split_file import read_split
from sptnet.discovery import pace
from sptnet.discovery.estimator import CategoryDiscoverer
from sptnet.discovery.rounds import next_round
from sptnet.errors import Misuse
from sptnet.model.backbone import EMBEDDED
from sptnet.results.duplicates import read_duplicates, write_duplicates
from sptnet.results.edits.log import Confirm, Move, add_edits, current
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import read_result
from sptnet.training.experiment import Experiment

WORDS = ["--backbone", EMBEDDED, "--set", "backbone.image_size=32", "--device", "cpu", "--no-report"]
WORDS += ["--method", "sskmeans", "--seed", "3"]


@pytest.fixture
def call(call: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setattr(pace, "SECONDS", 0.005)
    return call


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Digits, three of them twice: a labelled one with a label, a labelled one without, and an unsorted one."""
    root = fill(tmp_path / "with" / "photos")
    shutil.copy(root / "0/0-0.png", root / "0/copy.png")
    shutil.copy(root / "1/1-0.png", root / "0-aside.png")
    with Image.open(root / "unlabelled/4-0.png") as image:
        image.resize((64, 64), Image.Resampling.BICUBIC).save(root / "unlabelled/large.jpg", quality=90)
    return root


COPIES = {"0/copy.png": "0/0-0.png", "0-aside.png": "1/1-0.png", "unlabelled/large.jpg": "unlabelled/4-0.png"}


def test_the_run_is_that_of_a_folder_without_duplicates(
    call: Call, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    dry = call("discover", photos, "--out", run, *WORDS, "--skip-duplicates", "--dry-run")
    assert (dry.code, run.exists()) == (0, False), dry.err

    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Experiment, "_write_results", stop)
        stopped = call("discover", photos, "--out", run, *WORDS, "--skip-duplicates")
    assert stopped.code == 130
    assert f"the duplicates are listed in {run / 'duplicates.csv'}\n" in stopped.err
    assert RunFolder(run).config().data.skip_duplicates
    (run / "duplicates.csv").unlink()
    resumed = call("discover", "--resume", "--out", run, "--no-report")
    assert resumed.code == 0, resumed.err
    ids = read_result(run).ids
    found = read_duplicates(RunFolder(run), ids)
    assert found is not None
    copies = {duplicate.image: duplicate.original for duplicate in found if duplicate.skipped}
    assert COPIES.items() <= copies.items()
    assert not copies.keys() & set(ids)
    assert f"; {len(copies)} duplicates left out\n" in dry.out
    assert {d.image: d.label for d in found if d.image in COPIES} == dict.fromkeys(COPIES, "") | {"0/copy.png": "0"}
    image_set, _ = load_image_set(RunFolder(run).config().data)
    assert len(read_split(RunFolder(run).split_file, image_set).target) == len(ids)
    plain = shutil.copytree(photos, tmp_path / "without" / "photos")
    for image in copies:
        (plain / image).unlink()
    assert call("discover", plain, "--out", other, *WORDS).code == 0
    assert not (other / "duplicates.csv").exists()
    for file in ("predictions.csv", "features.safetensors", "estimate.json", "split.json"):
        assert (run / file).read_bytes() == (other / file).read_bytes(), file
    exported = call("export", run, "--to", tmp_path / "sorted", "--as", "copies")
    assert exported.out.startswith(f"wrote {len(ids) + len(copies)} images in ")
    assert call("export", run, "--to", tmp_path / "out.csv", "--as", "csv").code == 0
    rows = {row["image"]: row for row in csv.DictReader((tmp_path / "out.csv").read_text().splitlines())}
    assert len(rows) == len(ids) + len(copies) == len(list(photos.rglob("*.*")))
    for image, original in copies.items():
        assert (rows[image]["category"], rows[image]["duplicate_of"]) == (rows[original]["category"], original)
    assert (rows["0/copy.png"]["labelled"], rows["0-aside.png"]["labelled"]) == ("yes", "no")


def test_later_rounds_leave_them_out_too(call: Call, photos: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert call("discover", photos, "--out", first, *WORDS, "--categories", "6", "--skip-duplicates").code == 0
    assert call("edit", first, "move", "unlabelled/4-0.png", "--to", "four", "--create").code == 0
    answer = call("discover", "--continue", first, "--out", second, "--no-report")
    assert answer.code == 0, answer.err
    assert RunFolder(second).config().data.skip_duplicates
    found = current(second)
    assert not COPIES.keys() & set(found.ids)
    assert found.truth[found.ids.index("unlabelled/4-0.png")] == "four"
    labels = {row["path"]: row["label"] for row in csv.DictReader((second / "labels.csv").read_text().splitlines())}
    assert (labels["0/0-0.png"], labels["0/copy.png"]) == ("0", "0"), "its label is not lost"
    assert "0-aside.png" not in labels
    duplicates = read_duplicates(RunFolder(second), found.ids)
    assert duplicates is not None
    assert COPIES.items() <= {duplicate.image: duplicate.original for duplicate in duplicates}.items()


def test_labels_of_duplicates_follow_their_original(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for name in ("cat/copy.png", "copy.png"):
        shutil.copy(tmp_path / "data" / IDS[0], tmp_path / "data" / name)
    copies = [
        Duplicate("cat/copy.png", IDS[0], "cat"),
        Duplicate("copy.png", IDS[0]),
        Duplicate("gone.png", IDS[0], "cat"),
    ]
    write_duplicates(run / "duplicates.csv", copies)
    add_edits(run, [Move((IDS[0],), "dog"), Confirm((IDS[4],))])
    labels = next_round(run, tmp_path / "second").labels
    assert (labels[IDS[0]], labels["cat/copy.png"]) == ("dog", "dog")
    assert not {"copy.png", "gone.png"} & labels.keys(), "one has no label, the other no file"


def test_a_list_of_images_cannot_leave_some_out() -> None:
    estimator = CategoryDiscoverer(backbone=EMBEDDED, settings={"data.skip_duplicates": True})
    images = [np.full((8, 8), i, np.uint8) for i in range(4)]
    with pytest.raises(Misuse, match=r"^`data.skip_duplicates` is for folders\. Give a folder as X, or leave it out\."):
        estimator.fit(images, [0, 1, -1, -1])
