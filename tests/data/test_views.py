"""Views: random windows, flips, centre crops and normalisation."""

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from helpers.pictures import picture
from helpers.rounding import SINGLE
from sptnet.data.pixel_format import PixelFormat
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker, cut, draw_window
from sptnet.runtime.seeds import seeded

PIXELS = PixelFormat(32)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet


def windows(image, size):
    _, height, width = image.shape
    for top in range(height - size + 1):
        for left in range(width - size + 1):
            yield image[:, top : top + size, left : left + size]


def window_index(view, image):
    """Position of the view among all windows of the image, or None."""
    return next((i for i, window in enumerate(windows(image, view.shape[-1])) if torch.equal(window, view)), None)


def test_a_random_view_is_a_window_of_the_image_and_all_windows_occur():
    image, maker = ImageStore([picture(50, 50)], PIXELS)[0], ViewMaker(PIXELS, flip=0.0)
    positions = {window_index(maker.random_view(image, seed), image) for seed in range(300)}
    assert positions == set(range(25)), "five by five positions in 36 pixels"


def test_flip_one_always_mirrors():
    image = ImageStore([picture(50, 50)], PIXELS)[0]
    maker = ViewMaker(PIXELS, flip=1.0)
    for seed in range(20):
        view = maker.random_view(image, seed)
        assert window_index(view.flip(2), image) is not None
        assert window_index(view, image) is None


def test_half_of_the_views_are_mirrored_by_default():
    image, maker = ImageStore([picture(50, 50)], PIXELS)[0], ViewMaker(PIXELS)
    mirrored = [window_index(maker.random_view(image, seed), image) is None for seed in range(200)]
    assert 65 < sum(mirrored) < 135  # five standard deviations


def test_non_square_images_are_cropped_along_their_length():
    image, maker = ImageStore([picture(40, 120)], PIXELS)[0], ViewMaker(PIXELS, flip=0.0)
    lefts = {window_index(maker.random_view(image, seed), image) % (108 - 32 + 1) for seed in range(300)}
    assert min(lefts) < 5
    assert max(lefts) > 108 - 32 - 5


def test_the_centre_crop():
    store = ImageStore([picture(50, 50), picture(40, 120)], PIXELS)
    maker = ViewMaker(PIXELS, flip=1.0)
    assert torch.equal(maker.centre_view(store[0]), store[0][:, 2:34, 2:34])
    assert torch.equal(maker.centre_view(store[1]), store[1][:, 2:34, 38:70])


def test_normalisation_in_numbers():
    bytes_ = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    bytes_[0, :, 0, 0] = 255
    bytes_[0, :, 0, 1] = 51
    made = ViewMaker(PIXELS).normalise(bytes_)
    assert made.dtype == torch.float32
    white = [(1 - m) / s for m, s in zip(MEAN, STD, strict=True)]
    fifth = [(0.2 - m) / s for m, s in zip(MEAN, STD, strict=True)]
    black = [-m / s for m, s in zip(MEAN, STD, strict=True)]
    assert made[0, :, 0, 0].tolist() == pytest.approx(white, rel=SINGLE)
    assert made[0, :, 0, 1].tolist() == pytest.approx(fifth, rel=SINGLE)
    assert made[0, :, 1, 1].tolist() == pytest.approx(black, rel=SINGLE)
    assert white[0] == pytest.approx(2.2489083)


def test_normalisation_takes_the_numbers_of_the_backbone():
    pixels = PixelFormat(32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.25, 0.125))
    made = ViewMaker(pixels).normalise(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8))
    assert made.flatten().tolist() == pytest.approx([1.0, 2.0, 4.0], rel=SINGLE)


def test_a_view_depends_on_its_seed_alone():
    image, maker = ImageStore([picture(50, 50)], PIXELS)[0], ViewMaker(PIXELS)
    torch.manual_seed(1)
    first = maker.random_view(image, 7)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(maker.random_view(image, 7), first)
    assert torch.equal(torch.get_rng_state(), state), "the global generator is unchanged"


def image_of(height: int, width: int) -> Tensor:
    """An image with a different colour at every pixel."""
    image = torch.arange(3 * height * width, dtype=torch.int64).mul(37).remainder(251).to(torch.uint8)
    return image.view(3, height, width)


@pytest.mark.parametrize("shape", [(9, 12), (12, 9), (8, 8), (8, 11), (11, 8)])
@pytest.mark.parametrize("flip", [0.0, 0.3, 0.5, 1.0])
def test_windows_are_those_of_torchvision(shape: tuple[int, int], flip: float) -> None:
    image, published = image_of(*shape), v2.Compose([v2.RandomCrop(8), v2.RandomHorizontalFlip(flip)])
    for seed in range(60):
        with seeded(seed):
            expected = published(image)
        assert torch.equal(cut(image, draw_window(image, 8, flip, seed), 8), expected)


def test_drawing_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    draw_window(image_of(9, 9), 8, 0.5, 0)
    assert torch.equal(torch.get_rng_state(), before)
