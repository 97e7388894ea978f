"""A small result of eight images in four categories, and a finished run with it."""

import csv
import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sptnet.config.recipes import load_recipe
from sptnet.results.predictions import FEATURES, RUN_COLUMNS, write_features
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult

COLUMNS = "image,category,is_new,certainty,part,truth"
IDS = (
    *("cat/a.png", "cat/b.png", "unlabelled/a.png", "unlabelled/dog.png"),
    *("unlabelled/e.png", "unlabelled/f.png", "unlabelled/sub/e.png", "test/e.png"),
)
DEGREES = (0, 10, 80, 90, 180, 182, 230, 233)


def small_result() -> RunResult:
    """Features are directions in the plane; new-1 is made of two groups, new-2 is empty; one cat is almost a dog."""
    angles = np.deg2rad(DEGREES)
    return RunResult(
        ids=IDS,
        sources=(None,) * 8,
        part=("labelled", "holdout", *("unlabelled",) * 5, "test"),
        names=("cat", "dog", "new-1", "new-2"),
        n_known=2,
        category=np.array([0, 0, 0, 1, 2, 2, 2, 2]),
        certainty=np.array([0.9, 0.8, 0.4, 0.9, 0.9, 0.7, 0.6, 0.3], np.float32),
        features=np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32),
        truth=("cat", "cat", None, "dog", None, None, None, "eel"),
    )


def make_run(
    root: Path,
    result: RunResult | None = None,
    source: str = "folder",
    files: bool = True,
    guesses: bool = False,
    seconds: bool = False,
) -> Path:
    """Write a run in `root`/run on images in `root`/data; image i has grey level i, the last one has no file.

    Without `guesses` the table of predictions has the columns of version 0.2. With `seconds` the second choice of every
    image is the category after its own, with a certainty of 0.25.
    """
    result = small_result() if result is None else result
    folder = [] if source == "digits" else [f'data.folder="{root / "data"}"']
    run = RunFolder(root / "run")
    run.create(load_recipe("digits", [f"data.source={source}", *folder]))
    run.model.mkdir()
    description = {"categories": list(result.names), "n_known": result.n_known}
    (run.model / "model.json").write_text(json.dumps(description), encoding="utf-8")
    with run.predictions_file.open("w", encoding="utf-8", errors="surrogatepass", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(RUN_COLUMNS if guesses else COLUMNS.split(","))
        for i, id_ in enumerate(result.ids):
            name = result.names[result.category[i]]
            is_new = "yes" if result.is_new(name) else "no"
            second = [result.names[(result.category[i] + 1) % len(result.names)], "0.2500"] if seconds else ["", ""]
            choices = [result.names[result.guess[i]], *second] if guesses else []
            certainty = result.guess_certainty[i] if guesses else result.certainty[i]
            table.writerow([id_, name, is_new, f"{certainty:.4f}", result.part[i], result.truth[i] or "", *choices])
    write_features(run.path / FEATURES, torch.from_numpy(result.features))
    for i, id_ in enumerate(result.ids[:-1] if files and folder else ()):
        (root / "data" / id_).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (3, 2), (i, i, i)).save(root / "data" / id_)
    return run.path


def assert_same(one: RunResult, other: RunResult) -> None:
    """Assert that two results have equal columns."""
    for column, value in vars(one).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(value, getattr(other, column)), column
        else:
            assert value == getattr(other, column), column
