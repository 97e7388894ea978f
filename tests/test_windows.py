"""Windows of images: torchvision's draws, and the device's cuts against those made one by one."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchvision.transforms import v2

from sptnet.config import Config
from sptnet.data.load import LoadedData
from sptnet.data.loader import iterate_batches
from sptnet.data.windows import Uncut, Window, cut, draw_window
from sptnet.runtime.distributed import World
from sptnet.runtime.seeds import seeded
from sptnet.token_bank import TokenBank
from test_training import make_config, make_trainer

CPU = torch.device("cpu")


def image_of(height: int, width: int, channels_last: bool = False) -> Tensor:
    """A different colour at every place."""
    image = torch.arange(3 * height * width, dtype=torch.int64).mul(37).remainder(251).to(torch.uint8)
    return image.view(height, width, 3).permute(2, 0, 1) if channels_last else image.view(3, height, width)


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


@st.composite
def uncut_images(draw: st.DrawFn) -> tuple[int, list[Tensor], list[list[Window]]]:
    size = draw(st.integers(1, 6))
    sides = st.integers(size, size + 5)
    shapes = draw(st.lists(st.tuples(sides, sides, st.booleans()), min_size=1, max_size=5))
    windows = [
        [
            Window(draw(st.integers(0, height - size)), draw(st.integers(0, width - size)), draw(st.booleans()))
            for height, width, _ in shapes
        ]
        for _ in range(draw(st.integers(1, 3)))
    ]
    return size, [image_of(*shape) for shape in shapes], windows


@settings(max_examples=100, deadline=None)
@given(case=uncut_images())
def test_the_device_cuts_as_one_cuts_one_by_one(case: tuple[int, list[Tensor], list[list[Window]]]) -> None:
    size, images, draws = case
    found = Uncut.of(images, draws).to(CPU).cut(size)
    assert len(found) == len(draws)
    for views, windows in zip(found, draws, strict=True):
        expected = [cut(image, window, size) for image, window in zip(images, windows, strict=True)]
        assert torch.equal(views, torch.stack(expected)) and views.is_contiguous()


def test_whole_images_take_less_room_than_two_views() -> None:
    """At the published sizes: a short side of 256 px, views of 224 px."""
    image = image_of(256, 341)
    windows = [draw_window(image, 224, 0.5, seed) for seed in range(2)]
    uncut = Uncut.of([image], [[window] for window in windows])
    assert uncut.pixels.nbytes < sum(cut(image, window, 224).numel() for window in windows)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_the_device_cuts_has_the_same_draws(workers: int) -> None:
    loader, device = make_trainer(), make_trainer()
    device.cut_on_device = True
    both = (iterate_batches(trainer.epoch_batches(0), workers, pin=False) for trainer in (loader, device))
    for here, later in zip(*both, strict=True):
        assert later.uncut is not None and later.draws == []
        made = later.to(CPU, device.data.maker)
        assert made.uncut is None and len(made.draws) == len(here.draws) > 0
        assert all(map(torch.equal, made.draws, here.draws))


def test_a_process_without_images_has_nothing_to_cut() -> None:
    trainer = make_trainer(batch_size=2)
    trainer.cut_on_device, trainer.world = True, World(rank=0, size=3)  # two images for three
    batch = trainer.epoch_batches(0)[0].to(CPU, trainer.data.maker)
    assert batch.own.tolist() == [] and [len(draw) for draw in batch.draws] == [0, 0]


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("config", [make_config(), make_config("simgcd")], ids=["sptnet", "simgcd"])
def test_training_is_the_same_wherever_views_are_cut(config: Config, accumulate: int) -> None:
    trainers = [make_trainer(config), make_trainer(config)]
    trainers[1].cut_on_device = True
    for trainer in trainers:
        trainer.accumulate = accumulate
    reports = [trainer.run_epoch() for trainer in trainers]
    assert reports[0].losses == reports[1].losses
    states = [trainer.model.state_dict() for trainer in trainers]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_with_a_bank_the_few_views_it_needs_are_sent_as_bytes(tmp_path: Path) -> None:
    losses = []
    for on_device in (False, True):
        trainer = make_trainer(make_config("simgcd"))
        backbone = trainer.model.backbone
        length = (backbone.pixels.image_size // backbone.patch_size) ** 2 + 1
        trainer.bank = TokenBank(tmp_path / str(on_device), len(trainer.data.ids), 2, length, backbone.dim, "key")
        trainer.cut_on_device = on_device
        batch = trainer.epoch_batches(0)[0]
        assert batch.uncut is None
        assert {draw.dtype for draw in batch.draws} == {torch.uint8 if on_device else torch.float32}
        losses.append(trainer.run_epoch().losses)
    assert losses[0] == losses[1]


def test_the_setting_says_who_cuts(
    tiny_config: Config,
    few_digits: LoadedData,
    run_it: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    assert_same_result: Callable[[Path, Path], None],
) -> None:
    cuts, original = [], Uncut.cut
    monkeypatch.setattr(Uncut, "cut", lambda self, size: cuts.append(size) or original(self, size))
    runs = {}
    for cutting in ("auto", "device"):
        config = tiny_config.changed(views={"cutting": cutting})
        runs[cutting] = run_it(tmp_path / cutting, config, few_digits)
        assert bool(cuts) == (cutting == "device"), "without a GPU the loader cuts"
    assert_same_result(runs["device"], runs["auto"])
