"""ImageNet and Herbarium 19: class folders, in the order in which torchvision's ImageFolder reads them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import ImageFolder

from helpers.benchmark_trees import assert_published_draw, lines, pictures, true_names
from sptnet.data.benchmarks.base import ClassSplit
from sptnet.data.benchmarks.herbarium import read_herbarium
from sptnet.data.benchmarks.imagenet import chosen_classes, read_imagenet
from sptnet.errors import Failure, Misuse

SYNSETS = [f"n{number:08d}" for number in (1440764, 1443537, 1484850, 2000001, 3000002, 3000003, 4000000, 9000000)]


def write_imagenet(root: Path, flat: bool = False, per_class: int = 3) -> Path:
    for c, synset in enumerate(SYNSETS):
        pictures(root / "train" / synset, *(f"{synset}_{10**i}.JPEG" for i in range(per_class)))
        pictures(root / "val" / ("" if flat else synset), f"ILSVRC2012_val_{50 - c:08d}.JPEG")
    return root


def solution(folder: Path) -> Path:
    """Kaggle's list: a synset and a box per object of an image, unordered."""
    rows = [f"ILSVRC2012_val_{50 - c:08d},{synset} 1 2 3 4 {synset} 5 6 7 8 " for c, synset in enumerate(SYNSETS)]
    return lines(folder / "LOC_val_solution.csv", "ImageId,PredictionString", *rows[::-1])


def test_the_choice_of_imagenet_100_is_the_published_one() -> None:
    np.random.seed(0)
    theirs = np.sort(np.random.choice(range(1000), size=(100,), replace=False))
    assert chosen_classes() == theirs.tolist()
    assert len(set(chosen_classes())) == 100
    assert chosen_classes(8, 4) == sorted(np.random.RandomState(0).permutation(8)[:4])


@pytest.mark.parametrize("folder", ["", "ILSVRC/Data/CLS-LOC"])
def test_imagenet(tmp_path: Path, folder: str) -> None:
    root = write_imagenet(tmp_path / folder)
    image_set = read_imagenet(tmp_path, classes=8)
    assert image_set.name == "imagenet1k"
    assert image_set.names == tuple(SYNSETS)
    theirs = [ImageFolder(root / part) for part in ("train", "val")]
    samples = [sample for folder in theirs for sample in folder.samples]
    assert list(image_set.ids) == [Path(path).relative_to(root).as_posix() for path, _ in samples]
    assert image_set.labels.tolist() == [label for _, label in samples]
    assert image_set.test.tolist() == [False] * 24 + [True] * 8
    assert_published_draw(image_set, 2)


def test_imagenet_100_takes_its_part(tmp_path: Path) -> None:
    root = write_imagenet(tmp_path)
    kept = [SYNSETS[i] for i in chosen_classes(8, 4)]
    shutil.rmtree(root / "train" / next(synset for synset in SYNSETS if synset not in kept))
    (root / "train" / next(synset for synset in SYNSETS if synset not in kept)).mkdir()  # empty, and never read
    image_set = read_imagenet(tmp_path, name="imagenet100", chosen=4, classes=8)
    assert image_set.name == "imagenet100"
    assert image_set.names == tuple(kept)
    assert true_names(image_set) == [synset for synset in kept for _ in range(3)] + kept
    assert all(id_.split("/")[1] == name for id_, name in zip(image_set.ids, true_names(image_set), strict=True))


@pytest.mark.parametrize("folder", ["", "ILSVRC/Data/CLS-LOC"])
def test_a_flat_val_is_sorted_by_kaggles_list(tmp_path: Path, folder: str) -> None:
    write_imagenet(tmp_path / folder, flat=True)
    solution(tmp_path)
    image_set = read_imagenet(tmp_path, classes=8)
    tests = {id_: image_set.names[label] for id_, label in zip(image_set.ids[24:], image_set.labels[24:], strict=True)}
    assert tests == {f"val/ILSVRC2012_val_{50 - c:08d}.JPEG": synset for c, synset in enumerate(SYNSETS)}
    assert image_set.test.tolist() == [False] * 24 + [True] * 8
    part = read_imagenet(tmp_path, chosen=4, classes=8)
    assert true_names(part)[12:] == list(part.names)[::-1]


