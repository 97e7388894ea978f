"""Strongly augmented views, for methods whose student sees harder views than its teacher."""

import math
from collections.abc import Callable

import torch
import torchvision.transforms.v2.functional as T
from jaxtyping import UInt8
from torch import Generator, Tensor

AREA = (0.3, 1.0)  # share of the image that a crop covers
ASPECT = (3 / 4, 4 / 3)  # width / height of a crop
COLOUR_CHANCE, GREY_CHANCE, BLUR_CHANCE, SOLAR_CHANCE = 0.8, 0.2, 0.5, 0.2
BRIGHTNESS = CONTRAST = 0.4
SATURATION, HUE = 0.2, 0.1
BLUR = (0.1, 2.0)  # pixels
SOLAR_THRESHOLD = 128

Bytes = UInt8[Tensor, "3 height width"]


def strong_view(image: Bytes, size: int, flip: float, seed: int) -> UInt8[Tensor, "3 size size"]:
    """Cut a crop of random area and aspect, then change colours, drop them, blur and solarise at random.

    Everything is drawn from one generator, so a seed gives the same view on every machine.
    """
    generator = torch.Generator().manual_seed(seed)
    view: Tensor = T.resized_crop(image, *crop_window(image, generator), [size, size], antialias=True)
    if chance(flip, generator):
        view = T.horizontal_flip(view)
    if chance(COLOUR_CHANCE, generator):
        view = jitter(view, generator)
    if chance(GREY_CHANCE, generator):
        view = T.rgb_to_grayscale(view, num_output_channels=3)
    if chance(BLUR_CHANCE, generator):
        reach = max(1, round(size / 20))
        view = T.gaussian_blur(view, [2 * reach + 1] * 2, [between(*BLUR, generator)])
    if chance(SOLAR_CHANCE, generator):
        view = T.solarize(view, SOLAR_THRESHOLD)
    return view


def crop_window(image: Bytes, generator: Generator) -> tuple[int, int, int, int]:
    """Draw top, left, height and width of a crop; a crop that does not fit is cut to the image."""
    height, width = image.shape[1:]
    area = between(*AREA, generator) * height * width
    aspect = math.exp(between(math.log(ASPECT[0]), math.log(ASPECT[1]), generator))
    tall = min(height, max(1, round(math.sqrt(area / aspect))))
    wide = min(width, max(1, round(math.sqrt(area * aspect))))
    top, left = (int(between(0, side + 1, generator)) for side in (height - tall, width - wide))
    return min(top, height - tall), min(left, width - wide), tall, wide


def jitter(view: Bytes, generator: Generator) -> Bytes:
    """Change brightness, contrast, saturation and hue."""
    changes: list[Callable[[Tensor], Tensor]] = [
        lambda x: T.adjust_brightness(x, between(1 - BRIGHTNESS, 1 + BRIGHTNESS, generator)),
        lambda x: T.adjust_contrast(x, between(1 - CONTRAST, 1 + CONTRAST, generator)),
        lambda x: T.adjust_saturation(x, between(1 - SATURATION, 1 + SATURATION, generator)),
        lambda x: T.adjust_hue(x, between(-HUE, HUE, generator)),
    ]
    for change in changes:
        view = change(view)
    return view


def chance(probability: float, generator: Generator) -> bool:
    """Return True with a probability."""
    return bool(torch.rand((), generator=generator) < probability)


def between(low: float, high: float, generator: Generator) -> float:
    """Draw a number uniformly."""
    return low + (high - low) * float(torch.rand((), generator=generator))
