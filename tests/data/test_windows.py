"""Windows of images are those that torchvision draws."""

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from sptnet.data.views import cut, draw_window
from sptnet.runtime.seeds import seeded


def image_of(height: int, width: int) -> Tensor:
    """A different colour at every place."""
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