def test_a_flat_val_without_the_list_is_refused(tmp_path: Path) -> None:
    write_imagenet(tmp_path, flat=True)
    with pytest.raises(
        Failure, match=r"val has no synset folders, and there is no LOC_val_solution\.csv to sort it by\."
    ):
        read_imagenet(tmp_path, classes=8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ImageId,PredictionString\nILSVRC2012_val_1,\n", r"damaged line, 'ILSVRC2012_val_1,'\."),
        (b"a,b\nc,d\n", r"LOC_val_solution\.csv has a damaged line, 'c,d'\."),
        (b"ImageId,PredictionString\n\xff\xfe,x\n", r"LOC_val_solution\.csv is not a CSV file \(.*\)\. Fetch"),
        (
            f"ImageId,PredictionString\nnone,{SYNSETS[0]} 1\n".encode(),
            r"lacks 1 image that its lists name: val/none\.JPEG",
        ),
    ],
)
def test_a_damaged_list_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    write_imagenet(tmp_path, flat=True)
    (tmp_path / "LOC_val_solution.csv").write_bytes(content)
    with pytest.raises(Failure, match=message):
        read_imagenet(tmp_path, classes=8)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda root: shutil.rmtree(root / "train" / SYNSETS[3]),
            r"train must have 8 synset folders, found 7 \(a subset",
        ),
        (lambda root: (root / "train/extra").mkdir(), r"train must have 8 synset folders, found 9"),
        (
            lambda root: shutil.rmtree(root / "val"),
            r"has no folder val\. Fetch it again: ImageNet \(ILSVRC 2012\) is at",
        ),
        (lambda root: shutil.rmtree(root / "val" / SYNSETS[1]), rf"val lacks 1 class folder: {SYNSETS[1]}\."),
        (lambda root: (root / "val/extra").mkdir(), r"val has 1 class folder too many: extra\."),
        (
            lambda root: (root / "val" / SYNSETS[0] / "ILSVRC2012_val_00000050.JPEG").unlink(),
            rf"val/{SYNSETS[0]} holds no image\.",
        ),
    ],
)
def test_an_incomplete_imagenet_is_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(write_imagenet(tmp_path))
    with pytest.raises(Failure, match=message):
        read_imagenet(tmp_path, classes=8)


def test_no_imagenet(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"has no train, nor has ILSVRC/Data/CLS-LOC inside it\."):
        read_imagenet(tmp_path)


HERBS = ["0", "1", "10", "100", "2", "21"]
HERB_SPLIT = ClassSplit(known=(4, 2, 0), new=(1, 3, 5))


def write_herbarium(root: Path, parts: tuple[str, str] = ("small-train", "small-validation")) -> Path:
    for herb in HERBS:
        pictures(root / parts[0] / herb, *(f"{i}.jpg" for i in (9, 10, 11, 8)))
        pictures(root / parts[1] / herb, "7.jpg")
    return root


@pytest.mark.parametrize("parts", [("small-train", "small-validation"), ("train", "validation")])
@pytest.mark.parametrize("given", ["", "herbarium_19"])
def test_herbarium(tmp_path: Path, parts: tuple[str, str], given: str) -> None:
    root = write_herbarium(tmp_path / "herbarium_19", parts)
    image_set = read_herbarium(tmp_path / given, HERB_SPLIT)
    assert image_set.name == "herbarium19"
    assert image_set.names == ("2", "10", "0", "1", "100", "21")
    samples = [sample for part in parts for sample in ImageFolder(root / part).samples]
    assert list(image_set.ids) == [Path(path).relative_to(root).as_posix() for path, _ in samples]
    assert true_names(image_set) == [HERBS[number] for _, number in samples]
    assert image_set.test.tolist() == [False] * 24 + [True] * 6
    assert_published_draw(image_set, 3)


def test_the_small_parts_go_first(tmp_path: Path) -> None:
    write_herbarium(tmp_path)
    write_herbarium(tmp_path, ("train", "validation"))
    assert read_herbarium(tmp_path, HERB_SPLIT).ids[0].startswith("small-train/")


def test_a_class_may_lack_validation_images(tmp_path: Path) -> None:
    write_herbarium(tmp_path)
    shutil.rmtree(tmp_path / "small-validation" / "10")
    assert int(read_herbarium(tmp_path, HERB_SPLIT).test.sum()) == 5


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: shutil.rmtree(root / "small-train/21"), r"small-train has 5 class folders, it must have 6\."),
        (lambda root: (root / "small-train/3").mkdir(), r"small-train has 7 class folders, it must have 6\."),
        (lambda root: shutil.rmtree(root / "small-validation"), r"has no folder small-validation\."),
        (lambda root: (root / "small-validation/3").mkdir(), r"1 class folder too many: 3\."),
    ],
)
def test_an_incomplete_herbarium_is_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(write_herbarium(tmp_path))
    with pytest.raises(Failure, match=message):
        read_herbarium(tmp_path, HERB_SPLIT)


def test_no_herbarium(tmp_path: Path) -> None:
    with pytest.raises(
        Misuse, match=r"has no small-train and no train, nor has herbarium_19 inside it\. Herbarium 19 is"
    ):
        read_herbarium(tmp_path)
