"""Strong views: seeds, sizes, crops, flips, and every kind of change."""

import pytest
import torch

from helpers.pictures import picture
from sptnet.data import strong_views
from sptnet.data.pixel_format import PixelFormat
from sptnet.data.strong_views import AREA, ASPECT, crop_window, jitter, strong_view
from sptnet.data.views import ViewMaker

CHANCES = {"COLOUR_CHANCE": 0.8, "GREY_CHANCE": 0.2, "BLUR_CHANCE": 0.5, "SOLAR_CHANCE": 0.2}
SEEDS = 200


def image(height=40, width=40, seed=0):
    return torch.from_numpy(picture(height, width, seed)).permute(2, 0, 1).contiguous()


def gradient_image(size=40):
    """Brighter from left to right and from top to bottom; red, green and blue differ."""
    ramp = torch.linspace(20, 230, size)
    return torch.stack(
        [ramp.expand(size, size), ramp[:, None].expand(size, size), 128 + 0 * ramp.expand(size, size)]
    ).to(torch.uint8)


@pytest.fixture
def only(monkeypatch):
    """Switch all changes of the pixels off but those given."""

    def switch(**chances):
        for name in CHANCES:
            monkeypatch.setattr(strong_views, name, chances.get(name, 0.0))

    return switch


# --- seeds and sizes ---


def test_a_seed_gives_the_same_view_whatever_was_drawn_before():
    source = image()
    views = [strong_view(source, 24, 0.5, seed) for seed in range(20)]
    torch.rand(7)
    state = torch.get_rng_state()
    again = [strong_view(source, 24, 0.5, seed) for seed in reversed(range(20))][::-1]
    assert all(torch.equal(one, two) for one, two in zip(views, again, strict=True))
    assert torch.equal(torch.get_rng_state(), state), "the global generator is left alone"


def test_other_seeds_give_other_views():
    source = image()
    assert len({strong_view(source, 24, 0.5, seed).numpy().tobytes() for seed in range(50)}) == 50


@pytest.mark.parametrize(
    ("height", "width"), [(40, 40), (1, 1), (2, 3), (1, 60), (60, 1), (24, 100), (100, 24), (7, 5)]
)
@pytest.mark.parametrize("size", [8, 33])
def test_views_have_the_size_and_are_bytes(height, width, size):
    source = image(height, width)
    before = source.clone()
    for seed in range(15):
        view = strong_view(source, size, 0.5, seed)
        assert view.shape == (3, size, size)
        assert view.dtype == torch.uint8
    assert torch.equal(source, before), "the image is left alone"


def test_a_view_maker_gives_its_size_and_flip():
    maker, source = ViewMaker(PixelFormat(32), flip=1.0), image(36, 36)
    for seed in range(5):
        assert torch.equal(maker.strong_view(source, seed), strong_view(source, 32, 1.0, seed))


def test_a_strong_view_differs_from_the_plain_crop():
    maker, source = ViewMaker(PixelFormat(32)), image(36, 36)
    assert not any(torch.equal(maker.strong_view(source, seed), maker.random_view(source, seed)) for seed in range(50))


# --- crops and flips ---


@pytest.mark.parametrize(("height", "width"), [(100, 100), (80, 120), (120, 80)])
def test_crops_have_the_area_and_aspect_and_lie_inside(height, width):
    shares, aspects = [], []
    for seed in range(SEEDS):
        top, left, tall, wide = crop_window(image(height, width), torch.Generator().manual_seed(seed))
        assert 0 <= top <= height - tall
        assert 0 <= left <= width - wide
        shares.append(tall * wide / (height * width))
        aspects.append(wide / tall)
    assert max(shares) <= 1
    assert max(shares) > 0.9
    rounded = 0.02  # of a side
    assert AREA[0] - rounded < min(shares) < 0.4
    if height == width:
        assert ASPECT[0] - rounded < min(aspects) < 0.8
        assert 1.25 < max(aspects) < ASPECT[1] + rounded


def test_crops_reach_every_border():
    boxes = [crop_window(image(50, 50), torch.Generator().manual_seed(seed)) for seed in range(SEEDS)]
    assert any(top == 0 for top, _, tall, _ in boxes if tall < 45)
    assert any(left == 0 for _, left, _, wide in boxes if wide < 45)
    assert any(top + tall == 50 for top, _, tall, _ in boxes if tall < 45)
    assert any(left + wide == 50 for _, left, _, wide in boxes if wide < 45)


