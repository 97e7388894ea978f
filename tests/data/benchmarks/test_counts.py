"""Published class lists, the split of a benchmark, and counts compared with the expected ones."""

import dataclasses
from importlib.resources import files
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.benchmark_trees import SPLIT, write_cub, write_pacs
from sptnet.config import DataSource
from sptnet.data.benchmarks import BENCHMARKS, find_benchmark, read_benchmark
from sptnet.data.benchmarks.base import ClassSplit, Expectation, SplitCounts, class_split, exactly, in_thousands
from sptnet.data.benchmarks.counts import (
    CountRow,
    check_counts,
    count_parts,
    count_rows,
    expectations,
    refuse_differences,
)
from sptnet.data.benchmarks.cub import CUB, read_cub
from sptnet.data.benchmarks.domains import PACS, read_pacs
from sptnet.data.image_set import ImageSet
from sptnet.data.split import make_split
from sptnet.data.split_file import read_split, write_split
from sptnet.errors import Failure, Misuse


@pytest.mark.parametrize(
    ("name", "known", "new"),
    [
        ("cub", 100, (34, 34, 32)),
        ("stanford_cars", 98, (7, 15, 76)),
        ("fgvc_aircraft", 50, (13, 17, 20)),
        ("herbarium_19", 341, (342,)),
    ],
)
def test_the_class_lists_are_whole(name: str, known: int, new: tuple[int, ...]) -> None:
    split = class_split(name)
    assert len(split.known) == known
    assert len(split.new) == sum(new)
    assert sorted(split.order) == list(range(known + sum(new)))


def test_new_classes_run_from_hard_to_easy() -> None:
    assert class_split("cub").known[:3] == (150, 70, 34)
    new = class_split("cub").new
    assert (new[0], new[34], new[68]) == (29, 152, 20)  # the first of hard, medium and easy
    new = class_split("stanford_cars").new
    assert (new[0], new[7], new[22]) == (23, 3, 4)
    new = class_split("fgvc_aircraft").new
    assert (new[0], new[13], new[30]) == (6, 78, 80)
    assert class_split("herbarium_19").new[:3] == (2, 4, 5)


def test_the_lists_come_with_the_package() -> None:
    assert files("sptnet.data.benchmarks").joinpath("class_splits.json").is_file()
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert '"data/benchmarks/*.json"' in text


def test_every_source_of_the_settings_is_there() -> None:
    assert sorted(BENCHMARKS) == sorted(set(get_args(DataSource)) - {"digits", "folder", "domains"})
    for name, benchmark in BENCHMARKS.items():
        assert benchmark.name == name
        assert 0 < benchmark.n_known < benchmark.expected.classes


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(
        Misuse, match=r"^there is no data set cifar\. Did you mean cifar10\? Those there are: cifar10, "
    ):
        read_benchmark("cifar", "anywhere")
    with pytest.raises(Misuse, match=r"^there is no data set zzz\. Those there are: .*fashion_mnist, folder\.$"):
        find_benchmark("zzz", others=["folder"])


@pytest.mark.parametrize(
    ("expectation", "text", "inside", "outside"),
    [
        (exactly(1498), "1,498", [1498], [1497, 1499]),
        (in_thousands(2.0), "2.0K", [1950, 2000, 2050], [1949, 2051]),
        (in_thousands(31.9), "31.9K", [31850, 31860, 31949], [31849, 31951]),
        (in_thousands(95.3), "95.3K", [95255], [95200]),
    ],
)
def test_expectations(expectation: Expectation, text: str, inside: list[int], outside: list[int]) -> None:
    assert str(expectation) == text
    assert all(expectation.agrees(number) for number in inside)
    assert not any(expectation.agrees(number) for number in outside)


def test_labelled_and_unlabelled_add_up_to_the_original_data_set() -> None:
    for benchmark in BENCHMARKS.values():
        expected = benchmark.expected
        if expected.train and expected.labelled and expected.unlabelled:
            gap = expected.train.value - expected.labelled.value - expected.unlabelled.value
            assert abs(gap) <= (expected.labelled.step + expected.unlabelled.step) / 2, benchmark.name


