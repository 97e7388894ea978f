"""Score a finished model on the images of its run, on a benchmark, or on a sorted folder."""

from pathlib import Path
from typing import Any

import numpy as np

from sptnet.config import DataSettings
from sptnet.data.benchmarks import find_benchmark
from sptnet.data.load import SplitImages, load_data, load_image_set
from sptnet.data.readable import check_share
from sptnet.data.split_file import read_split
from sptnet.errors import Misuse
from sptnet.inference.predictor import Predictor, load
from sptnet.methods import method_of
from sptnet.results.run_folder import RunFolder
from sptnet.results.scores import score, score_sets
from sptnet.runtime.progress import Say, say

Scores = dict[str, Any]
"""Scores by name of the scored set."""


def evaluate(
    run: Path,
    data: Path | None = None,
    source: str | None = None,
    max_unreadable: float = 0.01,
    prompted: bool = True,
    device: str = "auto",
    tell: Say = say,
) -> Scores:
    """Score a run or a model directory.

    Images are those of the run without `data`, the benchmark `source` in the folder `data`, or all images of a folder
    of categories. Up to a share `max_unreadable` of unreadable images in such a folder is skipped.
    """
    if source is not None and data is None:
        raise Misuse(f"where is {source}? Give its folder with `data=DIR`.")
    check_share(max_unreadable)
    predictor = load(run, device)
    if source is not None and data is not None:
        scores = score_benchmark(predictor, source, data, prompted)
    elif data is not None:
        scores = score_folder(predictor, data, max_unreadable, prompted)
    elif RunFolder(run).is_run:
        config = RunFolder(run).config()
        if method_of(config).clusters == "neighbors":
            tell(
                f"{config.method} sorted the images of the run by a clustering; the scores here are those of its "
                "centroids, which sort new images."
            )
        scores = score_run(predictor, RunFolder(run), prompted)
    else:
        raise Misuse(f"{run} is a model directory without data. Give a folder to score with `data=DIR`.")
    if not scores:
        raise Misuse(
            "no image has a known category, so there is nothing to score. Give a folder of category sub-folders with "
            "`data=DIR`."
        )
    return scores


def score_run(predictor: Predictor, run: RunFolder, prompted: bool = True) -> Scores:
    """Score the unlabelled training images of a run, and its test images if there are any."""
    image_set, unreadable = load_image_set(run.config().data)
    split = read_split(run.split_file, image_set)
    return score_split(predictor, SplitImages(image_set, split, unreadable), prompted)


def score_benchmark(predictor: Predictor, source: str, folder: Path, prompted: bool = True) -> Scores:
    """Score a model on a benchmark with its published split."""
    settings = DataSettings(source=find_benchmark(source).name, folder=str(folder))  # type: ignore[arg-type]
    return score_split(predictor, load_data(settings), prompted)


def score_split(predictor: Predictor, images: SplitImages, prompted: bool = True) -> Scores:
    """Score every set of a split; the model and the split must have the same number of known categories."""
    image_set, split = images.image_set, images.split
    if predictor.n_known != split.n_known:
        raise Misuse(
            f"the model knows {predictor.n_known} categories, but the split has {split.n_known} known classes. "
            "Give the data that the model was trained for."
        )
    scored = np.concatenate([split.unlabelled, split.test])
    predicted = np.full(len(image_set), -1, dtype=np.int64)
    predicted[scored] = predictor.outputs([image_set.sources[i] for i in scored], prompted).categories
    return score_sets(image_set, split, predicted)


def score_folder(predictor: Predictor, folder: Path, max_unreadable: float = 0.01, prompted: bool = True) -> Scores:
    """Score all images of a folder of categories; categories that the model knows by name are old."""
    settings = DataSettings(folder=str(folder), max_unreadable=max_unreadable)
    image_set, _ = load_image_set(settings)
    known = list(predictor.categories[: predictor.n_known])
    order = known + [name for name in image_set.names if name not in known]
    position = np.array([order.index(name) for name in image_set.names] + [-1])
    predicted = predictor.outputs(image_set.sources, prompted).categories
    scores = score(position[image_set.labels], predicted, predictor.n_known)
    return {folder.name: scores} if scores else {}
