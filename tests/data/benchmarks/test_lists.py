"""CUB, Stanford Cars and FGVC-Aircraft: miniature data sets in the original layouts."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from helpers.benchmark_trees import (
    BIRDS,
    SPLIT,
    assert_published_draw,
    lines,
    pictures,
    true_names,
    write_cub,
)
from sptnet.data.benchmarks.aircraft import read_aircraft
from sptnet.data.benchmarks.cars import read_cars
from sptnet.data.benchmarks.cub import read_cub
from sptnet.errors import Failure, Misuse


@pytest.mark.parametrize("given", ["", "CUB_200_2011"])
def test_cub(tmp_path: Path, given: str) -> None:
    root = write_cub(tmp_path / "CUB_200_2011")
    image_set = read_cub(tmp_path / given, SPLIT)
    assert image_set.name == "cub"
    assert image_set.names == ("003.Cardinal", "001.Albatross", "002.Bunting", "004.Dove")
    order = [i for i in range(1, 25) if i % 3] + [i for i in range(1, 25) if i % 3 == 0]
    assert image_set.ids == tuple(f"images/{BIRDS[(i - 1) % 4]}/bird_{100 - i:02d}.jpg" for i in order)
    assert true_names(image_set) == [BIRDS[(i - 1) % 4] for i in order]
    assert image_set.test.tolist() == [False] * 16 + [True] * 8
    assert image_set.sources[0] == root / image_set.ids[0]
    assert_published_draw(image_set, 2)


def drop_line(file: str, start: str) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        kept = [line for line in (root / file).read_text().splitlines() if not line.startswith(start)]
        lines(root / file, *kept)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "train_test_split.txt").unlink(), r"CUB_200_2011 has no train_test_split\.txt\. Fetch"),
        (lambda root: (root / "classes.txt").unlink(), r"has no classes\.txt\."),
        (
            lambda root: (root / "images/001.Albatross/bird_99.jpg").unlink(),
            r"lacks 1 image that its lists name: images/001\.Albatross/bird_99\.jpg\. Fetch it again: CUB-200-2011 is",
        ),
        (lambda root: shutil.rmtree(root / "images/004.Dove"), r"lacks 6 images that its lists name: images/004\.Dove"),
        (
            lambda root: (root / "images/005.Eagle").mkdir(),
            r"images has 1 class folder too many: 005\.Eagle\.",
        ),
        (drop_line("image_class_labels.txt", "7 "), r"image_class_labels\.txt says nothing of image 7\."),
        (drop_line("classes.txt", "4 "), r"image_class_labels\.txt says 4 of image 4\."),
        (drop_line("train_test_split.txt", "9 "), r"train_test_split\.txt says nothing of image 9\."),
        (lambda root: lines(root / "train_test_split.txt", "1 2"), r"train_test_split\.txt says 2 of image 1\."),
        (lambda root: lines(root / "images.txt", "1"), r"images\.txt has a damaged line, '1'\."),
    ],
)
def test_an_incomplete_cub_is_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(write_cub(tmp_path / "CUB_200_2011"))
    with pytest.raises(Failure, match=message):
        read_cub(tmp_path, SPLIT)


def test_cub_without_its_main_list_is_not_recognised(tmp_path: Path) -> None:
    (write_cub(tmp_path / "CUB_200_2011") / "images.txt").unlink()
    with pytest.raises(Misuse, match=r"has no images\.txt, nor has CUB_200_2011 inside it\. CUB-200-2011 is at"):
        read_cub(tmp_path, SPLIT)


def test_the_number_of_birds_must_be_right(tmp_path: Path) -> None:
    write_cub(tmp_path)
    with pytest.raises(Failure, match=r"has 4 classes, cub has 200\."):
        read_cub(tmp_path)


MODELS = ["AM General Hummer SUV 2000", "Ram C/V Cargo Van Minivan 2012", "Audi TT Hatchback 2011", "Fisker Karma"]


def struct_array(fields: list[str], rows: list[tuple[Any, ...]]) -> np.ndarray:
    """A 1xN MATLAB struct array."""
    array = np.empty((1, len(rows)), dtype=[(field, object) for field in fields])
    for i, row in enumerate(rows):
        array[0, i] = row
    return array


def cell(words: list[str]) -> np.ndarray:
    array = np.empty((1, len(words)), dtype=object)
    array[0, :] = words
    return array


def write_cars(root: Path, devkit: str = "devkit", test_labels: str = "", n_train: int = 12, n_test: int = 5) -> Path:
    """Image 00001 of the list is the last by name, so that sorting would change the order."""
    box = ["bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2"]
    (root / devkit).mkdir(parents=True)
    for part, n, file in (
        ("cars_train", n_train, root / devkit / "cars_train_annos.mat"),
        ("cars_test", n_test, root / test_labels / "cars_test_annos_withlabels.mat"),
    ):
        rows = [(1, 2, 3, 4, i % 4 + 1, f"{n - i:05d}.jpg") for i in range(n)]
        savemat(file, {"annotations": struct_array([*box, "class", "fname"], rows)}, do_compression=True)
        pictures(root / part, *(row[-1] for row in rows))
    savemat(root / devkit / "cars_meta.mat", {"class_names": cell(MODELS)})
    return root


@pytest.mark.parametrize(
    ("devkit", "test_labels", "given"),
    [
        ("devkit", "", ""),
        ("devkit", "devkit", ""),
        ("car_devkit/devkit", "car_devkit/devkit", ""),
        ("devkit", "", "up"),
    ],
)
def test_cars(tmp_path: Path, devkit: str, test_labels: str, given: str) -> None:
    root = write_cars(tmp_path / "stanford_cars", devkit, test_labels)
    image_set = read_cars(tmp_path if given else root, SPLIT)
    assert image_set.name == "cars"
    assert image_set.names == (MODELS[2], MODELS[0], MODELS[1], MODELS[3])
    train = [f"cars_train/{12 - i:05d}.jpg" for i in range(12)]
    assert image_set.ids == (*train, *(f"cars_test/{5 - i:05d}.jpg" for i in range(5)))
    assert true_names(image_set) == [MODELS[i % 4] for i in range(12)] + [MODELS[i % 4] for i in range(5)]
    assert image_set.test.tolist() == [False] * 12 + [True] * 5
    assert_published_draw(image_set, 2)


def test_cars_with_a_single_training_image(tmp_path: Path) -> None:
    image_set = read_cars(write_cars(tmp_path / "set", n_train=1), SPLIT)
    assert image_set.ids[0] == "cars_train/00001.jpg" and image_set.ids[1].startswith("cars_test/")


def write_one_list(root: Path) -> Path:
    fields = ["relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "test"]
    rows = [(f"car_ims/{i + 1:06d}.jpg", 1, 2, 3, 4, i // 3 + 1, int(i % 3 == 0)) for i in range(12)]
    root.mkdir(parents=True, exist_ok=True)
    savemat(root / "cars_annos.mat", {"annotations": struct_array(fields, rows), "class_names": cell(MODELS)})
    pictures(root, *(row[0] for row in rows))
    return root


def test_cars_in_one_list(tmp_path: Path) -> None:
    image_set = read_cars(write_one_list(tmp_path), SPLIT)
    order = [i for i in range(12) if i % 3] + [0, 3, 6, 9]
    assert image_set.ids == tuple(f"car_ims/{i + 1:06d}.jpg" for i in order)
    assert true_names(image_set) == [MODELS[i // 3] for i in order]
    assert image_set.test.tolist() == [False] * 8 + [True] * 4


def test_two_lists_go_before_one(tmp_path: Path) -> None:
    write_one_list(tmp_path)
    write_cars(tmp_path)
    assert read_cars(tmp_path, SPLIT).ids[0] == "cars_train/00012.jpg"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "cars_test_annos_withlabels.mat").unlink(), r"has no cars_test_annos_withlabels\.mat\."),
        (lambda root: (root / "devkit/cars_meta.mat").unlink(), r"has no devkit/cars_meta\.mat\."),
        (lambda root: shutil.rmtree(root / "cars_test"), r"lacks 5 images that its lists name: cars_test/00005\.jpg"),
        (
            lambda root: savemat(root / "devkit/cars_meta.mat", {"other": [1]}),
            r"cars_meta\.mat is damaged or has no class_names\.",
        ),
        (
            lambda root: (root / "devkit/cars_train_annos.mat").write_bytes(b"x" * 300),
            r"cars_train_annos\.mat is damaged or has no annotations\.",
        ),
        (
            lambda root: savemat(
                root / "cars_test_annos_withlabels.mat", {"annotations": struct_array(["fname"], [("00001.jpg",)])}
            ),
            r"the annotations of .*cars_test_annos_withlabels\.mat have no field class\.",
        ),
        (
            lambda root: savemat(root / "devkit/cars_meta.mat", {"class_names": cell(MODELS[:3])}),
            r"the class of cars_train/00009\.jpg has no name in the lists of",
        ),
        (
            lambda root: savemat(root / "devkit/cars_meta.mat", {"class_names": cell([*MODELS, "more"])}),
            r"has 5 classes, cars has 4\.",
        ),
    ],
)
def test_incomplete_cars_are_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(write_cars(tmp_path / "set"))
    with pytest.raises(Failure, match=message + r".*Stanford Cars is no longer at its makers' page"):
        read_cars(tmp_path / "set", SPLIT)


def test_a_truncated_list_of_cars_is_refused(tmp_path: Path) -> None:
    file = write_cars(tmp_path / "set") / "devkit/cars_train_annos.mat"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(Failure, match=r"cars_train_annos\.mat is damaged or has no annotations\."):
        read_cars(tmp_path / "set", SPLIT)


def test_no_cars(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"has no devkit/cars_train_annos\.mat and no .* and no cars_annos\.mat, nor has"):
        read_cars(tmp_path, SPLIT)


VARIANTS = ["737-200", "707-320", "F/A-18", "Boeing 717"]
IN_ORDER = ["707-320", "737-200", "Boeing 717", "F/A-18"]


def write_aircraft(root: Path) -> Path:
    """Ids decrease along the training list, so that sorting would change its order."""
    train = [(f"{9000 - i:07d}", VARIANTS[i % 4]) for i in range(16)]
    test = [(f"{100 + i:07d}", VARIANTS[i % 4]) for i in range(4)]
    lines(root / "images_variant_trainval.txt", *(f"{image} {variant}" for image, variant in train))
    lines(root / "images_variant_test.txt", *(f"{image} {variant}" for image, variant in test))
    pictures(root / "images", *(f"{image}.jpg" for image, _ in train + test))
    return root


@pytest.mark.parametrize("given", ["", "fgvc-aircraft-2013b", "fgvc-aircraft-2013b/data"])
def test_aircraft(tmp_path: Path, given: str) -> None:
    write_aircraft(tmp_path / "fgvc-aircraft-2013b" / "data")
    image_set = read_aircraft(tmp_path / given, SPLIT)
    assert image_set.name == "aircraft"
    assert image_set.names == tuple(IN_ORDER[i] for i in (2, 0, 1, 3))
    train = [f"images/{9000 - i:07d}.jpg" for i in range(16)]
    assert image_set.ids == (*train, *(f"images/{100 + i:07d}.jpg" for i in range(4)))
    assert true_names(image_set) == VARIANTS * 5
    assert image_set.test.tolist() == [False] * 16 + [True] * 4
    assert_published_draw(image_set, 2)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "images_variant_test.txt").unlink(), r"has no images_variant_test\.txt\."),
        (
            lambda root: (root / "images/0009000.jpg").unlink(),
            r"lacks 1 image that its lists name: images/0009000\.jpg",
        ),
        (
            lambda root: lines(root / "images_variant_test.txt", "0000100 A380"),
            r"images_variant_test\.txt names a variant A380 that has no training image\.",
        ),
        (lambda root: lines(root / "images_variant_test.txt", "0000100"), r"has a damaged line, '0000100'\."),
        (
            lambda root: lines(
                root / "images_variant_trainval.txt", *(f"{9000 - i:07d} {VARIANTS[0]}" for i in range(16))
            ),
            r"names a variant 707-320 that has no training image",
        ),
    ],
)
def test_an_incomplete_aircraft_is_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(write_aircraft(tmp_path))
    with pytest.raises(Failure, match=message):
        read_aircraft(tmp_path, SPLIT)


def test_the_number_of_variants_must_be_right(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"has 4 classes, aircraft has 100\."):
        read_aircraft(write_aircraft(tmp_path))