def test_views_are_mirrored_with_the_probability_of_flips(only):
    only()
    source = gradient_image()

    def mirrored(flip):
        views = [strong_view(source, 16, flip, seed)[0].float() for seed in range(SEEDS)]
        return sum(bool(view[:, 0].mean() > view[:, -1].mean()) for view in views)

    assert mirrored(0.0) == 0
    assert mirrored(1.0) == SEEDS
    assert 65 < mirrored(0.5) < 135, "five standard deviations"
    assert mirrored(0.1) < 45


def test_a_flip_is_the_mirror_image_of_the_same_crop(only):
    only()
    source = image()
    for seed in range(10):
        assert torch.equal(strong_view(source, 16, 1.0, seed), strong_view(source, 16, 0.0, seed).flip(2))


# --- changes of the pixels ---


def test_without_changes_a_view_is_the_resized_crop(only):
    only()
    source = torch.full((3, 30, 30), 77, dtype=torch.uint8)
    assert (strong_view(source, 16, 0.5, 0) == 77).all()


def is_grey(view):
    return torch.equal(view[0], view[1]) and torch.equal(view[1], view[2])


def test_grey_views_have_equal_channels(only):
    only(GREY_CHANCE=1.0)
    assert all(is_grey(strong_view(image(), 16, 0.0, seed)) for seed in range(5))
    only()
    assert not any(is_grey(strong_view(image(), 16, 0.0, seed)) for seed in range(5))


def test_blur_smooths(only):
    def roughness():
        views = torch.stack([strong_view(image(), 40, 0.0, seed).float() for seed in range(20)])
        return views.diff(dim=3).abs().mean((1, 2, 3))

    only()
    sharp = roughness()
    only(BLUR_CHANCE=1.0)
    blurred = roughness()
    assert (blurred <= sharp).all()
    assert (blurred < 0.5 * sharp).sum() > 10


def test_solarised_views_have_no_bright_pixel(only):
    only()
    plain = [strong_view(image(), 16, 0.0, seed) for seed in range(5)]
    only(SOLAR_CHANCE=1.0)
    for seed, view in enumerate(plain):
        solar = strong_view(image(), 16, 0.0, seed)
        assert view.max() >= 128 > solar.max()
        assert torch.equal(solar, torch.where(view >= 128, 255 - view, view))


def test_jitter_changes_brightness_contrast_saturation_and_hue():
    grey = torch.full((3, 8, 8), 100, dtype=torch.uint8)
    levels = [float(jitter(grey, torch.Generator().manual_seed(seed)).float().mean()) for seed in range(50)]
    assert 55 <= min(levels) < 75
    assert 125 < max(levels) <= 145
    source = gradient_image(16)
    changed = [jitter(source, torch.Generator().manual_seed(seed)).float() for seed in range(50)]
    spans = [float(view[0].max() - view[0].min()) for view in changed]
    assert max(spans) > 1.2 * min(spans)
    colour = torch.tensor([200, 100, 100], dtype=torch.uint8)[:, None, None].expand(3, 8, 8)
    made = [jitter(colour, torch.Generator().manual_seed(seed)).float().mean((1, 2)) for seed in range(50)]
    assert any(green > blue + 5 for _, green, blue in made) and any(blue > green + 5 for _, green, blue in made), "hue"
    ranges = [float((view.max() - view.min()) / view.max()) for view in made]
    assert min(ranges) < 0.5 < max(ranges), "saturation"


def test_every_kind_of_change_occurs_about_as_often_as_it_should(monkeypatch):
    functions = {
        "COLOUR_CHANCE": (strong_views, "jitter"),
        "GREY_CHANCE": (strong_views.T, "rgb_to_grayscale"),
        "BLUR_CHANCE": (strong_views.T, "gaussian_blur"),
        "SOLAR_CHANCE": (strong_views.T, "solarize"),
    }
    seen = {name: [] for name in functions}
    for name, (module, function) in functions.items():
        inner, mine = getattr(module, function), seen[name]
        monkeypatch.setattr(
            module, function, lambda *a, inner=inner, mine=mine, **k: (mine.append(1), inner(*a, **k))[1]
        )
    colourful = sum(not is_grey(strong_view(image(), 8, 0.0, seed)) for seed in range(SEEDS))
    for name, chance in CHANCES.items():
        deviation = (SEEDS * chance * (1 - chance)) ** 0.5
        assert getattr(strong_views, name) == chance
        assert abs(len(seen[name]) - SEEDS * chance) < 5 * deviation, name
    assert colourful == SEEDS - len(seen["GREY_CHANCE"])
