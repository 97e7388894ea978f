"""Resized images: size, reading modes and the cache."""

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.pictures import picture
from sptnet.data import store as store_module
from sptnet.data.image_file import UnreadableImage
from sptnet.data.pixel_format import PixelFormat
from sptnet.data.store import ImageStore

PIXELS = PixelFormat(32)


@pytest.mark.parametrize(("size", "short_side"), [(32, 36), (96, 109), (224, 256)])
def test_the_short_side_is_the_crop_over_the_ratio(size, short_side):
    store = ImageStore([picture(50, 100), picture(100, 50), picture(70, 70)], PixelFormat(size))
    shapes = [tuple(store[i].shape) for i in range(3)]
    assert shapes == [(3, short_side, 2 * short_side), (3, 2 * short_side, short_side), (3, short_side, short_side)]


def test_another_ratio_gives_another_size():
    assert tuple(ImageStore([picture(50, 50)], PIXELS, crop_ratio=0.5)[0].shape) == (3, 64, 64)
    assert tuple(ImageStore([picture(50, 50)], PIXELS, crop_ratio=1.0)[0].shape) == (3, 32, 32)


@pytest.mark.parametrize(
    ("interpolation", "resampling"), [("bicubic", Image.Resampling.BICUBIC), ("bilinear", Image.Resampling.BILINEAR)]
)
@pytest.mark.parametrize("shape", [(50, 100), (300, 200), (20, 30)])
def test_exact_reading_resizes_as_pillow_does(interpolation, resampling, shape):
    source = picture(*shape)
    store = ImageStore([source], PixelFormat(32, interpolation=interpolation, reading="exact"))
    height, width = store[0].shape[1:]
    assert min(height, width) == 36
    expected = np.array(Image.fromarray(source).resize((width, height), resampling))
    assert np.array_equal(store[0].permute(1, 2, 0).numpy(), expected)


def smooth(height, width, seed=0):
    """Image with detail at several scales, like a photograph."""
    whole = np.zeros((height, width, 3))
    for scale in (2, 7, 30):
        small = Image.fromarray(picture(height // scale + 2, width // scale + 2, seed + scale))
        whole += np.asarray(small.resize((width, height), Image.Resampling.BICUBIC)) / 3
    return whole.astype(np.uint8)


@pytest.mark.parametrize("shape", [(400, 500), (130, 110), (60, 40)])
def test_quick_reading_differs_by_a_level_in_few_pixels(shape):
    source = smooth(*shape)
    quick, exact = (ImageStore([source], PixelFormat(96, reading=reading))[0] for reading in ("quick", "exact"))
    levels = (quick.int() - exact.int()).abs()
    assert quick.shape == exact.shape and levels.max() <= 2 and (levels > 0).float().mean() < 0.02


@pytest.mark.parametrize(("side", "decoded"), [(2000, 250), (1100, 275), (400, 400)])
def test_quick_reading_decodes_a_large_jpeg_at_a_reduced_scale(tmp_path, monkeypatch, side, decoded):
    """The scale is at least 1/8 and leaves at least twice the short side of 109 px."""
    file, sizes = tmp_path / "large.jpg", []
    Image.fromarray(smooth(side, side)).save(file, quality=92)
    for name in ("read_array", "read_image"):
        original = getattr(store_module, name)

        def recorded(*words, original=original, **more):
            image = original(*words, **more)
            sizes.append(np.asarray(image).shape[1::-1])
            return image

        monkeypatch.setattr(store_module, name, recorded)
    quick, exact = (ImageStore([file], PixelFormat(96, reading=reading))[0] for reading in ("quick", "exact"))
    assert sizes == [(decoded, decoded), (side, side)]
    assert (quick.float() - exact.float()).abs().mean() < 1.5


def test_the_cache_changes_nothing_but_speed():
    sources = [picture(40, 60, seed) for seed in range(3)]
    kept, never_kept = ImageStore(sources, PIXELS), ImageStore(sources, PIXELS, cache_mb=0)
    for _ in range(2):
        for i in range(3):
            assert torch.equal(kept[i], never_kept[i])
    assert kept[1] is kept[1]
    assert never_kept[1] is not never_kept[1]


def test_too_little_memory_for_resizing_names_the_image(tmp_path, monkeypatch):
    file = tmp_path / "a.png"
    Image.fromarray(smooth(30, 20)).save(file)
    for reading in ("quick", "exact"):
        store = ImageStore([file], PixelFormat(96, reading=reading))
        monkeypatch.setattr(store, "_resize", lambda image: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(UnreadableImage, match=r"a\.png: not enough memory \(\d+ x \d+ pixels\)"):
            store[0]
