"""DomainNet, PACS and other folders of domains, with and without list files."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.benchmark_trees import lines, pictures, true_names, write_pacs
from sptnet.data.benchmarks.domains import (
    DOMAINNET_DOMAINS,
    PACS_CLASSES,
    PACS_DOMAINS,
    read_domainnet,
    read_domains,
    read_pacs,
)
from sptnet.data.split import make_split
from sptnet.errors import Failure, Misuse


@pytest.fixture
def things(tmp_path: Path) -> Path:
    """Three domains of two classes; the class pear exists in sketches only."""
    for domain in ("sketch", "clay", "photo", "ink"):
        pictures(tmp_path / domain, "cup/10.png", "cup/2.png", "cup/more/1.png", "axe/1.jpg")
    return pictures(tmp_path, "sketch/pear/1.png")


def test_the_order_is_labelled_then_unlabelled_then_unseen(things: Path) -> None:
    image_set = read_domains(things, "photo", ["sketch", "ink"])
    assert image_set.names == ("axe", "cup", "pear")
    assert image_set.ids[:4] == ("photo/axe/1.jpg", "photo/cup/10.png", "photo/cup/2.png", "photo/cup/more/1.png")
    assert image_set.domains == ("photo",) * 4 + ("ink",) * 4 + ("sketch",) * 5 + ("clay",) * 4
    assert image_set.test.tolist() == [False] * 13 + [True] * 4
    assert true_names(image_set) == ["axe", "cup", "cup", "cup"] * 2 + ["axe", "cup", "cup", "cup", "pear"] + [
        "axe",
        "cup",
        "cup",
        "cup",
    ]
    assert image_set.given is None
    assert image_set.name == things.name
    assert image_set.sources == tuple(things / id_ for id_ in image_set.ids)


def test_only_the_domains_asked_for_are_read(things: Path) -> None:
    image_set = read_domains(things, "ink", [], ["ink", "clay"])
    assert image_set.domains == ("ink",) * 4 + ("clay",) * 4
    assert image_set.names == ("axe", "cup")


def test_labels_come_from_the_labelled_domain_alone(things: Path) -> None:
    image_set = read_domains(things, "photo", ["ink"])
    split = make_split(image_set, 2, labelled_share=1.0, labelled_domain="photo")
    assert split.labelled.tolist() == [0, 1, 2, 3]
    assert split.unlabelled.tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("labelled", "unlabelled", "message"),
    [
        ("oil", ["ink"], r"^there is no domain oil in .*\. Give one of those it has: clay, ink, photo, sketch\.$"),
        ("ink", ["oil"], r"^there is no domain oil in .*"),
        ("ink", ["ink"], r"^the domain ink is named twice\. Name it as the labelled one or as an unlabelled one\.$"),
        ("ink", ["clay", "clay"], r"^the domain clay is named twice\."),
    ],
)
def test_wrong_domain_names(things: Path, labelled: str, unlabelled: list[str], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        read_domains(things, labelled, unlabelled)


def test_one_domain_is_not_enough(tmp_path: Path) -> None:
    pictures(tmp_path, "photo/cup/1.png")
    with pytest.raises(Misuse, match=r"holds 1 domain, but there must be two at least\. The folder must hold one sub"):
        read_domains(tmp_path, "photo", [])


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"^there is no folder .*none\. The folder must hold one sub-folder per domain"):
        read_domains(tmp_path / "none", "photo", [])


def test_images_outside_classes_are_refused(things: Path) -> None:
    pictures(things, "ink/loose.png")
    with pytest.raises(
        Misuse, match=r"has 1 image outside of class folders: ink/loose\.png\. Move them into the folder"
    ):
        read_domains(things, "photo", ["ink"])


def test_an_empty_domain_is_refused(things: Path) -> None:
    (things / "oil" / "cup").mkdir(parents=True)
    with pytest.raises(Failure, match=r"/oil holds no image\."):
        read_domains(things, "photo", ["ink"])


def test_lists_say_which_images_there_are_and_their_order(things: Path) -> None:
    lines(things / "photo_test.txt", "photo/axe/1.jpg 0", "photo/cup/2.png 1")
    lines(things / "photo_train.txt", "photo/cup/10.png 1", "photo/cup/2.png 1")
    image_set = read_domains(things, "photo", ["ink"])
    assert image_set.ids[:3] == ("photo/cup/10.png", "photo/cup/2.png", "photo/axe/1.jpg")
    assert image_set.domains is not None and image_set.domains[:4] == ("photo", "photo", "photo", "ink")
    assert true_names(image_set)[:3] == ["cup", "cup", "axe"]


@pytest.mark.parametrize(
    "line", ["photo/cup/2.png", "photo/cup/2.png x", "ink/cup/2.png 1", "photo/2.png 1", "photo/../../2.png 1"]
)
def test_a_damaged_line_of_a_list_is_refused(things: Path, line: str) -> None:
    lines(things / "photo_train.txt", "photo/cup/10.png 1", line)
    with pytest.raises(Failure, match=r"photo_train\.txt has a damaged line, 'photo/|'ink/"):
        read_domains(things, "photo", ["ink"])


def test_a_listed_image_that_is_missing(things: Path) -> None:
    lines(things / "ink_train.txt", "ink/cup/99.png 1")
    with pytest.raises(Failure, match=r"lacks 1 image that its lists name: ink/cup/99\.png\."):
        read_domains(things, "photo", ["ink"])


def test_empty_lists_are_refused(things: Path) -> None:
    for part in ("train", "test"):
        lines(things / f"ink_{part}.txt")
    with pytest.raises(Failure, match=rf"^ink_train\.txt and ink_test\.txt in {things} name no images\."):
        read_domains(things, "photo", ["ink"])


DOMAINNET_CLASSES = ["The_Mona_Lisa", "aircraft_carrier", "t-shirt", "zigzag"]


def write_domainnet(root: Path) -> Path:
    for domain in DOMAINNET_DOMAINS:
        pictures(root / domain, *(f"{name}/{domain}_{i:03d}.jpg" for name in DOMAINNET_CLASSES for i in (1, 2)))
    return root


@pytest.mark.parametrize("given", ["", "domainnet"])
def test_domainnet(tmp_path: Path, given: str) -> None:
    write_domainnet(tmp_path / "domainnet")
    image_set = read_domainnet(tmp_path / given, classes=4)
    assert image_set.name == "domainnet"
    assert image_set.names == tuple(DOMAINNET_CLASSES)
    order = ("real", "painting", "clipart", "infograph", "quickdraw", "sketch")
    assert image_set.domains == tuple(domain for domain in order for _ in range(8))
    assert image_set.ids[:2] == ("real/The_Mona_Lisa/real_001.jpg", "real/The_Mona_Lisa/real_002.jpg")
    assert image_set.test.tolist() == [False] * 16 + [True] * 32


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda root: shutil.rmtree(root / "sketch"),
            r"lacks 1 domain: sketch\. Fetch it again: DomainNet is at http://ai\.bu\.edu/M3SDA/",
        ),
        (
            lambda root: [shutil.rmtree(root / domain / "zigzag") for domain in DOMAINNET_DOMAINS],
            r"has 3 classes, DomainNet has 4\.",
        ),
        (lambda root: pictures(root, "real/extra/1.jpg"), r"has 5 classes, DomainNet has 4\."),
        (lambda root: (root / "real/extra").mkdir(), r"real has 1 class folder too many: extra\. Move away what"),
        (lambda root: shutil.rmtree(root / "clipart/zigzag"), r"clipart lacks 1 class folder: zigzag\."),
    ],
)
def test_an_incomplete_domainnet_is_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(write_domainnet(tmp_path))
    with pytest.raises(Failure, match=message):
        read_domainnet(tmp_path, classes=4)


def test_no_domainnet(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"has no real, nor has DomainNet or domainnet inside it\. DomainNet is at"):
        read_domainnet(tmp_path)


@pytest.mark.parametrize("folder", ["", "PACS", "kfold", "PACS/kfold"])
def test_pacs(tmp_path: Path, folder: str) -> None:
    write_pacs(tmp_path / folder)
    image_set = read_pacs(tmp_path)
    assert image_set.name == "pacs"
    assert image_set.names == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    order = ("photo", "art_painting", "cartoon", "sketch")
    assert image_set.domains == tuple(domain for domain in order for _ in range(14))
    assert image_set.ids[0] == "photo/dog/pic_1.jpg"
    assert image_set.test.tolist() == [False] * 28 + [True] * 28


@pytest.mark.parametrize("lists", ["", "kfold"])
@pytest.mark.parametrize("prefix", ["", "kfold/"])
def test_pacs_with_its_lists(tmp_path: Path, lists: str, prefix: str) -> None:
    write_pacs(tmp_path / "kfold")
    for domain in PACS_DOMAINS:
        for part, i, names in (("train", 2, PACS_CLASSES), ("crossval", 1, PACS_CLASSES[::-1])):
            rows = [f"{prefix}{domain}/{name}/pic_{i}.jpg {PACS_CLASSES.index(name) + 1}" for name in names]
            lines(tmp_path / lists / f"{domain}_{part}_kfold.txt", *rows)
        whole = [f"{prefix}{domain}/{name}/pic_{i}.jpg {c}" for c, name in enumerate(PACS_CLASSES, 1) for i in (1, 2)]
        lines(tmp_path / lists / f"{domain}_test_kfold.txt", *whole)
    image_set = read_pacs(tmp_path)
    assert image_set.ids[:14] == tuple(f"photo/{name}/pic_2.jpg" for name in PACS_CLASSES) + tuple(
        f"photo/{name}/pic_1.jpg" for name in PACS_CLASSES[::-1]
    )
    assert true_names(image_set)[:14] == [*PACS_CLASSES, *PACS_CLASSES[::-1]]
    assert len(image_set) == 56


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: shutil.rmtree(root / "cartoon"), r"has no folder cartoon\."),
        (lambda root: shutil.rmtree(root / "photo/dog"), r"photo lacks 1 class folder: dog\."),
        (lambda root: (root / "sketch/cat").mkdir(), r"sketch has 1 class folder too many: cat\."),
    ],
)
def test_an_incomplete_pacs_is_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(write_pacs(tmp_path))
    with pytest.raises(Failure, match=message):
        read_pacs(tmp_path)
