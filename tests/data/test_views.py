"""From stored images to views: sizes, crops, flips, normalisation, and the same views whatever the order of work."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.rounding import SINGLE
from sptnet.config import PromptSettings
from sptnet.data import store as store_module
from sptnet.data.loader import iterate_centre_views, n_workers
from sptnet.data.pixel_format import PixelFormat
from sptnet.data.store import ImageStore
from sptnet.data.views import CentreViews, ViewMaker
from sptnet.head import PrototypeHead
from sptnet.model.backbone import build_backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import ModelCard, load_model, save_model
from sptnet.runtime.seeds import seed_of, seeded
from sptnet.training.batches import EpochBatches
from sptnet.training.loader import iterate_batches

PIXELS = PixelFormat(32)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet


def picture(height, width, seed=0):
    return np.random.RandomState(seed).randint(0, 256, (height, width, 3)).astype(np.uint8)


def windows(image, size):
    _, height, width = image.shape
    for top in range(height - size + 1):
        for left in range(width - size + 1):
            yield image[:, top : top + size, left : left + size]


def rank_from_environment(view, image):
    """Which window of the image the view is, or None."""
    return next((i for i, window in enumerate(windows(image, view.shape[-1])) if torch.equal(window, view)), None)


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
    """Detail at several scales, as photographs have it."""
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
    """At least twice the short side of 109 px is left, at down to an eighth of the scale."""
    file, sizes = tmp_path / "large.jpg", []
    Image.fromarray(smooth(side, side)).save(file, quality=92)
    original = store_module.read_image
    monkeypatch.setattr(
        store_module, "read_image", lambda *words, **more: sizes.append(original(*words, **more)) or sizes[-1]
    )
    quick, exact = (ImageStore([file], PixelFormat(96, reading=reading))[0] for reading in ("quick", "exact"))
    assert [image.size for image in sizes] == [(decoded, decoded), (side, side)]
    assert (quick.float() - exact.float()).abs().mean() < 1.5


def test_a_model_remembers_how_its_pictures_are_read(tmp_path):
    backbone = build_backbone("sptnet_digits_vit", reading="exact")
    card = ModelCard(("a", "b"), 1, PromptSettings(kind="none"), 0.875)
    save_model(tmp_path / "model", GcdModel(backbone, PrototypeHead(96, 2, 8, 8)), card)
    assert load_model(tmp_path / "model")[0].backbone.pixels.reading == "exact"
    assert build_backbone("sptnet_digits_vit").pixels.reading == "quick"
    description = tmp_path / "model" / "model.json"
    told = json.loads(description.read_text())
    del told["pixels"]["reading"]  # of a time when there was one way only
    description.write_text(json.dumps(told))
    assert load_model(tmp_path / "model")[0].backbone.pixels.reading == "exact"


def test_the_cache_changes_nothing_but_speed():
    sources = [picture(40, 60, seed) for seed in range(3)]
    kept, never_kept = ImageStore(sources, PIXELS), ImageStore(sources, PIXELS, cache_mb=0)
    for _ in range(2):
        for i in range(3):
            assert torch.equal(kept[i], never_kept[i])
    assert kept[1] is kept[1]
    assert never_kept[1] is not never_kept[1]


def test_a_random_view_is_a_window_of_the_image_and_all_windows_occur():
    image, maker = ImageStore([picture(50, 50)], PIXELS)[0], ViewMaker(PIXELS, flip=0.0)
    places = {rank_from_environment(maker.random_view(image, seed), image) for seed in range(300)}
    assert places == set(range(25)), "five by five places in 36 pixels"


def test_flip_one_always_mirrors():
    image = ImageStore([picture(50, 50)], PIXELS)[0]
    maker = ViewMaker(PIXELS, flip=1.0)
    for seed in range(20):
        view = maker.random_view(image, seed)
        assert rank_from_environment(view.flip(2), image) is not None
        assert rank_from_environment(view, image) is None


def test_half_of_the_views_are_mirrored_by_default():
    image, maker = ImageStore([picture(50, 50)], PIXELS)[0], ViewMaker(PIXELS)
    mirrored = [rank_from_environment(maker.random_view(image, seed), image) is None for seed in range(200)]
    assert 65 < sum(mirrored) < 135  # five standard deviations


def test_non_square_images_are_cropped_along_their_length():
    image, maker = ImageStore([picture(40, 120)], PIXELS)[0], ViewMaker(PIXELS, flip=0.0)
    lefts = {rank_from_environment(maker.random_view(image, seed), image) % (108 - 32 + 1) for seed in range(300)}
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
    assert torch.equal(torch.get_rng_state(), state), "nobody else's randomness is touched"


def test_a_seeded_draw_repeats_and_gives_the_randomness_back():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with seeded(7):
        first = torch.rand(2)
    with pytest.raises(ZeroDivisionError), seeded(7):
        assert torch.equal(torch.rand(2), first)
        _ = 1 / 0
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(torch.rand(2, generator=torch.Generator().manual_seed(7)), first)


def test_seeds_are_fixed_numbers_and_differ_in_every_part():
    assert seed_of(0, 1, 2, 0) == seed_of(0, 1, 2, 0)
    parts = [(0, 1, 2, 0), (1, 1, 2, 0), (0, 2, 2, 0), (0, 1, 3, 0), (0, 1, 2, 1), (0, 12, 0), (0, 1, 20)]
    seeds = [seed_of(*part) for part in parts]
    assert len(set(seeds)) == len(parts)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of("epoch", 0) == 2827920073193447671, "a run of yesterday must be resumable today"


@pytest.fixture
def make_batches():
    sources = [picture(40, 60, seed) for seed in range(6)]
    labels = np.array([0, 1, -1, -1, 2, -1])
    numbers = [torch.tensor([0, 0, 3]), torch.tensor([5, 4, 2]), torch.tensor([0, 0, 3])]

    def make(seed=11, draws=(2, 1, 2), flip=0.5):
        store = ImageStore(sources, PIXELS)
        return EpochBatches(store, ViewMaker(PIXELS, flip), labels, numbers, list(draws), seed)

    return make


def same(one, other):
    return len(one.draws) == len(other.draws) and all(
        torch.equal(a, b) for a, b in zip(one.draws, other.draws, strict=True)
    )


def test_a_batch_has_its_labels_and_indices(make_batches):
    batch = make_batches()[1]
    assert batch.indices.tolist() == [5, 4, 2]
    assert batch.labels.tolist() == [-1, 2, -1]
    assert batch.labelled.tolist() == [False, True, False]


def test_a_batch_has_as_many_draws_as_asked_for(make_batches):
    batches = make_batches()
    assert len(batches) == 3
    assert [len(batches[i].draws) for i in range(3)] == [2, 1, 2]
    assert batches[0].draws[0].shape == (3, 3, 32, 32)


def test_every_view_is_made_from_seed_batch_position_and_draw(make_batches):
    batches = make_batches()
    batch = batches[2]
    for draw in range(2):
        for position, index in enumerate([0, 0, 3]):
            view = batches.maker.random_view(batches.store[index], seed_of(11, 2, position, draw))
            assert torch.equal(batch.draws[draw][position], view)


def test_a_batch_arrives_normalised(make_batches):
    batches = make_batches()
    sent = batches[1]
    arrived = sent.to(torch.device("cpu"), batches.maker)
    assert [draw.dtype for draw in sent.draws] == [torch.uint8]
    assert torch.equal(arrived.draws[0], batches.maker.normalise(sent.draws[0]))
    assert torch.equal(arrived.labels, sent.labels) and torch.equal(arrived.indices, sent.indices)


def test_no_two_views_are_drawn_alike(make_batches):
    batches = make_batches()
    first, third = batches[0], batches[2]  # the same images
    assert not torch.equal(first.draws[0], first.draws[1]), "second draw"
    assert not torch.equal(first.draws[0][0], first.draws[0][1]), "the same image at another position"
    assert not torch.equal(first.draws[0], third.draws[0]), "another batch"
    assert not same(first, make_batches(seed=12)[0]), "another seed"


def test_a_second_draw_does_not_change_the_first(make_batches):
    one_draw, two_draws = make_batches(draws=(1, 1, 1))[0], make_batches(draws=(2, 2, 2))[0]
    assert torch.equal(one_draw.draws[0], two_draws.draws[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_batches_do_not_depend_on_the_number_of_workers(make_batches):
    here, elsewhere = (list(iterate_batches(make_batches(), workers, pin=False)) for workers in (0, 2))
    assert len(here) == len(elsewhere) == 3
    for one, other in zip(here, elsewhere, strict=True):
        assert same(one, other)
        assert torch.equal(one.indices, other.indices)
        assert torch.equal(one.labels, other.labels)
    assert same(here[1], make_batches()[1]), "nor on the order in which they are asked for"


def test_centre_views_come_in_the_order_asked_for(make_batches):
    batches = make_batches()
    order = np.array([4, 0, 3, 0, 5])
    made = list(iterate_centre_views(batches.store, batches.maker, order, batch_size=2))
    assert [len(views) for views in made] == [2, 2, 1]
    views = torch.cat(made)
    assert torch.equal(views[1], views[3])
    for position, index in enumerate(order):
        expected = batches.maker.normalise(batches.maker.centre_view(batches.store[int(index)])[None])[0]
        assert torch.equal(views[position], expected)
    assert len(CentreViews(batches.store, batches.maker, order)) == 5


def test_workers_are_only_started_where_they_pay(monkeypatch):
    monkeypatch.setattr("sptnet.data.loader.cores_per_process", lambda: 16)
    assert n_workers(3, 10) == 3
    assert n_workers(0, 10**6) == 0
    assert n_workers("auto", 1999) == 0
    assert n_workers("auto", 2000) == 8
    monkeypatch.setattr("sptnet.data.loader.cores_per_process", lambda: 2)
    assert n_workers("auto", 10**6) == 0
