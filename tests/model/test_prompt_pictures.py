"""Pictures of prompts: zero is grey, the scale is symmetric, pixels are squares."""

import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from sptnet.config import PromptSettings
from sptnet.model.gcd_model import GcdModel
from sptnet.model.prompt_pictures import Picture, as_picture, enlarged, prompt_deltas, prompt_pictures, scale_of

Make = Callable[..., GcdModel]


def prompted(make_model: Make, kind: str) -> GcdModel:
    model = make_model()
    settings = PromptSettings(kind=kind, width=2, border=5, tokens=3)  # type: ignore[arg-type]
    model.attach_prompt(settings, torch.Generator().manual_seed(0))
    return model


def pixels(picture: Picture) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(picture.png)))


@pytest.mark.parametrize(
    ("kind", "titles"),
    [
        ("none", []),
        ("vpt", []),
        ("global", ["global"]),
        ("spatial", ["spatial"]),
        ("shared", ["shared"]),
        ("shared+global", ["shared", "global", "composed"]),
        ("spatial+global", ["spatial", "global", "composed"]),
    ],
)
def test_each_part_has_a_picture(kind: str, titles: list[str], make_model: Make) -> None:
    assert [picture.title for picture in prompt_pictures(prompted(make_model, kind))] == titles


def test_pictures_are_middle_grey_without_a_prompt(make_model: Make) -> None:
    spatial, border, composed = map(pixels, prompt_pictures(prompted(make_model, "spatial+global")))
    assert spatial.shape == border.shape == composed.shape == (224, 224, 3)  # 32 pixels, seven times as large
    inside = np.zeros((32, 32), dtype=bool)
    inside[2:14, 2:14] = inside[2:14, 18:30] = inside[18:30, 2:14] = inside[18:30, 18:30] = True
    middle = np.zeros((32, 32), dtype=bool)
    middle[5:27, 5:27] = True
    for picture, empty in ((spatial, inside), (border, middle), (composed, inside & middle)):
        small = picture[::7, ::7]
        assert np.array_equal(np.repeat(np.repeat(small, 7, 0), 7, 1), picture)
        assert (small[empty] == 128).all()
        assert (small[~empty] != 128).mean() > 0.97


def test_the_composed_picture_is_of_the_sum(make_model: Make) -> None:
    deltas = prompt_deltas(prompted(make_model, "shared+global"))
    assert list(deltas) == ["shared", "global", "composed"]
    assert torch.equal(deltas["composed"], deltas["shared"] + deltas["global"])
    assert torch.equal(deltas["shared"][:, :16, :16], deltas["shared"][:, 16:, 16:])


def test_the_scale_is_symmetric_about_zero() -> None:
    delta = torch.tensor([-9.0, -2.0, -1.0, 0.0, 0.5, 2.0, 7.0]).expand(3, 1, 7)
    assert as_picture(delta, 2.0)[0, :, 0].tolist() == [1, 1, 64, 128, 160, 255, 255]


def test_the_scale_is_the_99th_percentile_of_what_is_prompted() -> None:
    delta = torch.zeros(3, 10, 101)
    delta[:, 0] = torch.arange(1, 102) * torch.tensor([1, -1] * 50 + [1])
    assert scale_of([delta]) == 100.0
    assert scale_of([delta, 1000 * torch.ones(3, 10, 101)]) == 1000.0


def test_prompts_of_zero_are_grey(make_model: Make) -> None:
    model = prompted(make_model, "global")
    with torch.no_grad():
        model.prompt.parts[0].values.zero_()
    assert scale_of(prompt_deltas(model).values()) == 1.0
    assert (pixels(prompt_pictures(model)[0]) == 128).all()


def test_pictures_are_the_same_every_time(make_model: Make) -> None:
    model = prompted(make_model, "spatial+global")
    assert prompt_pictures(model) == prompt_pictures(model)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(("side", "expected"), [(32, 224), (96, 288), (112, 224), (224, 224), (225, 225), (518, 518)])
def test_pictures_are_enlarged_by_whole_factors(side: int, expected: int) -> None:
    assert enlarged(np.zeros((side, side, 3), np.uint8)).size == (expected, expected)
