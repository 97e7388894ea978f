"""FGVC-Aircraft: 100 variants of aeroplanes."""

from pathlib import Path

from sptnet.data.benchmarks.base import Benchmark, ClassSplit, Expected, class_split, exactly, in_thousands
from sptnet.data.benchmarks.download import from_torchvision
from sptnet.data.benchmarks.layout import ListedImage, Tree, image_set_of
from sptnet.data.image_set import ImageSet

URL = "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz"
WHERE = (
    f"FGVC-Aircraft is at {URL} or comes with `data('aircraft', data='DIR', download=True)`; the folder must be or "
    "hold fgvc-aircraft-2013b/ with data/images_variant_trainval.txt, data/images_variant_test.txt and data/images/."
)
LISTS = (("images_variant_trainval.txt", False), ("images_variant_test.txt", True))
CLASSES = class_split("fgvc_aircraft")


def read_aircraft(folder: Path, split: ClassSplit = CLASSES) -> ImageSet:
    """Read the images in the order of the lists; class numbers follow the sorted names of the variants."""
    tree = Tree.find(folder, [LISTS[0][0]], ["data", "fgvc-aircraft-2013b/data"], WHERE)
    rows = [(image, variant, test) for file, test in LISTS for image, variant in tree.pairs(file)]
    classes = sorted({variant for _, variant, test in rows if not test})
    number = {variant: i for i, variant in enumerate(classes)}
    strangers = [variant for _, variant, _ in rows if variant not in number]
    if strangers:
        raise tree.incomplete(f"{tree.root / LISTS[1][0]} names a variant {strangers[0]} that has no training image")
    listed = [ListedImage(f"images/{image}.jpg", number[variant], test) for image, variant, test in rows]
    tree.require(image.id for image in listed)
    return image_set_of(tree, "aircraft", listed, classes, split.order)


AIRCRAFT = Benchmark(
    name="aircraft",
    title="FGVC-Aircraft",
    read=read_aircraft,
    n_known=len(CLASSES.known),
    expected=Expected(100, exactly(6667), in_thousands(1.7), in_thousands(5.0), exactly(3333)),
    where=WHERE,
    download=from_torchvision("FGVCAircraft", URL, split="trainval", annotation_level="variant"),
)
