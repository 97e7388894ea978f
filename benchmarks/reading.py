"""Compare quick with exact reading by the features of the same images.

    python benchmarks/reading.py --data IMAGES --backbone vit_small_patch14_dinov2 --weights FILE --size 112

Some images of the folder are enlarged and saved as JPEG files at several sizes, so that both readers have to reduce
them. The table shows the cosine similarity of the two features of each image, that to the most similar other image, and
the reading times.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from sptnet.data.image_file import find_images
from sptnet.data.pixel_format import Reading
from sptnet.data.store import ImageStore
from sptnet.inference.features import extract_features
from sptnet.model.backbone import build_backbone
from sptnet.runtime.compute import choose_compute


def enlarged(files: list[Path], short_side: int, folder: Path) -> list[Path]:
    """Save enlarged copies of the images as JPEG files."""
    folder.mkdir()
    for number, file in enumerate(files):
        image = Image.open(file).convert("RGB")
        scale = short_side / min(image.size)
        size = round(image.width * scale), round(image.height * scale)
        image.resize(size, Image.Resampling.BICUBIC).save(folder / f"{number:04d}.jpg", quality=92)
    return sorted(folder.iterdir())


def read(settings: argparse.Namespace, files: list[Path], reading: Reading) -> tuple[Tensor, float]:
    """Return features of unit length, and the milliseconds per image of reading alone."""
    backbone = build_backbone(settings.backbone, settings.weights, settings.size, reading=reading)
    store, start = ImageStore(files, backbone.pixels, cache_mb=0), time.perf_counter()
    for i in range(len(files)):
        store[i]
    taken = 1e3 * (time.perf_counter() - start) / len(files)
    return F.normalize(extract_features(backbone, files, 0.875, choose_compute("cpu")), dim=1), taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of images")
    parser.add_argument("--backbone", default="vit_base_patch16_224.dino")
    parser.add_argument("--weights", help="local weights file, instead of a download")
    parser.add_argument("--size", type=int, help="image size of the backbone")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--sides", type=int, nargs="+", default=[375, 3000], help="short sides to enlarge to")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    found = find_images(settings.data)
    files = [found[i] for i in np.linspace(0, len(found) - 1, settings.images).astype(int)]
    print("| short side | similarity, minimum | median | to the nearest other image, median | exact | quick |")
    print("|---|---|---|---|---|---|")
    for side in settings.sides:
        with tempfile.TemporaryDirectory() as folder:
            large = enlarged(files, side, Path(folder) / "large")
            exact, slow = read(settings, large, "exact")
            quick, fast = read(settings, large, "quick")
        same = (exact * quick).sum(1)
        others = (exact @ exact.T).fill_diagonal_(-1).max(1).values.median()
        cells = f"{same.min():.5f} | {same.median():.6f} | {others:.3f} | {slow:.1f} ms | {fast:.1f} ms"
        print(f"| {side} px | {cells} |", flush=True)


if __name__ == "__main__":
    main()
