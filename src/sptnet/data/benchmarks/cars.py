"""Stanford Cars: 196 models of cars, in either of the two original folder layouts."""

from pathlib import Path
from typing import Any

import numpy as np

from sptnet.data.benchmarks.base import Benchmark, ClassSplit, Expected, class_split, exactly, in_thousands
from sptnet.data.benchmarks.layout import ListedImage, Tree, image_set_of
from sptnet.data.image_set import ImageSet

WHERE = (
    "Stanford Cars is no longer at its makers' page; copies are on Kaggle and elsewhere. The folder must hold "
    "cars_train/, cars_test/, devkit/ with cars_train_annos.mat and cars_meta.mat, and "
    "cars_test_annos_withlabels.mat. The other arrangement, car_ims/ with cars_annos.mat, is read too, but its images "
    "have another order, so other images get labels than in published results."
)
DEVKITS = ("devkit", "car_devkit/devkit")
TEST_LABELS = "cars_test_annos_withlabels.mat"
CLASSES = class_split("stanford_cars")


def read_cars(folder: Path, split: ClassSplit = CLASSES) -> ImageSet:
    """Read the images in the order of the annotations, on which the published draw of labelled images depends.

    The layout with a single cars_annos.mat has another order of images, hence another draw than the published one.
    """
    train_lists = [f"{devkit}/cars_train_annos.mat" for devkit in DEVKITS]
    tree = Tree.find(folder, [*train_lists, "cars_annos.mat"], ["stanford_cars"], WHERE)
    devkit = next((kit for kit in DEVKITS if (tree.root / kit / "cars_train_annos.mat").exists()), None)
    if devkit is None:
        classes, listed = _one_list(tree)
    else:
        classes, listed = _two_lists(tree, devkit)
    strangers = [image.id for image in listed if not 0 <= image.label < len(classes)]
    if strangers:
        raise tree.incomplete(f"the class of {strangers[0]} has no name in the lists of {tree.root}")
    tree.require(image.id for image in listed)
    return image_set_of(tree, "cars", listed, classes, split.order)


def _two_lists(tree: Tree, devkit: str) -> tuple[list[str], list[ListedImage]]:
    classes = [str(name) for name in _variable(tree, f"{devkit}/cars_meta.mat", "class_names")]
    with_labels = [kit for kit in ("", *(f"{kit}/" for kit in DEVKITS)) if (tree.root / kit / TEST_LABELS).exists()]
    parts = (
        ("cars_train", f"{devkit}/cars_train_annos.mat", False),
        ("cars_test", f"{with_labels[0] if with_labels else ''}{TEST_LABELS}", True),
    )
    listed = []
    for folder, file, test in parts:
        for row in _variable(tree, file, "annotations", "class", "fname"):
            listed.append(ListedImage(f"{folder}/{row['fname']}", int(row["class"]) - 1, test))
    return classes, listed


def _one_list(tree: Tree) -> tuple[list[str], list[ListedImage]]:
    classes = [str(name) for name in _variable(tree, "cars_annos.mat", "class_names")]
    rows = _variable(tree, "cars_annos.mat", "annotations", "class", "relative_im_path", "test")
    return classes, [
        ListedImage(str(row["relative_im_path"]), int(row["class"]) - 1, bool(row["test"])) for row in rows
    ]


def _variable(tree: Tree, file: str, name: str, *fields: str) -> Any:
    """Return a variable of a MATLAB file as an array of names, or of records with these fields."""
    from scipy.io import loadmat

    path = tree.file(file)
    try:
        values = np.atleast_1d(loadmat(path, squeeze_me=True)[name])
    except Exception as error:  # SciPy raises many kinds of exceptions on damaged files
        raise tree.incomplete(f"{path} is damaged or has no {name}") from error
    missing = [field for field in fields if field not in (values.dtype.names or ())]
    if missing:
        raise tree.incomplete(f"the {name} of {path} have no field {missing[0]}")
    return values


CARS = Benchmark(
    name="cars",
    title="Stanford Cars",
    read=read_cars,
    n_known=len(CLASSES.known),
    expected=Expected(196, exactly(8144), in_thousands(2.0), in_thousands(6.1), exactly(8041)),
    where=WHERE,
)
