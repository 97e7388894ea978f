"""`sptnet data`: the table, differences from the published numbers, exit codes, and the split file."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import Call
from helpers.benchmark_trees import SPLIT, pictures, write_cub, write_pacs
from sptnet.data import benchmarks as datasets
from sptnet.data.benchmarks.base import Benchmark, Expected, exactly, in_thousands
from sptnet.data.benchmarks.cub import CUB, read_cub
from sptnet.errors import Failure


@pytest.fixture
def call(call: Call) -> Call:
    return partial(call, "data")


@pytest.fixture
def small_cub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Write a complete CUB of 24 images, and register a benchmark with its numbers as cub."""

    def make(**expected: Any) -> Path:
        numbers: dict[str, Any] = {"train": exactly(16), "labelled": exactly(4), "unlabelled": exactly(12)}
        numbers |= {"test": exactly(8)} | expected
        small = dataclasses.replace(
            CUB, read=lambda folder: read_cub(folder, SPLIT), n_known=2, expected=Expected(4, **numbers)
        )
        monkeypatch.setitem(datasets.BENCHMARKS, "cub", small)
        return write_cub(tmp_path / "CUB_200_2011").parent

    return make


def test_a_whole_data_set_agrees(call: Call, small_cub: Callable[..., Path]) -> None:
    answer = call("cub", "--data", small_cub())
    assert (answer.code, answer.err) == (0, "")
    assert "CUB-200-2011" in answer.out
    assert answer.table == {
        "training images": ("16", "16"),
        "labelled images": ("4", "4"),
        "labelled classes": ("2", "2"),
        "unlabelled images": ("12", "12"),
        "unlabelled classes": ("4", "4"),
        "test images": ("8", "8"),
    }


def test_a_count_that_differs_is_a_failure(call: Call, small_cub: Callable[..., Path], tmp_path: Path) -> None:
    answer = call("cub", "--data", small_cub(train=exactly(20), unlabelled=in_thousands(4.5)))
    assert answer.code == 1
    assert answer.table["training images"] == ("16", "20")
    assert answer.table["unlabelled images"] == ("12", "4.5K")
    assert call("cub", "--data", tmp_path, "--json") == (1, "", answer.err)
    assert answer.err.startswith(
        "error: cub has 16 training images, the makers ship 20: 4 are missing; "
        "cub has 12 unlabelled images, the published split has 4.5K. Fetch it again: CUB-200-2011 is at"
    )


def test_counts_as_json(call: Call, small_cub: Callable[..., Path]) -> None:
    answer = call("cub", "--data", small_cub(unlabelled=in_thousands(0)), "--json")
    counts = {count["what"]: (count["found"], count["expected"]) for count in json.loads(answer.out)["counts"]}
    assert counts["training images"] == (16, {"value": 16, "rounded_to": 1})
    assert counts["unlabelled images"] == (12, {"value": 0, "rounded_to": 100})


def test_nothing_is_written_when_counts_differ(call: Call, small_cub: Callable[..., Path], tmp_path: Path) -> None:
    assert call("cub", "--data", small_cub(test=exactly(9)), "--split-out", tmp_path / "split.json").code == 1
    assert not (tmp_path / "split.json").exists()


@pytest.mark.parametrize(
    "words", [("--known-classes", 3), ("--labelled-share", 0.8), ("--split-seed", 3), ("--known-classes", 1)]
)
def test_another_split_is_not_compared(call: Call, small_cub: Callable[..., Path], words: tuple[Any, ...]) -> None:
    answer = call("cub", "--data", small_cub(labelled=exactly(99)), *words)
    assert answer.code == 0
    assert answer.table["labelled images"][1] == "-"
    assert answer.table["labelled classes"][1] == "-"
    assert answer.table["training images"] == ("16", "16")


def test_naming_the_default_changes_nothing(call: Call, small_cub: Callable[..., Path]) -> None:
    answer = call("cub", "--data", small_cub(labelled=exactly(99)), "--known-classes", 2, "--labelled-share", 0.5)
    assert answer.code == 1


def test_the_split_is_written_once(call: Call, small_cub: Callable[..., Path], tmp_path: Path) -> None:
    words = ("cub", "--data", small_cub(), "--split-out", tmp_path / "split.json")
    answer = call(*words)
    assert answer.code == 0
    assert answer.out.endswith(f"split: {tmp_path / 'split.json'}\n")
    content = json.loads((tmp_path / "split.json").read_text())
    assert content["known_classes"] == ["003.Cardinal", "001.Albatross"]
    assert [len(content[part]) for part in ("labelled", "unlabelled", "test")] == [4, 12, 8]
    again = call(*words)
    assert again.code == 2
    assert again.err == f"error: {tmp_path / 'split.json'} exists already. Give another --split-out.\n"


