"""Second rounds: are guesses of the first round good labels for the next one?

    python benchmarks/rounds.py --data DIR --weights vits14.safetensors --features runs/features --sets cub cifar100 \
        --draws 20

On the draws of `folders.py`, semi-supervised k-means sorts the images into the true number of categories. A person
looks at the three largest new categories, calls each after its most frequent class, and confirms up to ten of its
surest images that are of that class. The second round has these labels alone, or also the guesses: all members of the
three categories, or those with a certainty of at least 0.8. The accuracy is that of all other unsorted images.
"""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
from folder_counts import features_of
from folders import CATEGORIES, Draw, add_image_options, draw_folder, match, read_classes

from sptnet.clustering.points import unit_features
from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.clustering.sorting_evidence import sorting_evidence
from sptnet.inference.assess import certainty_from

REVIEWED, CONFIRMED, SURE = 3, 10, 0.8
ARMS = ("no second round", "confirmed alone", "and sure guesses", "and all guesses")
Ids = npt.NDArray[np.int64]


def second_round(draw: Draw, points: npt.NDArray[np.float32], seed: int) -> list[float]:
    """Accuracy of the images that nobody labelled: first round, and second rounds with the labels of each arm."""
    names = [*draw.known, *(name for name in dict.fromkeys(draw.truth) if name not in draw.known)]
    truth, labelled = np.array([names.index(name) for name in draw.truth]), np.array(draw.labelled)
    ranks, n_known = np.where(labelled, truth, -1), len(draw.known)

    def cluster(labels: Ids) -> Ids:
        return SemiSupervisedKMeans(len(names), random_state=seed).fit(points, labels).predict(points)

    first = cluster(ranks)
    certainty = certainty_from(sorting_evidence(points, ranks, first, len(names), seed), first >= n_known)
    sizes = np.bincount(first[~labelled], minlength=len(names))
    reviewed = n_known + np.argsort(-sizes[n_known:], kind="stable")[:REVIEWED]
    confirmed, guesses = ranks.copy(), ranks.copy()
    for category in reviewed:
        members = np.flatnonzero((first == category) & ~labelled)
        if len(members):
            name = int(np.bincount(truth[members]).argmax())
            surest = members[np.argsort(-certainty[members], kind="stable")]
            confirmed[surest[truth[surest] == name][:CONFIRMED]] = name
            guesses[members] = name
    sure = np.where((confirmed < 0) & (certainty >= SURE), guesses, confirmed)
    everything = np.where(confirmed < 0, guesses, confirmed)
    judged = confirmed < 0
    found = [first, *(cluster(labels) for labels in (confirmed, sure, everything))]
    return [float(match(truth[judged], categories[judged]).mean()) for categories in found]


def main() -> None:
    """Print the mean accuracy of every arm, and the paired differences to labels from the person alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_image_options(parser)
    parser.add_argument("--features", type=Path, required=True, help="folder to keep the features in")
    parser.add_argument("--sets", nargs="+", default=["cub", "cifar100"], choices=sorted(CATEGORIES))
    parser.add_argument("--draws", type=int, default=20, help="draws per set")
    given = parser.parse_args()
    rows = []
    for set_name in given.sets:
        classes = read_classes(given.data, set_name)
        draws = [draw_folder(classes, set_name, number) for number in range(given.draws)]
        files = list(dict.fromkeys(file for draw in draws for file in draw.files))
        features = features_of(files, given.features / f"{set_name}.npz", given)
        rows += [
            second_round(draw, unit_features(np.stack([features[str(file)] for file in draw.files])), seed=0)
            for draw in draws
        ]
    table = np.array(rows)
    for name, column in zip(ARMS, table.T, strict=True):
        difference = column - table[:, 1]
        error = difference.std(ddof=1) / len(difference) ** 0.5
        against = f"{difference.mean():+.3f} (standard error {error:.3f})"
        print(f"{name}: {column.mean():.3f}, against confirmed alone {against}")


if __name__ == "__main__":
    main()
