"""Estimate the number of categories: this package's rule compared with the published one, on labelled features.

    python benchmarks/counting.py
    python benchmarks/counting.py --features runs/real --seeds 5
    python benchmarks/counting.py --features runs/real --subsets 8

`--features` names .npz files, or folders that are searched for `features.npz`, with the arrays features, target,
labelled and unlabelled (positions of the training images). The digits are always included; their features are computed.

Both rules run with the seeds 0, 1, ... The error of the published rule is that of `method="brent"` with ten starts of
k-means per count. Its time is that of the plain form: scikit-learn's k-means with ten starts at every evaluation of the
search up to 1000 categories, nothing cached; it runs once, right after this package's rule. Times are CPU seconds, so
other work on the machine does not count.

`--subsets N` instead uses N random subsets of each set: some of its classes, some of those known, half of their points
labelled. It prints the mean error of both rules, and how often the interval contains the true number.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from sklearn.cluster import KMeans

from sptnet.clustering.count import CountEstimate, estimate_n_categories
from sptnet.clustering.points import unit_features
from sptnet.config.recipes import load_recipe
from sptnet.data.load import load_data
from sptnet.inference.features import extract_features
from sptnet.metrics import split_accuracy
from sptnet.model.backbone import build_backbone
from sptnet.runtime.compute import choose_compute

COLUMNS = [
    *("set", "true", "known", "share, per seed", "balance, per seed", "brent, per seed", "errors of the three"),
    *("range of share holds", "seconds", "published, seconds", "ratio"),
]


@dataclass(frozen=True)
class Problem:
    """Features, labels with -1 for unlabelled points, and the true classes."""

    name: str
    points: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]

    @property
    def truth(self) -> int:
        """True number of categories."""
        return len(np.unique(self.target))

    @property
    def n_known(self) -> int:
        """Number of categories with labels."""
        return len(np.unique(self.y[self.y >= 0]))


def problem(
    name: str,
    features: npt.NDArray[np.float32],
    target: npt.NDArray[np.int64],
    labelled: npt.NDArray[np.int64],
    unlabelled: npt.NDArray[np.int64],
) -> Problem:
    """Select the training images of a data set."""
    chosen = np.concatenate([labelled, unlabelled])
    y = np.concatenate([target[labelled], np.full(len(unlabelled), -1)])
    return Problem(name, features[chosen], y, target[chosen])


def read_problems(places: list[Path]) -> list[Problem]:
    """Read feature files; a problem is named after its folder below the given path, or after the file."""
    found = []
    for place in places:
        for file in sorted(place.rglob("features.npz")) if place.is_dir() else [place]:
            inner = file.parent.relative_to(place).parts if place.is_dir() else ()
            arrays = np.load(file)
            columns = (arrays[key] for key in ("features", "target", "labelled", "unlabelled"))
            found.append(problem(inner[0] if inner else file.stem, *columns))
    return found


def digits() -> Problem:
    """Compute the features of the digits with the embedded backbone."""
    config = load_recipe("digits")
    data = load_data(config.data)
    backbone, compute = build_backbone(config.backbone.name), choose_compute("cpu", "float32")
    features = extract_features(backbone, data.image_set.sources, config.views.crop_ratio, compute)
    return problem("digits", features.numpy(), data.split.target, data.split.labelled, data.split.unlabelled)


def published_form(one: Problem, most: int) -> int:
    """Search as published: every evaluation clusters again, and the last count is the estimate."""
    points, known = unit_features(one.points), one.y >= 0

    def loss(x: float) -> float:
        clusters = KMeans(int(x), n_init=10, random_state=0).fit_predict(points)
        return -split_accuracy(one.y[known], clusters[known], range(one.n_known)).all

    return int(minimize_scalar(loss, bounds=(one.n_known, min(most, len(points))), method="bounded").x)


def row(one: Problem, seeds: int, most: int, published: bool, brent: bool) -> list[str]:
    """One row of the table: estimates, errors and times."""
    start = time.process_time()
    ours = [estimate_n_categories(one.points, one.y, random_state=seed) for seed in range(seeds)]
    seconds = (time.process_time() - start) / seeds
    earlier = [
        estimate_n_categories(one.points, one.y, random_state=seed, method="balance").n_categories
        for seed in range(seeds)
    ]
    slow = float("nan")
    if published:
        start = time.process_time()
        published_form(one, most)
        slow = time.process_time() - start
    high = min(most, len(one.points))
    theirs = [
        estimate_n_categories(
            one.points, one.y, max_categories=high, random_state=seed, method="brent", n_repeats=1
        ).n_categories
        for seed in range(seeds if brent else 0)
    ]
    counts = [[found.n_categories for found in ours], earlier, theirs]
    errors = [f"{np.mean([abs(k - one.truth) for k in tried]):.1f}" if tried else "" for tried in counts]
    held = sum(low <= one.truth <= high for low, high in (found.interval for found in ours))
    return [
        *(one.name, str(one.truth), str(one.n_known), *(" ".join(map(str, tried)) for tried in counts)),
        *(", ".join(errors), f"{held} of {seeds}", f"{seconds:.1f}", f"{slow:.1f}", f"{slow / seconds:.0f}"),
    ]


def subset(one: Problem, seed: int) -> Problem:
    """Draw half to all of the classes, 30 to 80 % of them known, with half of the points of known classes labelled."""
    random, target = np.random.RandomState(seed), one.target
    classes = random.permutation(np.unique(target))
    chosen = classes[: random.randint(max(4, len(classes) // 2), len(classes) + 1)]
    known = chosen[: max(2, round(len(chosen) * random.uniform(0.3, 0.8)))]
    kept = np.flatnonzero(np.isin(target, chosen))
    labelled = np.isin(target[kept], known) & (random.uniform(size=len(kept)) < 0.5)
    y = np.where(labelled, np.searchsorted(np.sort(chosen), target[kept]), -1)
    return Problem(f"{one.name} {seed}", one.points[kept], y, target[kept])


def compare_on_subsets(problems: list[Problem], n: int, most: int) -> None:
    """Print errors and intervals on `n` random subsets per problem."""
    columns = ["set", "true / known", "share (plausible)", "brent", "error", "error of brent", "truth is plausible"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    for one in problems:
        parts = [subset(one, seed) for seed in range(n)]
        ours = [estimate_n_categories(part.points, part.y, random_state=0) for part in parts]
        theirs = [
            estimate_n_categories(
                *(part.points, part.y),
                max_categories=min(most, len(part.points)),
                random_state=0,
                method="brent",
                n_repeats=1,
            )
            for part in parts
        ]
        held = [low <= part.truth <= high for part, (low, high) in zip(parts, (e.interval for e in ours), strict=True)]
        cells = [
            one.name,
            ", ".join(f"{part.truth}/{part.n_known}" for part in parts),
            ", ".join(f"{e.n_categories} ({e.interval[0]}-{e.interval[1]})" for e in ours),
            ", ".join(str(e.n_categories) for e in theirs),
            *(f"{100 * relative_error(found, parts):.0f} %" for found in (ours, theirs)),
            f"{sum(held)} of {n}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def relative_error(found: list[CountEstimate], parts: list[Problem]) -> float:
    """Mean relative error of the estimates."""
    return float(np.mean([abs(e.n_categories - part.truth) / part.truth for e, part in zip(found, parts, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="*", default=[], help=".npz files or folders that hold them")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--subsets", type=int, default=0, help="use random subsets of each set instead")
    parser.add_argument(
        "--max", type=int, default=1000, help="largest number of categories that the published rule tries"
    )
    parser.add_argument("--without-published-form", action="store_true", help="skip the slow form and the ratio")
    parser.add_argument("--without-brent", action="store_true", help="skip the published rule")
    arguments = parser.parse_args()
    problems = [digits(), *read_problems(arguments.features)]
    if arguments.subsets:
        compare_on_subsets(problems, arguments.subsets, arguments.max)
        return
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    for one in problems:
        published, brent = not arguments.without_published_form, not arguments.without_brent
        cells = row(one, arguments.seeds, arguments.max, published, brent)
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