def test_all_data_sets_are_listed(call: Call) -> None:
    answer = call()
    assert answer.code == 0
    assert list(answer.table) == list(datasets.BENCHMARKS)
    assert answer.table["cub"] == ("CUB-200-2011", "100", "100", "yes")
    assert answer.table["herbarium19"] == ("Herbarium 19", "341", "342", "no")
    assert answer.table["domainnet"] == ("DomainNet", "173", "172", "no")
    assert "sptnet data NAME --data DIR" in answer.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cubs",), "there is no data set cubs. Did you mean cub? Those there are: cifar10, "),
        (("folders",), "there is no data set folders. Did you mean folder?"),
        (("cub",), "where is cub? Give its folder with --data DIR."),
        (("cub", "--data", "none"), "there is no folder none. CUB-200-2011 is at https://data.caltech.edu"),
        (("folder",), "where is folder? Give its folder with --data DIR."),
        (("digits", "--data", "x"), "the digits come with the package. Leave --data out."),
        (("digits", "--download"), "digits cannot be downloaded. Leave --download out."),
        (("cars", "--download"), "cars cannot be downloaded from here. Stanford Cars is no longer at"),
        (("cub", "--download"), "where to? Give a folder with --data DIR."),
        (("domains", "--data", "."), "which domain has the labels? Name it with --labelled-domain, others with"),
        (("cub", "--labelled-domain", "x"), "cub takes no domains. Leave --labelled-domain and --unlabelled-domain"),
    ],
)
def test_misuse(call: Call, words: tuple[str, ...], message: str) -> None:
    answer = call(*words)
    assert answer.code == 2
    assert answer.err.startswith(f"error: {message}")


def test_the_digits(call: Call) -> None:
    answer = call("digits")
    assert answer.code == 0
    assert answer.table["labelled images"] == ("450",)
    assert answer.table["labelled classes"] == ("5",)
    assert "expected" not in answer.out


def test_a_folder(call: Call, tmp_path: Path) -> None:
    pictures(tmp_path, *(f"{name}/{i}.png" for name in "abc" for i in range(4)))
    answer = call("folder", "--data", tmp_path, "--known-classes", 2)
    assert answer.code == 0
    assert (answer.table["labelled images"], answer.table["unlabelled classes"]) == (("4",), ("3",))
    answer = call("folder", "--data", tmp_path)
    assert answer.code == 2
    assert answer.err == (
        "error: every image has a label, so any class could be known. Say how many are with --known-classes N.\n"
    )
    pictures(tmp_path, "unlabelled/1.png")
    answer = call("folder", "--data", tmp_path)
    assert (answer.code, answer.table["labelled images"]) == (0, ("12",))


def test_domains(call: Call, tmp_path: Path) -> None:
    write_pacs(tmp_path)
    words = ("--unlabelled-domain", "sketch", "--unlabelled-domain", "cartoon", "--known-classes", 3)
    answer = call("domains", "--data", tmp_path, "--labelled-domain", "photo", *words, "--labelled-share", 1)
    assert answer.code == 0
    assert answer.table == {
        "training images": ("42",),
        "labelled images": ("6",),
        "labelled classes": ("3",),
        "unlabelled images": ("36",),
        "unlabelled classes": ("7",),
        "unlabelled photo": ("8",),
        "unlabelled cartoon": ("14",),
        "unlabelled sketch": ("14",),
        "test images": ("14",),
        "test art_painting": ("14",),
    }


def test_pacs_has_no_image_counts_to_fail_for(call: Call, tmp_path: Path) -> None:
    answer = call("pacs", "--data", write_pacs(tmp_path), "--labelled-share", 1)
    assert answer.code == 0
    assert answer.table["labelled images"] == ("8", "-")
    assert answer.table["test cartoon"] == ("14", "-")


def test_images_are_decoded_only_on_request(call: Call, small_cub: Callable[..., Path]) -> None:
    root = small_cub()
    assert call("cub", "--data", root, "--check-images").code == 0
    (root / "CUB_200_2011/images/001.Albatross/bird_99.jpg").write_bytes(b"")
    (root / "CUB_200_2011/images/002.Bunting/bird_98.jpg").write_bytes(b"text")
    assert call("cub", "--data", root).code == 0
    answer = call("cub", "--data", root, "--check-images")
    assert answer.code == 1
    assert answer.err == (
        "error: 2 images of 24 cannot be read: images/001.Albatross/bird_99.jpg (empty file), "
        "images/002.Bunting/bird_98.jpg (not an image). Fetch the data set again, or repair these images.\n"
    )


def test_a_download_comes_before_reading(
    call: Call, small_cub: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small_cub()
    small: Benchmark = datasets.BENCHMARKS["cub"]
    fetched = dataclasses.replace(small, download=lambda folder: write_cub(folder / "CUB_200_2011") and None)
    monkeypatch.setitem(datasets.BENCHMARKS, "cub", fetched)
    assert call("cub", "--data", tmp_path / "new", "--download").code == 0

    def fail(folder: Path) -> None:
        raise Failure("https://there could not be downloaded (no network). Fetch it by hand.")

    monkeypatch.setitem(datasets.BENCHMARKS, "cub", dataclasses.replace(small, download=fail))
    answer = call("cub", "--data", tmp_path / "newer", "--download")
    assert (answer.code, answer.err) == (
        1,
        "error: https://there could not be downloaded (no network). Fetch it by hand.\n",
    )


def test_a_real_process_needs_no_torch(tmp_path: Path) -> None:
    write_pacs(tmp_path)
    code = (
        "import sys; sys.argv = ['sptnet', 'data', 'pacs', '--data', sys.argv[1], '--labelled-share', '1']\n"
        "from sptnet.cli import main\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules, 'torchvision' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("False False\n")
