"""Discover the categories of a folder of images: some are sorted into sub-folders, the others are in `unlabelled`.

python examples/discover_folder.py photos --minutes 30
python examples/discover_folder.py                      # a few handwritten digits, written to a temporary folder
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from sptnet import CategoryDiscoverer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="sub-folders name known categories; digits if not given")
    parser.add_argument("--method", default="auto", help="auto, or a method such as sptnet, orca or kmeans")
    parser.add_argument("--categories", default="auto", help="number of known and new categories, or auto")
    parser.add_argument("--minutes", type=float, help="time limit")
    parser.add_argument("--out", type=Path, help="run directory to write")
    given = parser.parse_args()
    categories = int(given.categories) if given.categories.isdecimal() else given.categories
    if given.folder is not None:
        show(
            CategoryDiscoverer(given.method, categories, minutes=given.minutes, out=given.out, verbose=True),
            given.folder,
        )
        return
    with TemporaryDirectory() as folder:
        write_digits(Path(folder))
        backbone, quick = "sptnet_digits_vit", {"training.batch_size": 32}
        show(CategoryDiscoverer("gcd", 6, backbone, epochs=5, out=given.out, settings=quick), Path(folder))


def show(discoverer: CategoryDiscoverer, folder: Path) -> None:
    """Fit, and print every category with some of its images."""
    discoverer.fit(folder)
    for reason in discoverer.plan_.reasons:
        print(reason)
    for category in discoverer.categories_:
        kind = "new" if category.is_new else "known"
        examples = f", such as {', '.join(category.representatives[:3])}" if category.size else ""
        print(f"{category.name} ({kind}): {category.size} images{examples}")
    unsure = discoverer.probabilities_.max(axis=1).argsort()[:5]
    print("least certain:", ", ".join(discoverer.images_[i] for i in unsure))


def write_digits(folder: Path) -> None:
    """Write digits 0 to 5, with some of 0, 1 and 2 sorted."""
    images, labels = load_digits(return_X_y=True)
    for digit in range(6):
        for n, i in enumerate(np.flatnonzero(labels == digit)[:30]):
            place = folder / (str(digit) if digit < 3 and n < 15 else "unlabelled")
            place.mkdir(exist_ok=True)
            Image.fromarray((images[i].reshape(8, 8) * 15.9).astype(np.uint8)).save(place / f"{digit}-{n:02d}.png")


if __name__ == "__main__":
    main()
