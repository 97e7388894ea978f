"""DomainNet: 345 classes as photographs, paintings and in four domains that nobody trains on."""

import dataclasses
from pathlib import Path

from sptnet.data.benchmarks.base import Benchmark, Expected
from sptnet.data.benchmarks.domains import check_class_folders, read_domains
from sptnet.data.benchmarks.layout import Tree
from sptnet.data.image_set import ImageSet

LABELLED, UNLABELLED = "real", ("painting",)
DOMAINS = (LABELLED, *UNLABELLED, "clipart", "infograph", "quickdraw", "sketch")
WHERE = (
    "DomainNet is at http://ai.bu.edu/M3SDA/; the folder must hold the six domains unpacked, "
    f"{', '.join(f'{domain}/' for domain in DOMAINS)}, and may hold their lists, such as real_train.txt."
)


def read_domainnet(folder: Path, classes: int = 345) -> ImageSet:
    """Classes in sorted order, capitals first; with lists the images are those the lists name."""
    tree = Tree.find(folder, [LABELLED], ["DomainNet", "domainnet"], WHERE)
    image_set = read_domains(tree.root, LABELLED, UNLABELLED, DOMAINS, where=WHERE)
    if len(image_set.names) != classes:
        raise tree.incomplete(f"{tree.root} has {len(image_set.names)} classes, DomainNet has {classes}")
    check_class_folders(tree, DOMAINS, image_set.names)
    return dataclasses.replace(image_set, name="domainnet")


DOMAINNET = Benchmark(
    name="domainnet",
    title="DomainNet",
    read=read_domainnet,
    n_known=173,
    expected=Expected(345),
    where=WHERE,
    labelled_domain=LABELLED,
    unlabelled_domains=UNLABELLED,
)
