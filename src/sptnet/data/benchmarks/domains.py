"""Data sets with domains, such as photos, paintings and sketches of the same classes; DomainNet and PACS.

One folder per domain, in it one folder per class.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from sptnet.data.benchmarks.base import Benchmark, Expected
from sptnet.data.benchmarks.layout import Tree
from sptnet.data.image_set import ImageSet
from sptnet.errors import Misuse
from sptnet.runtime.text import count, first_three, listed, printable

WHERE = "The folder must hold one sub-folder per domain, each with one sub-folder per class."
LISTS = tuple(f"{part}{suffix}.txt" for part in ("train", "crossval", "test") for suffix in ("", "_kfold"))

# The first domain is labelled, the second unlabelled, the others are for testing.
DOMAINNET_DOMAINS = ("real", "painting", "clipart", "infograph", "quickdraw", "sketch")
DOMAINNET_WHERE = (
    "DomainNet is at http://ai.bu.edu/M3SDA/; the folder must hold the six domains unpacked, "
    f"{', '.join(f'{domain}/' for domain in DOMAINNET_DOMAINS)}, and may hold their lists, such as real_train.txt."
)
PACS_DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
PACS_WHERE = (
    "PACS is at https://dali-dl.github.io/project_iccv2017.html; the folder must hold "
    f"{', '.join(f'{domain}/' for domain in PACS_DOMAINS)}, directly or below PACS/ or kfold/, and may hold their "
    "lists, such as photo_train_kfold.txt."
)


def read_domainnet(folder: Path, classes: int = 345) -> ImageSet:
    """Read DomainNet: classes in sorted order, capitals first; with list files, only the images they name."""
    labelled, unlabelled, *_ = DOMAINNET_DOMAINS
    tree = Tree.find(folder, [labelled], ["DomainNet", "domainnet"], DOMAINNET_WHERE)
    image_set = read_domains(tree.root, labelled, (unlabelled,), DOMAINNET_DOMAINS, where=DOMAINNET_WHERE)
    if len(image_set.names) != classes:
        raise tree.incomplete(f"{tree.root} has {len(image_set.names)} classes, DomainNet has {classes}")
    check_class_folders(tree, DOMAINNET_DOMAINS, image_set.names)
    return dataclasses.replace(image_set, name="domainnet")


def read_pacs(folder: Path) -> ImageSet:
    """Read PACS: seven classes in four domains; with list files, only the images they name."""
    labelled, unlabelled, *_ = PACS_DOMAINS
    tree = Tree.find(folder, [labelled], ["PACS", "kfold", "PACS/kfold"], PACS_WHERE)
    check_class_folders(tree, PACS_DOMAINS, PACS_CLASSES)
    lists = folder_of_lists((tree.root, tree.root.parent), labelled)
    image_set = read_domains(tree.root, labelled, (unlabelled,), PACS_DOMAINS, lists=lists, where=PACS_WHERE)
    return dataclasses.replace(image_set, name="pacs")


def read_domains(
    root: Path,
    labelled: str,
    unlabelled: Sequence[str],
    domains: Sequence[str] | None = None,
    *,
    lists: Path | None = None,
    where: str = WHERE,
) -> ImageSet:
    """Read the labelled domain, then the unlabelled ones, then the unseen ones, whose images are test images.

    List files such as real_train.txt in `lists` (default: the root) select the images; without them every image of the
    domain is taken, class by class.
    """
    if not root.is_dir():
        raise Misuse(f"there is no folder {root}. {where}")
    tree = Tree(root, where)
    used = tree.folders("") if domains is None else sorted(domains)
    _check_domains(tree, used, labelled, unlabelled)
    seen = [labelled, *sorted(unlabelled)]
    order = seen + [domain for domain in used if domain not in seen]
    ids = {domain: _images(tree, domain, lists or root) for domain in order}
    names = sorted({_class_of(id_) for id_ in chain(*ids.values())})
    position = {name: i for i, name in enumerate(names)}
    return ImageSet(
        name=root.resolve().name or str(root),
        ids=tuple(chain(*ids.values())),
        sources=tuple(root / id_ for id_ in chain(*ids.values())),
        names=tuple(names),
        labels=np.array([position[_class_of(id_)] for id_ in chain(*ids.values())], dtype=np.int64),
        given=None,
        test=np.array([domain not in seen for domain in order for _ in ids[domain]], dtype=np.bool_),
        domains=tuple(domain for domain in order for _ in ids[domain]),
    )


def check_class_folders(tree: Tree, domains: Iterable[str], names: Sequence[str]) -> None:
    """Raise unless every domain has a folder for every class and no others."""
    for domain in domains:
        tree.compare_folders(domain, names)


def folder_of_lists(folders: Iterable[Path], domain: str) -> Path | None:
    """Return the first folder that holds a list file of the domain."""
    return next((folder for folder in folders for end in LISTS if (folder / f"{domain}_{end}").is_file()), None)


def _check_domains(tree: Tree, domains: Sequence[str], labelled: str, unlabelled: Sequence[str]) -> None:
    existing = tree.folders("")
    missing = [domain for domain in domains if domain not in existing]
    if missing:
        raise tree.incomplete(f"{tree.root} lacks {count(missing, 'domain')}: {listed(missing)}")
    if len(domains) < 2:
        raise Misuse(f"{tree.root} holds {count(domains, 'domain')}, but there must be two at least. {tree.where}")
    for domain in (labelled, *unlabelled):
        if domain not in domains:
            raise Misuse(
                f"there is no domain {printable(domain)} in {tree.root}. Give one of those it has: {listed(domains)}."
            )
    named = [labelled, *unlabelled]
    repeats = sorted({domain for domain in named if named.count(domain) > 1})
    if repeats:
        raise Misuse(f"the domain {repeats[0]} is named twice. Name it as the labelled one or as an unlabelled one.")


def _images(tree: Tree, domain: str, lists: Path) -> list[str]:
    """Return the ids of a domain; each begins with the domain and the class."""
    files = [f"{domain}_{end}" for end in LISTS if (lists / f"{domain}_{end}").is_file()]
    if not files:
        return _walk(tree, domain)
    named = Tree(lists, tree.where)
    ids = list(dict.fromkeys(_listed_id(named, file, line, domain) for file in files for line in named.lines(file)))
    if not ids:
        raise tree.incomplete(f"{' and '.join(files)} in {lists} name no images")
    tree.require(ids)
    return ids


def _walk(tree: Tree, domain: str) -> list[str]:
    ids = tree.walk(domain)
    loose = [printable(id_) for id_ in ids if id_.count("/") < 2]
    if loose:
        raise Misuse(
            f"{tree.root} has {count(loose, 'image')} outside of class folders: {first_three(loose)}. "
            "Move them into the folder of their class, or away."
        )
    return sorted(ids, key=lambda id_: (_class_of(id_), *id_.rpartition("/")))


def _listed_id(tree: Tree, file: str, line: str, domain: str) -> str:
    """Turn the line `real/axe/1.jpg 7`, possibly with leading folders, into the id `real/axe/1.jpg`."""
    path, gap, number = line.rpartition(" ")
    parts = path.strip().split("/")
    if not gap or not number.isdecimal() or ".." in parts or domain not in parts[:-2]:
        raise tree.damaged_line(file, line)
    return "/".join(parts[parts.index(domain) :])


def _class_of(id_: str) -> str:
    return id_.split("/")[1]


DOMAINNET = Benchmark(
    name="domainnet",
    title="DomainNet",
    read=read_domainnet,
    n_known=173,
    expected=Expected(345),
    where=DOMAINNET_WHERE,
    labelled_domain=DOMAINNET_DOMAINS[0],
    unlabelled_domains=(DOMAINNET_DOMAINS[1],),
)
PACS = Benchmark(
    name="pacs",
    title="PACS",
    read=read_pacs,
    n_known=4,
    expected=Expected(7),
    where=PACS_WHERE,
    labelled_domain=PACS_DOMAINS[0],
    unlabelled_domains=(PACS_DOMAINS[1],),
)
