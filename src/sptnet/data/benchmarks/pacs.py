"""PACS: seven classes as photos, art paintings, cartoons and sketches."""

import dataclasses
from pathlib import Path

from sptnet.data.benchmarks.base import Benchmark, Expected
from sptnet.data.benchmarks.domains import check_class_folders, folder_of_lists, read_domains
from sptnet.data.benchmarks.layout import Tree
from sptnet.data.image_set import ImageSet

LABELLED, UNLABELLED = "photo", ("art_painting",)
DOMAINS = (LABELLED, *UNLABELLED, "cartoon", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
WHERE = (
    "PACS is at https://dali-dl.github.io/project_iccv2017.html; the folder must hold "
    f"{', '.join(f'{domain}/' for domain in DOMAINS)}, directly or below PACS/ or kfold/, and may hold their lists, "
    "such as photo_train_kfold.txt."
)


def read_pacs(folder: Path) -> ImageSet:
    tree = Tree.find(folder, [LABELLED], ["PACS", "kfold", "PACS/kfold"], WHERE)
    check_class_folders(tree, DOMAINS, CLASSES)
    lists = folder_of_lists((tree.root, tree.root.parent), LABELLED)
    image_set = read_domains(tree.root, LABELLED, UNLABELLED, DOMAINS, lists=lists, where=WHERE)
    return dataclasses.replace(image_set, name="pacs")


PACS = Benchmark(
    name="pacs",
    title="PACS",
    read=read_pacs,
    n_known=4,
    expected=Expected(7),
    where=WHERE,
    labelled_domain=LABELLED,
    unlabelled_domains=UNLABELLED,
)
