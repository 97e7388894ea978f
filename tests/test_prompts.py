"""Prompts: positions and numbers of their values, gradients, and invalid sizes."""

from collections import Counter

import pytest
import torch

from helpers.rounding import assert_same
from sptnet.errors import Misuse
from sptnet.prompts import GlobalPrompt, SpatialPrompt, build_prompt

KINDS = ("none", "global", "shared", "spatial", "shared+global", "spatial+global")

# (image size, patch size, width)
GRIDS = [
    (16, 8, 1),
    (24, 8, 2),
    (32, 8, 3),
    ((16, 40), 8, 3),
    (28, 14, 1),
    ((42, 28), 14, 3),
    (28, 14, 6),
    (32, 16, 1),
    ((32, 48), 16, 2),
    ((48, 16), 16, 7),
    (16, 16, 5),
]
# (image size, width)
BORDERS = [(16, 1), (16, 7), (15, 7), (28, 6), ((16, 40), 3), ((40, 16), 7), ((21, 30), 10)]


# --- oracles: one pixel at a time ---


def height_width(image_size):
    return (image_size, image_size) if isinstance(image_size, int) else image_size


def on_edge(row, column, height, width, thickness):
    """True if the pixel is within `thickness` of the edge of a height x width rectangle."""
    return row < thickness or row >= height - thickness or column < thickness or column >= width - thickness


def in_patch_frame(row, column, patch, thickness):
    return on_edge(row % patch, column % patch, patch, patch, thickness)


def set_to_counting_numbers(prompt):
    """Give every parameter a different value, 1 to n, and return n."""
    start = 1
    with torch.no_grad():
        for parameter in prompt.parameters():
            stop = start + parameter.numel()
            parameter.copy_(torch.arange(start, stop, dtype=parameter.dtype).reshape(parameter.shape))
            start = stop
    return start - 1


def fill(prompt, value):
    with torch.no_grad():
        for parameter in prompt.parameters():
            parameter.fill_(value)