def image_set_with(labels: list[int], test: list[bool], n_classes: int) -> ImageSet:
    ids = tuple(map(str, range(len(labels))))
    sources = tuple(np.zeros((1, 1), np.uint8) for _ in labels)
    names = tuple(f"class{i}" for i in range(n_classes))
    return ImageSet("set", ids, sources, names, np.array(labels, np.int64), None, np.array(test, np.bool_))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_labelled_and_unlabelled_never_overlap_and_cover_the_training_images(data: st.DataObject) -> None:
    n_classes = data.draw(st.integers(2, 6))
    images = data.draw(st.lists(st.tuples(st.integers(0, n_classes - 1), st.booleans()), min_size=1, max_size=60))
    known = data.draw(st.integers(1, n_classes))
    share = data.draw(st.floats(0.1, 1.0))
    image_set = image_set_with([label for label, _ in images], [test for _, test in images], n_classes)
    candidates = [i for i, (label, test) in enumerate(images) if label < known and not test]
    try:
        split = make_split(image_set, known, share, seed=data.draw(st.integers(0, 5)))
    except Misuse as refused:
        assert "has no labelled training image" in str(refused) or "no unlabelled image is left" in str(refused)
        return
    labelled, unlabelled = set(split.labelled.tolist()), set(split.unlabelled.tolist())
    assert labelled & unlabelled == set()
    assert labelled | unlabelled == {i for i, (_, test) in enumerate(images) if not test}
    assert labelled <= set(candidates)
    assert len(labelled) == int(share * len(candidates))
    counts = count_parts(split)
    assert counts == SplitCounts(
        labelled=len(labelled),
        labelled_classes=known,
        unlabelled=len(unlabelled),
        unlabelled_classes=len({images[i][0] for i in unlabelled}),
        test=sum(test for _, test in images),
    )


def test_the_split_of_a_benchmark_is_written_and_read_back(tmp_path: Path) -> None:
    image_set = read_cub(write_cub(tmp_path / "set"), SPLIT)
    split = make_split(image_set, 2)
    write_split(split, image_set, tmp_path / "split.json")
    again = read_split(tmp_path / "split.json", image_set)
    assert again.classes == split.classes == image_set.names
    for part in ("labelled", "unlabelled", "holdout", "test", "target"):
        np.testing.assert_array_equal(getattr(again, part), getattr(split, part))


def test_held_out_images_count_as_labelled_and_unknown_truths_as_no_class() -> None:
    image_set = image_set_with([0, 0, 0, 0, 1, 1, 2, 2], [False] * 7 + [True], 3)
    split = make_split(image_set, 1, labelled_share=0.75, holdout_share=0.5)
    assert len(split.holdout) > 0
    assert count_parts(split).labelled == 3
    given = np.array([True, True, False, False, False, False, False, False])
    partly = dataclasses.replace(image_set, given=given, labels=np.array([0, 1, -1, -1, 2, 2, 2, 2]))
    assert count_parts(make_split(partly)) == SplitCounts(2, 2, 5, 1, 1)


@pytest.fixture
def small_cub(tmp_path: Path) -> ImageSet:
    return read_cub(write_cub(tmp_path), SPLIT)


def test_right_counts_pass(small_cub: ImageSet) -> None:
    split = make_split(small_cub, 2)
    expected = dataclasses.replace(
        CUB.expected, classes=4, train=exactly(16), labelled=exactly(4), unlabelled=exactly(12), test=exactly(8)
    )
    small = dataclasses.replace(CUB, n_known=2, expected=expected)
    rows = count_rows(small_cub, split, expectations(small))
    assert [(row.what, row.found, str(row.expected)) for row in rows] == [
        ("training images", 16, "16"),
        ("labelled images", 4, "4"),
        ("labelled classes", 2, "2"),
        ("unlabelled images", 12, "12"),
        ("unlabelled classes", 4, "4"),
        ("test images", 8, "8"),
    ]
    refuse_differences(rows, small)
    check_counts(small, small_cub)


def test_wrong_counts_are_all_named(small_cub: ImageSet) -> None:
    expected = dataclasses.replace(CUB.expected, train=exactly(20), test=exactly(5))
    with pytest.raises(
        Failure,
        match=r"^cub has 16 training images, the makers ship 20: 4 are missing; "
        r"cub has 8 test images, the makers ship 5: 3 too many\. Fetch it again: CUB-200-2011 is at https",
    ):
        check_counts(dataclasses.replace(CUB, expected=expected), small_cub)


def test_a_rounded_number_that_differs_is_named() -> None:
    with pytest.raises(Failure, match=r"^cub has 1,900 labelled images, the published split has 2\.0K\. Fetch"):
        refuse_differences([CountRow("labelled images", 1900, in_thousands(2.0))], CUB)


def test_a_split_of_ones_own_is_compared_only_where_no_split_matters(small_cub: ImageSet) -> None:
    assert set(expectations(CUB, published=False)) == {"training images", "test images"}
    assert set(expectations(PACS)) == {"labelled classes", "unlabelled classes"}


def test_domains_are_counted_one_by_one(tmp_path: Path) -> None:
    image_set = read_pacs(write_pacs(tmp_path))
    split = make_split(image_set, 4, labelled_share=1.0, labelled_domain="photo")
    rows = count_rows(image_set, split, expectations(PACS))
    assert {row.what.strip(): row.found for row in rows} == {
        "training images": 28,
        "labelled images": 8,
        "labelled classes": 4,
        "unlabelled images": 20,
        "unlabelled classes": 7,
        "unlabelled photo": 6,
        "unlabelled art_painting": 14,
        "test images": 28,
        "test cartoon": 14,
        "test sketch": 14,
    }
    refuse_differences(rows, PACS)


def test_a_class_split_knows_its_order() -> None:
    assert ClassSplit((2, 0), (1,)).order == (2, 0, 1)
