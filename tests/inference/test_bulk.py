"""Prediction in parts: the rows of one table, with any number of processes and after any number of stops."""

import csv
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from conftest import Call, Command, random_model
from helpers.kills import kill_everywhere
from helpers.result_runs import make_run, small_result
from helpers.rounding import assert_same, certainty_rounding, terms_of
from helpers.torchrun import torchrun
from sptnet.config import PromptSettings
from sptnet.data.benchmarks.digits import digits
from sptnet.errors import Failure, Misuse
from sptnet.inference.bulk.file_batches import predict_batches
from sptnet.inference.bulk.image_list import named_images
from sptnet.inference.bulk.job import Job, describe_job, open_folder
from sptnet.inference.bulk.tables import COLUMNS, NamedPredictor, Tally, write_parts
from sptnet.inference.predict_files import predict_parts, predict_table
from sptnet.inference.predictor import Predictor, load
from sptnet.model.calibrator import Calibrator, Line
from sptnet.model.model_folder import ModelCard, save_model, update_card
from sptnet.results.edits.log import Rename, add_edits
from sptnet.runtime.distributed import World

N = 150
PROMPT = PromptSettings(kind="spatial+global", border=4)


def make_model(folder: Path, seed: int = 0, names: tuple[str, ...] = ("a", "b", "c", "d"), n_known: int = 2) -> Path:
    model = random_model(seed=seed, n_categories=len(names))
    model.attach_prompt(PROMPT, torch.Generator().manual_seed(seed))
    save_model(folder, model, ModelCard(names, n_known, PROMPT, 0.875))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred and fifty digits in two folders: two batches and a bit."""
    root = tmp_path_factory.mktemp("images")
    for i, pixels in enumerate(digits().sources[:N]):
        (root / str(i % 2)).mkdir(exist_ok=True)
        Image.fromarray(np.asarray(pixels)).save(root / str(i % 2) / f"{i:03d}.png")
    return root


@pytest.fixture(scope="module")
def whole(model: Path, images: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The plain table."""
    out = tmp_path_factory.mktemp("whole") / "all.csv"
    predict_table(model, [images], out, device="cpu")
    return out.read_bytes()


def in_parts(run: Path, images: Path, folder: Path, size: int = 64, max_unreadable: float = 0.01) -> Tally:
    return predict_parts(run, [images], folder, part_size=size, device="cpu", max_unreadable=max_unreadable)


def joined(folder: Path) -> bytes:
    """All parts as one table."""
    header = (",".join(COLUMNS) + "\r\n").encode()
    tables = [path.read_bytes() for path in sorted(folder.glob("part-?????.csv"))]
    assert all(table.startswith(header) for table in tables)
    return header + b"".join(table.removeprefix(header) for table in tables)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def rows(table: bytes) -> list[list[str]]:
    return list(csv.reader(table.decode().splitlines()))


# --- the parts --------------------------------------------------------------------------------------------------------


def test_the_parts_together_are_the_plain_table(model: Path, images: Path, whole: bytes, tmp_path: Path) -> None:
    in_parts(model, images, tmp_path / "deep" / "parts")
    assert names_in(tmp_path / "deep" / "parts") == ["part-00000.csv", "part-00001.csv", "part-00002.csv", "parts.json"]
    assert joined(tmp_path / "deep" / "parts") == whole
    lengths = [len(rows(path.read_bytes())) - 1 for path in sorted((tmp_path / "deep" / "parts").glob("*.csv"))]
    assert lengths == [64, 64, 22]


@pytest.mark.parametrize(("size", "n_parts"), [(7, 22), (40, 4), (75, 2), (N, 1), (10_000, 1)])
def test_the_size_of_the_parts_changes_no_row(
    size: int, n_parts: int, model: Path, images: Path, whole: bytes, tmp_path: Path
) -> None:
    in_parts(model, images, tmp_path / "parts", size)
    assert len(list((tmp_path / "parts").glob("*.csv"))) == n_parts
    found, expected = rows(joined(tmp_path / "parts")), rows(whole)
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    certainty = [[float(row[3]) for row in table[1:]] for table in (found, expected)]
    other_batches = certainty_rounding(terms_of(load(model, "cpu").model))
    assert certainty[0] == pytest.approx(certainty[1], abs=other_batches)


