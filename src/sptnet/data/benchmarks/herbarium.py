"""Herbarium 19: 683 plants of the family Melastomataceae."""

from pathlib import Path

from sptnet.data.benchmarks.base import Benchmark, ClassSplit, Expected, class_split, exactly, in_thousands
from sptnet.data.benchmarks.layout import ListedImage, Tree, image_set_of
from sptnet.data.image_set import ImageSet

WHERE = (
    "Herbarium 19 is at https://www.kaggle.com/c/herbarium-2019-fgvc6; the folder must hold small-train/ and "
    "small-validation/ (or train/ and validation/), each with one sub-folder per class."
)
PARTS = (("small-train", "small-validation"), ("train", "validation"))
CLASSES = class_split("herbarium_19")


def read_herbarium(folder: Path, split: ClassSplit = CLASSES) -> ImageSet:
    """Read the class folders; class numbers follow the folder names sorted as strings: 0, 1, 10, 100, 101."""
    tree = Tree.find(folder, [train for train, _ in PARTS], ["herbarium_19"], WHERE)
    train, validation = next(part for part in PARTS if (tree.root / part[0]).exists())
    classes = tree.folders(train)
    if len(classes) != len(split.order):
        raise tree.incomplete(f"{tree.root / train} has {len(classes)} class folders, it must have {len(split.order)}")
    tree.compare_folders(validation, classes, all_of_them=False)
    validated = set(tree.folders(validation))
    listed = [
        ListedImage(id_, number, part == validation)
        for part in (train, validation)
        for number, name in enumerate(classes)
        if part == train or name in validated
        for id_ in tree.walk(f"{part}/{name}")
    ]
    return image_set_of(tree, "herbarium19", listed, classes, split.order)


HERBARIUM = Benchmark(
    name="herbarium19",
    title="Herbarium 19",
    read=read_herbarium,
    n_known=len(CLASSES.known),
    expected=Expected(683, exactly(34225), in_thousands(8.9), in_thousands(25.4), exactly(2679)),
    where=WHERE,
)
