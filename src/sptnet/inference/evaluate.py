"""Scores of a finished model: on the images of its run, on a benchmark, on a sorted folder."""

from pathlib import Path
from typing import Any

import numpy as np

from sptnet.config import DataSettings
from sptnet.data.benchmarks import find_benchmark
from sptnet.data.load import SplitImages, load_data, load_image_set
from sptnet.data.split_file import read_split
from sptnet.errors import Misuse
from sptnet.inference.predictor import Predictor
from sptnet.results.run_folder import RunFolder
from sptnet.results.scores import score, score_sets

Scores = dict[str, Any]


def score_run(predictor: Predictor, run: RunFolder, prompted: bool = True) -> Scores:
    """Score the unlabelled training images of a run, and its test images if it has some."""
    image_set, unreadable = load_image_set(run.config().data)
    split = read_split(run.split_file, image_set)
    return score_split(predictor, SplitImages(image_set, split, unreadable), prompted)


def score_benchmark(predictor: Predictor, source: str, folder: Path, prompted: bool = True) -> Scores:
    """Score a benchmark by name with its published split."""
    settings = DataSettings(source=find_benchmark(source).name, folder=str(folder))  # type: ignore[arg-type]
    return score_split(predictor, load_data(settings), prompted)


def score_split(predictor: Predictor, images: SplitImages, prompted: bool = True) -> Scores:
    """Score every set of a split; the model must know as many categories as the split."""
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
    """Score every image of a folder of categories; those whose name the model knows are old."""
    settings = DataSettings(folder=str(folder), max_unreadable=max_unreadable)
    image_set, _ = load_image_set(settings, limit_setting="`max_unreadable={}`")
    known = list(predictor.categories[: predictor.n_known])
    order = known + [name for name in image_set.names if name not in known]
    position = np.array([order.index(name) for name in image_set.names] + [-1])
    predicted = predictor.outputs(image_set.sources, prompted).categories
    scores = score(position[image_set.labels], predicted, predictor.n_known)
    return {folder.name: scores} if scores else {}
