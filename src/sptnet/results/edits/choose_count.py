"""Choice of another number of categories: images are grouped by a kept clustering, and names follow the images."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sptnet.errors import Misuse
from sptnet.results.counts import Clustering, cluster_at, seed_of_counts, write_clustering
from sptnet.results.edits.carried_names import carried_names
from sptnet.results.edits.types import Count
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import DROPPED, RunResult

GIVEN_PARTS = ("labelled", "holdout")


def ensure_clustering(run: str | Path, result: RunResult, n_categories: int) -> None:
    """Cluster the images of a run into `n_categories` and keep the clustering, unless it is kept already.

    `result` is the unedited result of the run.
    """
    if n_categories in result.counts:
        return
    labels = given_labels(result)
    least, most = max(1, result.n_known), result.n_known + int((labels < 0).sum())
    if not least <= n_categories <= most:
        raise Misuse(
            f"{len(result)} images with {result.n_known} known categories cannot be in {n_categories} categories. "
            f"Choose a number from {least} to {most}."
        )
    seed = seed_of_counts(RunFolder(run).config().seed)
    write_clustering(Path(run), cluster_at(result.features, labels, n_categories, result.n_known, seed))


def given_labels(result: RunResult) -> npt.NDArray[np.int64]:
    """Return the known category of each labelled training image, -1 for others, of shape (n,)."""
    given = [part == "labelled" and truth is not None for part, truth in zip(result.part, result.truth, strict=True)]
    return np.where(given & (result.category < result.n_known), result.category, -1)


def apply_count(result: RunResult, edit: Count) -> RunResult:
    """Group the images by the kept clustering.

    Known categories keep their edited names. New ones take over the names of those that share their images. Labelled
    images, and those that a person confirmed or moved, stay in their category as long as there is one of that name;
    dropped images stay dropped.
    """
    clustering = result.counts.get(edit.n_categories)
    if clustering is None:
        raise Misuse(
            f"no clustering into {edit.n_categories} categories is kept. Make it with `count {edit.n_categories}`."
        )
    _check_known(result, clustering)
    n_known = result.n_known
    after = (*result.names[:n_known], *("" for _ in range(edit.n_categories - n_known)))
    names = carried_names(result.names, result.category, after, clustering.category, n_known)
    position = {name: i for i, name in enumerate(names)}
    category, certainty = clustering.category.copy(), clustering.certainty.copy()
    followed = set()
    for i, id_ in enumerate(result.ids):
        before = result.category[i]
        if before == DROPPED:
            category[i] = DROPPED
        elif id_ in result.confirmed or (result.part[i] in GIVEN_PARTS and before < n_known):
            if result.names[before] in position:
                category[i], certainty[i] = position[result.names[before]], result.certainty[i]
            else:
                followed.add(id_)
    guess = clustering.category if clustering.centroids is None else clustering.nearest(result.features)
    return replace(
        result,
        names=names,
        category=category,
        certainty=certainty,
        confirmed=result.confirmed - followed,
        guess=guess,
        guess_certainty=clustering.certainty,
    )


def _check_known(result: RunResult, clustering: Clustering) -> None:
    """Raise if known categories were merged or split, since the clustering has those of the run."""
    labelled = np.array([part == "labelled" for part in result.part]) & (result.category >= 0)
    labelled &= np.array([id_ not in result.confirmed for id_ in result.ids])
    if clustering.n_known != result.n_known or (clustering.category[labelled] != result.category[labelled]).any():
        raise Misuse(
            "known categories have been merged or split, and another number of categories would undo that. Choose the "
            "number first: take these edits back with undo, choose, and repeat them."
        )
