"""Compare the accuracy of methods on unlabelled images with known classes, over several seeds.

python examples/compare_methods.py --methods kmeans gcd simgcd sptnet --images 1797 --epochs 24 --seeds 0 1 2
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits

from sptnet import CategoryDiscoverer, split_accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["kmeans", "gcd"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--images", type=int, default=200, help="how many of the 1,797 handwritten digits")
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args()

    pixels, truth = load_digits(return_X_y=True)
    pixels, truth = pixels[: given.images], truth[: given.images]
    images = (pixels.reshape(-1, 8, 8) * 15.9).astype(np.uint8)
    known = truth < 5
    random = np.random.RandomState(0)
    labels = np.where(known & (random.rand(len(truth)) < 0.5), truth, -1)
    hidden = labels < 0
    print(f"{len(truth)} images, {int((~hidden).sum())} labelled of 5 known classes; 10 classes in all")

    for method in given.methods:
        scores = []
        for seed in given.seeds:
            discoverer = CategoryDiscoverer(method, 10, "sptnet_digits_vit", random_state=seed, epochs=given.epochs)
            found = discoverer.fit_predict(images, labels)
            score = split_accuracy(truth[hidden], found[hidden], range(5))
            scores.append([score.all, score.old, score.new])
        mean, spread = np.mean(scores, axis=0), np.std(scores, axis=0, ddof=min(1, len(scores) - 1))
        numbers = zip(("All", "Old", "New"), mean, spread, strict=True)
        print(f"{method:8}", "  ".join(f"{name} {100 * m:.1f} ± {100 * s:.1f}" for name, m, s in numbers))


if __name__ == "__main__":
    main()
