"""CUB-200-2011: 200 birds."""

from pathlib import Path

from sptnet.data.benchmarks.base import Benchmark, ClassSplit, Expected, class_split, exactly
from sptnet.data.benchmarks.download import Archive
from sptnet.data.benchmarks.layout import ListedImage, Tree, image_set_of
from sptnet.data.image_set import ImageSet

WHERE = (
    "CUB-200-2011 is at https://data.caltech.edu/records/65de6-vp158 or comes with "
    "`data('cub', data='DIR', download=True)`; the folder must be or hold CUB_200_2011/ with images.txt, "
    "image_class_labels.txt, train_test_split.txt, classes.txt and images/."
)
ARCHIVE = Archive(
    "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz", md5="97eceeb196236b17998738112f37df78"
)
CLASSES = class_split("cub")


def read_cub(folder: Path, split: ClassSplit = CLASSES) -> ImageSet:
    """Read the images in the order of images.txt; class names are like 001.Black_footed_Albatross."""
    tree = Tree.find(folder, ["images.txt"], ["CUB_200_2011"], WHERE)
    names = dict(tree.pairs("classes.txt"))
    number = {id_: i for i, id_ in enumerate(names)}
    class_of = dict(tree.pairs("image_class_labels.txt"))
    training = dict(tree.pairs("train_test_split.txt"))
    listed = []
    for id_, path in tree.pairs("images.txt"):
        for file, value, allowed in (
            ("image_class_labels.txt", class_of.get(id_), number),
            ("train_test_split.txt", training.get(id_), {"0", "1"}),
        ):
            if value not in allowed:
                raise tree.incomplete(f"{tree.root / file} says {value or 'nothing'} of image {id_}")
        listed.append(ListedImage(f"images/{path}", number[class_of[id_]], training[id_] == "0"))
    tree.require(image.id for image in listed)
    tree.compare_folders("images", names.values())
    return image_set_of(tree, "cub", listed, list(names.values()), split.order)


CUB = Benchmark(
    name="cub",
    title="CUB-200-2011",
    read=read_cub,
    n_known=len(CLASSES.known),
    expected=Expected(200, exactly(5994), exactly(1498), exactly(4496), exactly(5794)),
    where=WHERE,
    download=ARCHIVE.fetch_and_unpack,
)