def test_a_table_is_written_to_a_stream(model: Path, images: Path, whole: bytes) -> None:
    stream = StringIO(newline="")
    predict_table(model, [images], stream, device="cpu")
    assert stream.getvalue().encode() == whole


def test_a_table_replaces_no_file(model: Path, images: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("mine")
    with pytest.raises(Misuse, match=r"mine\.csv exists already\. Give another `out`\."):
        predict_table(model, [images], tmp_path / "mine.csv", device="cpu")
    assert (tmp_path / "mine.csv").read_text() == "mine"


def test_a_list_names_the_images_too(model: Path, images: Path, whole: bytes, tmp_path: Path) -> None:
    file = tmp_path / "images.txt"
    file.write_text("\n".join(named_images([images]).paths))
    predict_table(model, [], tmp_path / "all.csv", device="cpu", list_file=file)
    assert (tmp_path / "all.csv").read_bytes() == whole
    predict_parts(model, [], tmp_path / "parts", part_size=64, device="cpu", list_file=file)
    assert joined(tmp_path / "parts") == whole


def test_existing_parts_are_not_computed_again(
    model: Path, images: Path, whole: bytes, tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "parts"
    assert in_parts(model, images, folder) == Tally(3, 0)
    assert capsys.readouterr().err.splitlines() == [
        "part-00000.csv (of 3): 64 images",
        "part-00001.csv (of 3): 64 images",
        "part-00002.csv (of 3): 22 images",
    ]
    (folder / "part-00001.csv").unlink()
    before = times(folder)
    answer = call("predict", model, images, "--parts", folder, "--part-size", 64, "--device", "cpu")
    said = ["part-00001.csv (of 3): 64 images", f"parts done: 1, there already: 2, in {folder}"]
    assert (answer.code, answer.err.splitlines()) == (0, said)
    after = times(folder)
    assert {name: after[name] for name in before} == before
    assert joined(folder) == whole


def test_features_lie_beside_each_part_in_the_order_of_its_rows(model: Path, damaged: Path, tmp_path: Path) -> None:
    folder = tmp_path / "parts"

    def write(features: bool = True) -> None:
        predict_parts(model, [damaged], folder, part_size=64, features=features, device="cpu", max_unreadable=1.0)

    write()
    (folder / "part-00001.csv").unlink()  # as after a stop: its features may be there already
    write()
    tables = sorted(folder.glob("part-?????.csv"))
    found = torch.cat([load_file(table.with_suffix(".safetensors"))["features"] for table in tables])
    named = [row[0] for table in tables for row in rows(table.read_bytes())[1:]]
    given = named_images([damaged]).paths
    assert len(named) == len(found) < len(given), "unreadable images have neither row nor feature"
    expected = load(model, "cpu").outputs([Path(name) for name in named]).unit_features
    assert found.dtype == torch.float16
    assert_same(found, expected, terms=1)
    with pytest.raises(Misuse, match="another job, which differs in: `features`"):
        write(features=False)


def test_ranks_take_parts_in_turn(model: Path, images: Path, whole: bytes, tmp_path: Path) -> None:
    named, files = NamedPredictor(load(model, "cpu"), None), named_images([images]).paths
    second = write_parts(named, files, tmp_path, 20, 0.01, World(1, 3))
    assert (second, names_in(tmp_path)) == (Tally(3, 0), [f"part-0000{i}.csv" for i in (1, 4, 7)])
    assert write_parts(named, files, tmp_path, 20, 0.01, World(0, 2)) == Tally(3, 1)
    assert write_parts(named, files, tmp_path, 20, 0.01, World(7, 9)) == Tally(0, 1)
    assert write_parts(named, files, tmp_path, 20, 0.01, World(8, 9)) == Tally(0, 0)
    assert write_parts(named, files, tmp_path, 20, 0.01, World()) == Tally(2, 6)
    assert [row[:3] for row in rows(joined(tmp_path))] == [row[:3] for row in rows(whole)]


def test_a_killed_job_resumes_and_leaves_the_same_bytes(
    model: Path, images: Path, whole: bytes, tmp_path: Path, command: Callable[..., Command]
) -> None:
    folder = tmp_path / "parts"
    words = ["predict", str(model), str(images), "--parts", str(folder), "--part-size", "64", "--device", "cpu"]

    def be_slow() -> None:
        outputs = NamedPredictor.rows
        NamedPredictor.rows = lambda *arguments: time.sleep(0.5) or outputs(*arguments)  # type: ignore[method-assign,func-returns-value]

    job = command(words, be_slow)
    deadline = time.monotonic() + 120
    while not (folder / "part-00000.csv").exists():
        assert time.monotonic() < deadline, job.said
        time.sleep(0.01)
    job.kill()
    assert job.wait() == -signal.SIGKILL
    before = times(folder)
    assert "part-00002.csv" not in before
    again = command(words)
    assert again.wait() == 0, again.said
    after = times(folder)
    kept = {name for name in before if name.endswith((".csv", ".json"))}
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert names_in(folder) == ["part-00000.csv", "part-00001.csv", "part-00002.csv", "parts.json"]
    assert joined(folder) == whole


def test_a_kill_leaves_no_truncated_table(
    model: Path, images: Path, whole: bytes, tmp_path: Path, command: Callable[..., Command]
) -> None:
    out = tmp_path / "all.csv"
    words = ["predict", str(model), str(images), "--out", str(out), "--device", "cpu"]

    class DiesHalfway:
        def __init__(self, stream: TextIO) -> None:
            self.stream, self.table = stream, csv_writer(stream)

        def writerow(self, row: Sequence[object]) -> None:
            self.table.writerow(row)

        def writerows(self, rows: Sequence[Sequence[object]]) -> None:
            self.table.writerows(list(rows)[: N // 2])
            self.stream.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    csv_writer = csv.writer

    def die_halfway() -> None:
        csv.writer = DiesHalfway  # type: ignore[assignment,misc]

    assert command(words, die_halfway).wait() == -signal.SIGKILL
    assert not out.exists()
    again = command(words)
    assert again.wait() == 0, again.said
    assert out.read_bytes() == whole
    assert [name for name in names_in(tmp_path) if name.startswith("all")] == ["all.csv"]


def test_two_processes_of_torchrun(model: Path, images: Path, whole: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    words = ["-m", "sptnet", "predict", model, images, "--part-size", 64, "--device", "cpu"]
    done = torchrun(*words, "--parts", folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert joined(folder) == whole
    assert f"process 1 of 2: parts done: 2, there already: 0, in {folder}" in done.stderr
    assert "part-00001.csv" not in done.stderr, "the first process speaks, of its own parts"
    assert names_in(folder) == ["part-00000.csv", "part-00001.csv", "part-00002.csv", "parts.json"]
    (folder / "part-00001.csv").unlink()
    in_parts(model, images, folder)  # another number of processes
    assert joined(folder) == whole


def test_the_certainty_of_a_table_is_calibrated(model: Path, images: Path, whole: bytes, tmp_path: Path) -> None:
    calibrator = Calibrator(Line(0.5, 1.0), Line(0.25, -1.0))
    folder = tmp_path / "calibrated"
    shutil.copytree(model, folder)
    update_card(folder, replace(load(model, "cpu").card, calibrator=calibrator))
    predict_table(folder, [images], tmp_path / "t.csv", device="cpu")
    found, raw = rows((tmp_path / "t.csv").read_bytes())[1:], rows(whole)[1:]
    assert [row[:3] for row in found] == [row[:3] for row in raw]
    expected = load(folder, "cpu").predict_proba([row[0] for row in found]).max(1)
    assert [row[3] for row in found] == [f"{value:.4f}" for value in expected]
    assert [row[3] for row in found] != [row[3] for row in raw]


def test_edited_names_are_those_of_the_table(images: Path, tmp_path: Path) -> None:
    run = edited_run(tmp_path)
    in_parts(run, images, tmp_path / "before")
    add_edits(run, [Rename("new-2", "sea otter")])
    in_parts(run, images, tmp_path / "after")
    before, after = rows(joined(tmp_path / "before")), rows(joined(tmp_path / "after"))
    assert "new-2" in {row[1] for row in before}
    renamed = [[row[0], "sea otter" if row[1] == "new-2" else row[1], *row[2:]] for row in before]
    assert after == renamed


def edited_run(root: Path) -> Path:
    """A run whose features have the width of the model."""
    found = replace(small_result(), features=np.eye(8, 96, dtype=np.float32))
    run = make_run(root, found)
    make_model(run / "model", names=found.names, n_known=found.n_known)
    return run


# --- unreadable images ------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(images: Path, tmp_path: Path) -> Path:
    """A copy in which images 3 and 70 are no images."""
    copy = tmp_path / "damaged"
    shutil.copytree(images, copy)
    (copy / "0" / "006.png").write_bytes(b"")
    (copy / "0" / "140.png").write_bytes(b"not an image at all")
    return copy


def test_unreadable_images_have_a_table_of_their_own(
    model: Path, damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "parts"
    in_parts(model, damaged, folder, max_unreadable=0.02)
    assert (folder / "part-00000.unreadable.csv").read_text() == f"image,reason\n{damaged / '0/006.png'},empty file\n"
    assert (folder / "part-00001.unreadable.csv").read_text() == f"image,reason\n{damaged / '0/140.png'},not an image\n"
    assert not (folder / "part-00002.unreadable.csv").exists()
    assert "part-00000.csv (of 3): 64 images, 1 of them unreadable" in capsys.readouterr().err
    listed = [row[0] for row in rows(joined(folder))[1:]]
    gone = {str(damaged / "0/006.png"), str(damaged / "0/140.png")}
    assert listed == [path for path in named_images([damaged]).paths if path not in gone]


def test_too_many_unreadable_images_in_a_part_are_a_failure_that_can_be_repaired(
    model: Path, damaged: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "parts"
    with pytest.raises(Failure) as error:
        in_parts(model, damaged, folder)
    assert str(error.value) == (
        f"part-00000.csv: 1 of 64 images (1.6%) cannot be read, more than the 1.0% allowed: {damaged / '0/006.png'} "
        "(empty file). Repair or remove them, raise the limit with `data.max_unreadable=0.2`, or skip them all with "
        "`data.max_unreadable=1`."
    )
    assert not (folder / "part-00000.csv").exists()
    (folder / "part-00000.unreadable.csv").write_text("left by a killed job")
    for name in ("006", "140"):
        shutil.copy(damaged / "0" / "000.png", damaged / "0" / f"{name}.png")
    in_parts(model, damaged, folder)
    assert names_in(folder) == ["part-00000.csv", "part-00001.csv", "part-00002.csv", "parts.json"]
    assert len(rows(joined(folder))) == 1 + N


def test_a_part_without_readable_images_is_empty_if_that_is_allowed(model: Path, damaged: Path, tmp_path: Path) -> None:
    folder, pair = tmp_path / "parts", [damaged / "0" / "004.png", damaged / "0" / "006.png"]
    with pytest.raises(Failure, match=r"^part-00001\.csv: none of the 1 images can be read: .*006\.png \(empty file\)"):
        predict_parts(model, pair, folder, part_size=1, device="cpu", max_unreadable=0.99)
    predict_parts(model, pair, folder, part_size=1, device="cpu", max_unreadable=1.0)
    assert (folder / "part-00001.csv").read_text() == ",".join(COLUMNS) + "\n"
    assert names_in(folder) == ["part-00000.csv", "part-00001.csv", "part-00001.unreadable.csv", "parts.json"]


def test_files_are_read_batch_by_batch(model: Path, images: Path, tmp_path: Path) -> None:
    """Files are decoded batch by batch, not all at once."""
    files = [Path(shutil.copy(path, tmp_path)) for path in named_images([images / "0"]).paths[:20]]
    predictor = load(model, "cpu")
    predictor.batch_size = 8
    batches = predict_batches(predictor, files)
    first = next(batches)
    for file in files[8:]:
        file.unlink()
    second, third = batches
    assert [(b.n, len(b.files), len(b.outputs.logits), len(b.problems)) for b in (first, second, third)] == [
        (8, 8, 8, 0),
        (8, 0, 0, 8),
        (4, 0, 0, 4),
    ]
    assert [problem.name for problem in third.problems] == [str(file) for file in files[16:]]
    expected = Predictor(predictor.model, predictor.card, predictor.compute, 8).outputs(files[:8])
    assert torch.equal(first.outputs.logits, expected.logits)


# --- the job ----------------------------------------------------------------------------------------------------------


def test_parts_of_another_job_are_not_mixed(model: Path, images: Path, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    in_parts(model, images, folder)

    def refused(run: Path, paths: list[Path], size: int, *words: str) -> None:
        with pytest.raises(Misuse) as error:
            predict_parts(run, paths, folder, part_size=size, device="cpu")
        assert str(error.value) == (
            f"{folder} holds parts of another job, which differs in: {', '.join(words)}. Give all as before, or "
            "another folder with `parts`."
        )

    refused(model, [images], 32, "`part_size`")
    refused(make_model(tmp_path / "other", seed=5), [images], 64, "the model")
    refused(model, [images / "1", images / "0"], 64, "the names of the images")
    refused(model, [images / "0"], 64, "the number of images", "the names of the images")


def test_edits_make_another_job(images: Path, tmp_path: Path) -> None:
    run, files = edited_run(tmp_path), named_images([images])
    first = describe_job(run, files, 64)
    assert first.edits is None
    add_edits(run, [Rename("new-1", "otter")])
    assert describe_job(run, files, 64).edits not in (None, first.edits)
    open_folder(tmp_path / "parts", first)
    with pytest.raises(Misuse, match=r"differs in: the edits\. Give"):
        open_folder(tmp_path / "parts", describe_job(run, files, 64))


def test_a_calibration_makes_another_job(model: Path, images: Path, tmp_path: Path) -> None:
    folder = tmp_path / "calibrated"
    shutil.copytree(model, folder)
    in_parts(folder, images, tmp_path / "parts")
    described = json.loads((tmp_path / "parts" / "parts.json").read_text())
    del described["calibrator"]  # earlier versions had none
    (tmp_path / "parts" / "parts.json").write_text(json.dumps(described))
    in_parts(folder, images, tmp_path / "parts")
    update_card(folder, replace(load(model, "cpu").card, calibrator=Calibrator(Line(1, 0), Line(1, 0))))
    with pytest.raises(Misuse, match="another job, which differs in: the calibration of the model"):
        in_parts(folder, images, tmp_path / "parts")


def test_the_job_is_described_in_the_folder(model: Path, images: Path, tmp_path: Path) -> None:
    in_parts(model, images, tmp_path / "parts", 100)
    job: dict[str, Any] = json.loads((tmp_path / "parts" / "parts.json").read_text())
    assert list(job) == ["model", "edits", "images", "names", "part_size", "features", "calibrator"]
    assert job["model"] == json.loads((model / "model.json").read_text())["sha256"]
    assert (job["edits"], job["images"], job["part_size"]) == (None, N, 100)


JOB_OF_NOTHING = Job(model="m", edits=None, images=0, names="n", part_size=1)


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(Misuse) as error:
        open_folder(tmp_path, JOB_OF_NOTHING)
    assert str(error.value) == (
        f"{tmp_path} holds mine.txt but no parts.json. Give an empty folder with `parts`, or one that does not exist "
        "yet."
    )
    assert names_in(tmp_path) == ["mine.txt"]
    with pytest.raises(Misuse) as error:
        open_folder(tmp_path / "mine.txt", JOB_OF_NOTHING)
    assert str(error.value) == f"{tmp_path / 'mine.txt'} is a file, not a folder. Give a folder with `parts`."


def test_the_unfinished_description_of_another_process_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "parts-0.json.part").write_text("half")  # of version 0.1.0
    (tmp_path / ".parts.json.sptnet-0123456789abcdef.part").mkdir()
    open_folder(tmp_path, JOB_OF_NOTHING)
    assert names_in(tmp_path) == ["parts-0.json.part", "parts.json"]


@pytest.mark.parametrize("text", ["{", "[]", '{"model": "m"}', '{"colour": 1}'])
def test_a_damaged_job_is_a_failure(text: str, tmp_path: Path) -> None:
    (tmp_path / "parts.json").write_text(text)
    with pytest.raises(Failure, match=r"parts\.json is damaged \(.*\)\. Give another folder with `parts`, or remove "):
        open_folder(tmp_path, JOB_OF_NOTHING)


def test_several_processes_need_parts(
    model: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(Misuse) as error:
        predict_table(model, [images], tmp_path / "all.csv", device="cpu")
    assert str(error.value) == (
        "several processes cannot write one table. Give a folder for their parts with `parts=DIR`."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["IMAGES", "--out", "a.csv", "--parts", "parts"],
            "--out is one table and --parts a folder of them. Give one of the two.",
        ),
        (
            ["IMAGES", "--out", "a.csv", "--features"],
            "features are written beside parts. Give a folder for them with --parts DIR.",
        ),
        ([], "no images given. Give images, folders of images, or a list of them with --list FILE."),
        (
            ["IMAGES", "--parts", "parts/part-00000.csv"],
            "parts/part-00000.csv is a file, not a folder. Give a folder with --parts.",
        ),
        (
            ["IMAGES", "--parts", "parts", "--part-size", "7"],
            "parts holds parts of another job, which differs in: --part-size. Give all as before, or another folder "
            "with --parts.",
        ),
    ],
)
def test_the_command_line_names_its_flags(
    options: list[str],
    message: str,
    model: Path,
    images: Path,
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    in_parts(model, images, Path("parts"), N)
    answer = call("predict", model, *(images if option == "IMAGES" else option for option in options))
    assert (answer.code, answer.out, answer.err.splitlines()[-1]) == (2, "", f"error: {message}")
    assert names_in(tmp_path) == ["parts"]


def test_images_that_are_not_there_are_refused_before_a_folder_is_made(model: Path, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"there is no .*nothing\. Give image files or folders of images\."):
        in_parts(model, tmp_path / "nothing", tmp_path / "parts")
    (tmp_path / "empty").mkdir()
    with pytest.raises(Misuse, match=r"no images found in .*empty/\. Give a folder that holds JPEG, PNG"):
        in_parts(model, tmp_path / "empty", tmp_path / "parts")
    assert names_in(tmp_path) == ["empty"]


# --- kills ------------------------------------------------------------------------------------------------------------


def test_killed_at_any_moment_of_writing_a_table(model: Path, images: Path, tmp_path: Path) -> None:
    """The table is there when it is whole, and what a kill leaves does not block the next try."""
    few = sorted(images.rglob("*.png"))[:3]
    predict_table(model, few, tmp_path / "whole.csv", device="cpu")
    whole = (tmp_path / "whole.csv").read_bytes()

    def prepare(number: int) -> Callable[[], None]:
        return lambda: predict_table(model, few, tmp_path / str(number) / "a.csv", device="cpu")

    for number in kill_everywhere(prepare):
        out = tmp_path / str(number) / "a.csv"
        if out.exists():
            assert out.read_bytes() == whole
        else:
            predict_table(model, few, out, device="cpu")
            assert (out.read_bytes(), names_in(out.parent)) == (whole, ["a.csv"])


def test_killed_at_any_moment_of_writing_parts(model: Path, images: Path, tmp_path: Path) -> None:
    few = sorted(images.rglob("*.png"))[:4]
    predict_table(model, few, tmp_path / "whole.csv", device="cpu")
    whole = rows((tmp_path / "whole.csv").read_bytes())

    def work(folder: Path) -> None:
        predict_parts(model, few, folder, part_size=2, features=True, device="cpu")

    def prepare(number: int) -> Callable[[], None]:
        return lambda: work(tmp_path / str(number))

    for number in kill_everywhere(prepare, step=3):
        work(tmp_path / str(number))
        assert [row[:3] for row in rows(joined(tmp_path / str(number)))] == [row[:3] for row in whole]
        assert names_in(tmp_path / str(number)) == [
            *("part-00000.csv", "part-00000.safetensors", "part-00001.csv", "part-00001.safetensors", "parts.json")
        ]


# --- among the images -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["", "0", "new/deep"])
def test_nothing_is_written_among_the_images(model: Path, images: Path, tmp_path: Path, place: str) -> None:
    before = sorted(images.rglob("*"))
    linked = tmp_path / "linked"
    linked.symlink_to(images)
    for folder in (images, linked):
        message = rf"lies inside the folder of images {re.escape(str(images))}\. Give a place outside it with"
        with pytest.raises(Misuse, match=rf"{message} `out`\."):
            predict_table(model, [images], folder / place / "table.csv", device="cpu")
        with pytest.raises(Misuse, match=rf"{message} `parts`\."):
            in_parts(model, images, folder / place / "parts")
    assert sorted(images.rglob("*")) == before


def test_a_table_beside_single_images_is_allowed(model: Path, images: Path, tmp_path: Path) -> None:
    image = tmp_path / "a.png"
    image.write_bytes(next(images.rglob("*.png")).read_bytes())
    predict_table(model, [image], tmp_path / "table.csv", device="cpu")
    assert (tmp_path / "table.csv").is_file()


def test_no_name_is_a_formula(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = make_model(tmp_path / "model", names=("=1", "+1", "-1", "@1"))
    folder = tmp_path / "images"
    folder.mkdir()
    for name, image in zip(("=a.png", "-b.png", "c.png"), sorted(images.rglob("*.png")), strict=False):
        (folder / name).write_bytes(image.read_bytes())
    (folder / "@bad.png").write_bytes(b"")
    monkeypatch.chdir(folder)
    predict_table(hostile, [Path()], tmp_path / "table.csv", device="cpu", max_unreadable=1)
    in_parts(hostile, Path(), tmp_path / "parts", max_unreadable=1)
    for file in ("table.csv", "parts/part-00000.csv", "parts/part-00000.unreadable.csv"):
        cells = [cell for row in rows((tmp_path / file).read_bytes()) for cell in row]
        assert not [cell for cell in cells if cell.startswith(tuple("=+-@"))], file
    assert sorted(row[0] for row in rows((tmp_path / "table.csv").read_bytes())[1:]) == ["'-b.png", "'=a.png", "c.png"]


def test_a_batch_system_that_stops_a_job_is_told_how_to_go_on(
    command: Any, model: Path, images: Path, whole: bytes, tmp_path: Path
) -> None:
    words = ["predict", str(model), str(images), "--parts", str(tmp_path / "parts"), "--part-size", "64"]

    def stopped_in_the_second_part() -> None:
        from sptnet.inference.bulk import tables

        write = tables.write_part

        def write_part(named: Any, files: Any, to: Path, *more: Any) -> Any:
            if to.name == "part-00001.csv":
                os.kill(os.getpid(), signal.SIGTERM)
            return write(named, files, to, *more)

        tables.write_part = write_part

    process = command([*words, "--device", "cpu"], stopped_in_the_second_part)
    assert process.wait() == 143, process.said
    said = "stopped by SIGTERM; whole parts are kept. Start the same command again to go on"
    assert process.said.splitlines()[-1] == said
    assert names_in(tmp_path / "parts") == ["part-00000.csv", "parts.json"]
    assert command([*words, "--device", "cpu"]).wait() == 0
    assert joined(tmp_path / "parts") == whole