def parameter_count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def trainable_count(module):
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def values(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def generator(seed):
    return torch.Generator().manual_seed(seed)


def assert_placed_once_per_region(prompt, image_size, inside, copies):
    """Zero off the frame; on it, every parameter appears exactly `copies` times."""
    height, width = height_width(image_size)
    n = set_to_counting_numbers(prompt)
    delta = prompt.delta()
    assert delta.shape == (1, 3, height, width)
    seen = Counter()
    for channel in delta[0].tolist():
        for row in range(height):
            for column in range(width):
                if inside(row, column):
                    seen[channel[row][column]] += 1
                else:
                    assert channel[row][column] == 0.0, (row, column)
    assert seen == {float(i): copies for i in range(1, n + 1)}


# --- counts ---


@pytest.mark.parametrize(
    ("prompt", "count"),
    [
        (lambda: SpatialPrompt(224, 16), 35_280),
        (lambda: SpatialPrompt(224, 16, shared=True), 180),
        (lambda: GlobalPrompt(224), 69_840),
        (lambda: build_prompt("none", 224, 16), 0),
        (lambda: build_prompt("spatial", 224, 16), 35_280),
        (lambda: build_prompt("shared", 224, 16), 180),
        (lambda: build_prompt("global", 224, 16), 69_840),
        (lambda: build_prompt("shared+global", 224, 16), 70_020),
        (lambda: build_prompt("spatial+global", 224, 16), 105_120),
    ],
)
def test_published_parameter_counts(prompt, count):
    module = prompt()
    assert parameter_count(module) == count
    assert trainable_count(module) == count


@pytest.mark.parametrize(("image_size", "patch", "width"), GRIDS)
def test_spatial_parameter_count(image_size, patch, width):
    height, breadth = height_width(image_size)
    per_patch = 6 * width * (patch + patch - 2 * width)
    patches = (height // patch) * (breadth // patch)
    assert parameter_count(SpatialPrompt(image_size, patch, width)) == patches * per_patch
    assert parameter_count(SpatialPrompt(image_size, patch, width, shared=True)) == per_patch


@pytest.mark.parametrize(("image_size", "width"), BORDERS)
def test_global_parameter_count(image_size, width):
    height, breadth = height_width(image_size)
    assert parameter_count(GlobalPrompt(image_size, width)) == 6 * width * (height + breadth - 2 * width)


# --- placement ---


@pytest.mark.parametrize(("image_size", "patch", "width"), GRIDS)
def test_spatial_prompt_pixel_by_pixel(image_size, patch, width):
    prompt = SpatialPrompt(image_size, patch, width)
    assert_placed_once_per_region(prompt, image_size, lambda r, c: in_patch_frame(r, c, patch, width), copies=1)


@pytest.mark.parametrize(("image_size", "patch", "width"), GRIDS)
def test_shared_prompt_pixel_by_pixel(image_size, patch, width):
    height, breadth = height_width(image_size)
    patches = (height // patch) * (breadth // patch)
    prompt = SpatialPrompt(image_size, patch, width, shared=True)
    assert_placed_once_per_region(prompt, image_size, lambda r, c: in_patch_frame(r, c, patch, width), copies=patches)
    delta = prompt.delta()
    first = delta[:, :, :patch, :patch]
    for top in range(0, height, patch):
        for left in range(0, breadth, patch):
            assert torch.equal(delta[:, :, top : top + patch, left : left + patch], first)


@pytest.mark.parametrize(("image_size", "width"), BORDERS)
def test_global_prompt_pixel_by_pixel(image_size, width):
    height, breadth = height_width(image_size)
    prompt = GlobalPrompt(image_size, width)
    assert_placed_once_per_region(prompt, image_size, lambda r, c: on_edge(r, c, height, breadth, width), copies=1)


def test_published_sizes_pixel_by_pixel():
    spatial = SpatialPrompt(224, 16)
    assert_placed_once_per_region(spatial, 224, lambda r, c: in_patch_frame(r, c, 16, 1), copies=1)
    border = GlobalPrompt(224, 30)
    assert_placed_once_per_region(border, 224, lambda r, c: on_edge(r, c, 224, 224, 30), copies=1)


# --- gradients and forward ---


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (lambda: SpatialPrompt((32, 48), 16, 2), 1.0),
        (lambda: SpatialPrompt((32, 48), 16, 2, shared=True), 6.0),
        (lambda: GlobalPrompt((32, 48), 5), 1.0),
        (lambda: build_prompt("spatial+global", (32, 48), 16, width=2, border=5), 1.0),
    ],
)
def test_gradient_counts_the_pixels_of_each_parameter(prompt, expected):
    module = prompt()
    module.delta().sum().backward()
    gradients = [parameter.grad for parameter in module.parameters()]
    assert gradients
    for gradient in gradients:
        assert torch.equal(gradient, torch.full_like(gradient, expected))


@pytest.mark.parametrize("kind", KINDS)
def test_forward_adds_delta_to_every_image(kind):
    prompt = build_prompt(kind, (16, 24), 8, width=2, border=3, generator=generator(0))
    images = torch.randn(4, 3, 16, 24, generator=generator(1))
    kept = images.clone()
    out = prompt(images)
    assert out.shape == images.shape
    delta = prompt.delta()
    assert delta.shape == (1, 3, 16, 24)
    for image, prompted in zip(images, out, strict=True):
        assert_same(prompted, image + delta[0], terms=3)  # an image, its frames and its border
    assert torch.equal(images, kept)


def test_gradient_reaches_the_prompt_through_the_images():
    prompt = SpatialPrompt(16, 8, 1)
    images = torch.zeros(5, 3, 16, 16)
    prompt(images).sum().backward()
    for parameter in prompt.parameters():
        assert torch.equal(parameter.grad, torch.full_like(parameter, 5.0))


def test_state_dict_restores_the_prompt():
    first = build_prompt("spatial+global", 32, 8, border=5, generator=generator(0))
    second = build_prompt("spatial+global", 32, 8, border=5, generator=generator(1))
    assert not torch.equal(first.delta(), second.delta())
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.delta(), second.delta())


# --- initialisation ---


def assert_standard_normal(sample):
    n = sample.numel()
    assert abs(sample.mean().item()) < 5 / n**0.5
    assert abs(sample.std().item() - 1) < 5 / (2 * n) ** 0.5
    within_one = (sample.abs() < 1).double().mean().item()
    assert abs(within_one - 0.6827) < 5 * (0.6827 * 0.3173 / n) ** 0.5


@pytest.mark.parametrize(
    "prompt",
    [
        lambda g: SpatialPrompt(224, 16, generator=g),
        lambda g: SpatialPrompt(224, 16, width=3, shared=True, generator=g),
        lambda g: GlobalPrompt(224, generator=g),
        lambda g: build_prompt("spatial+global", 224, 16, generator=g),
    ],
)
def test_initial_values_are_standard_normal(prompt):
    first, second, other = prompt(generator(3)), prompt(generator(3)), prompt(generator(4))
    assert_standard_normal(values(first))
    assert torch.equal(values(first), values(second))
    assert not torch.equal(values(first), values(other))


def test_initial_values_without_a_generator_are_standard_normal():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        assert_standard_normal(values(SpatialPrompt(224, 16)))
        assert_standard_normal(values(GlobalPrompt(224)))


