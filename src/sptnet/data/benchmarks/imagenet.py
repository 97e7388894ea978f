"""ImageNet-1K and its subset ImageNet-100."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from sptnet.data.benchmarks.base import Benchmark, Expected, exactly, in_thousands
from sptnet.data.benchmarks.layout import ListedImage, Tree, image_set_of
from sptnet.data.image_set import ImageSet
from sptnet.runtime.readers import read_csv
from sptnet.runtime.text import printable

SOLUTION = "LOC_val_solution.csv"
WHERE = (
    "ImageNet (ILSVRC 2012) is at https://image-net.org and at "
    "https://www.kaggle.com/c/imagenet-object-localization-challenge; the folder must hold train/n01440764/ and so on "
    "and val/n01440764/ and so on, directly or below ILSVRC/Data/CLS-LOC/. A val/ without sub-folders needs Kaggle's "
    f"{SOLUTION} at the top of the folder."
)


def chosen_classes(classes: int = 1000, chosen: int = 100) -> list[int]:
    """Return the published choice of ImageNet-100 as positions in the sorted synsets."""
    return sorted(np.random.RandomState(0).choice(classes, chosen, replace=False).tolist())


def read_imagenet(folder: Path, name: str = "imagenet1k", chosen: int | None = None, classes: int = 1000) -> ImageSet:
    """Read synsets and files in sorted order; with `chosen`, only that many synsets are read."""
    tree = Tree.find(folder, ["train"], ["ILSVRC/Data/CLS-LOC"], WHERE)
    synsets = tree.folders("train")
    if len(synsets) != classes:
        raise tree.incomplete(
            f"{tree.root / 'train'} must have {classes} synset folders, found {len(synsets)} (a subset of your own "
            "can be read as a plain folder)"
        )
    kept = synsets if chosen is None else [synsets[i] for i in chosen_classes(classes, chosen)]
    number = {synset: i for i, synset in enumerate(kept)}
    listed = [ListedImage(id_, number[synset], False) for synset in kept for id_ in tree.walk(f"train/{synset}")]
    if tree.folders("val"):
        tree.compare_folders("val", synsets)
        listed += [ListedImage(id_, number[synset], True) for synset in kept for id_ in tree.walk(f"val/{synset}")]
    else:
        flat = [ListedImage(id_, number[synset], True) for id_, synset in _flat_val(tree, folder) if synset in number]
        tree.require(image.id for image in flat)
        listed += flat
    return image_set_of(tree, name, listed, kept, range(len(kept)))


def _flat_val(tree: Tree, folder: Path) -> Iterator[tuple[str, str]]:
    file = next((path / SOLUTION for path in (folder, tree.root) if (path / SOLUTION).is_file()), None)
    if file is None:
        raise tree.incomplete(f"{tree.root / 'val'} has no synset folders, and there is no {SOLUTION} to sort it by")
    again, says = f"Fetch it again: {tree.where}", "is not a CSV file"
    for row in read_csv(file, again, says=says, errors="strict", strict=False).rows:
        words = (row.get("PredictionString") or "").split()
        if not row.get("ImageId") or not words:
            raise tree.incomplete(f"{file} has a damaged line, {printable(','.join(map(str, row.values())))!r}")
        yield f"val/{row['ImageId']}.JPEG", words[0]


IMAGENET_1K = Benchmark(
    name="imagenet1k",
    title="ImageNet-1K",
    read=read_imagenet,
    n_known=500,
    expected=Expected(1000, train=exactly(1281167), test=exactly(50000)),
    where=WHERE,
)
IMAGENET_100 = Benchmark(
    name="imagenet100",
    title="ImageNet-100",
    read=partial(read_imagenet, name="imagenet100", chosen=100),
    n_known=50,
    expected=Expected(100, labelled=in_thousands(31.9), unlabelled=in_thousands(95.3), test=exactly(5000)),
    where=WHERE,
)