def test_the_patches_do_not_start_alike():
    delta = SpatialPrompt(32, 16, generator=generator(6)).delta()
    assert not torch.equal(delta[:, :, :16, :16], delta[:, :, 16:, 16:])


# --- build_prompt ---


@pytest.mark.parametrize("kind", ["shared+global", "spatial+global"])
def test_a_combination_adds_its_parts(kind):
    prompt = build_prompt(kind, (32, 48), 8, width=2, border=9, generator=generator(7))
    parts = [module for module in prompt.modules() if isinstance(module, SpatialPrompt | GlobalPrompt)]
    assert len(parts) == 2
    assert torch.equal(prompt.delta(), parts[0].delta() + parts[1].delta())


@pytest.mark.parametrize("kind", KINDS)
def test_where_each_kind_puts_its_values(kind):
    height, breadth, patch, width, border = 24, 32, 8, 2, 5
    prompt = build_prompt(kind, (height, breadth), patch, width=width, border=border)
    fill(prompt, 1.0)
    delta = prompt.delta().detach()[0].tolist()
    has_frames, has_border = "spatial" in kind or "shared" in kind, "global" in kind
    for row in range(height):
        for column in range(breadth):
            framed = has_frames and in_patch_frame(row, column, patch, width)
            bordered = has_border and on_edge(row, column, height, breadth, border)
            for channel in range(3):
                assert delta[channel][row][column] == float(framed) + float(bordered), (channel, row, column)


@pytest.mark.parametrize(("kind", "image_size"), [("none", 32), ("shared", 32), ("spatial", 32), ("spatial", (32, 8))])
def test_border_is_not_checked_where_there_is_none(kind, image_size):
    assert build_prompt(kind, image_size, 8, border=30).delta().shape[1] == 3


def test_without_prompts_images_are_unchanged():
    prompt = build_prompt("none", 32, 8)
    assert list(prompt.parameters()) == []
    images = torch.randn(2, 3, 32, 32, generator=generator(8))
    assert torch.equal(prompt(images), images)
    assert torch.equal(prompt.delta(), torch.zeros(1, 3, 32, 32))


@pytest.mark.parametrize("kind", ["vpt", "", "patch", "global+spatial"])
def test_unknown_kind_is_refused_with_the_kinds(kind):
    with pytest.raises(Misuse) as caught:
        build_prompt(kind, 32, 8)
    for known in KINDS:
        assert known in str(caught.value)


# --- refusals ---


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("image_size", "patch", "largest"), [(224, 16, 7), (224, 14, 6), (224, 8, 3), (35, 7, 3)])
def test_a_frame_without_an_inside_is_refused(image_size, patch, largest, shared):
    SpatialPrompt(image_size, patch, largest, shared=shared)
    for width in (largest + 1, patch, 10 * patch):
        with pytest.raises(Misuse, match=rf"largest.*\b{largest}\b"):
            SpatialPrompt(image_size, patch, width, shared=shared)


@pytest.mark.parametrize(("image_size", "largest"), [(224, 111), (33, 16), ((32, 48), 15), ((48, 32), 15)])
def test_a_border_without_an_inside_is_refused(image_size, largest):
    GlobalPrompt(image_size, largest)
    for width in (largest + 1, 1000):
        with pytest.raises(Misuse, match=rf"largest.*\b{largest}\b"):
            GlobalPrompt(image_size, width)


def test_build_prompt_refuses_as_its_parts_do():
    with pytest.raises(Misuse, match=r"largest.*\b3\b"):
        build_prompt("spatial+global", 224, 8, width=4)
    with pytest.raises(Misuse, match=r"largest.*\b15\b"):
        build_prompt("shared+global", 32, 8, border=16)


@pytest.mark.parametrize("width", [0, -1])
def test_a_width_below_one_is_refused(width):
    for shared in (False, True):
        with pytest.raises(Misuse):
            SpatialPrompt(32, 16, width, shared=shared)
    with pytest.raises(Misuse):
        GlobalPrompt(32, width)


@pytest.mark.parametrize(
    ("image_size", "patch", "culprit"),
    [(225, 16, 225), ((32, 40), 16, 40), ((40, 32), 16, 40), (224, 15, 224)],
)
def test_an_image_that_is_no_whole_number_of_patches_is_refused(image_size, patch, culprit):
    for shared in (False, True):
        with pytest.raises(Misuse) as caught:
            SpatialPrompt(image_size, patch, shared=shared)
        assert str(culprit) in str(caught.value)
        assert str(patch) in str(caught.value)
    with pytest.raises(Misuse):
        build_prompt("spatial", image_size, patch)
