"""Pre-training without labels: it learns, repeats exactly, and writes weights that load."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sptnet.data.image_set import ImageSet
from sptnet.errors import Misuse
from sptnet.model.backbone import EMBEDDED, build_backbone
from sptnet.training.pretrain import PretrainEpoch, cosine_down, pretrain, pretrain_image_set
from sptnet.training.pretrain_views import strong_view


def image_set_of(n: int = 12, labelled: int = 12) -> ImageSet:
    random = np.random.default_rng(0)
    sources = tuple(random.integers(0, 256, (16, 16), dtype=np.uint8) for _ in range(n))
    labels = np.array([i % 2 if i < labelled else -1 for i in range(n)], np.int64)
    return ImageSet("p", tuple(map(str, range(n))), sources, ("a", "b"), labels, None, np.zeros(n, np.bool_))


def images(n: int = 8) -> torch.Tensor:
    return torch.rand(n, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def small_backbone():  # type: ignore[no-untyped-def]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_backbone(EMBEDDED, image_size=32, pretrained=False)


def test_the_whole_backbone_learns_and_is_frozen_again() -> None:
    backbone = small_backbone()
    before = {name: value.clone() for name, value in backbone.named_parameters()}
    told: list[PretrainEpoch] = []
    pretrain(backbone, images(), epochs=3, batch_size=4, on_epoch=told.append)
    assert [epoch.epoch for epoch in told] == [1, 2, 3]
    assert all(math.isfinite(epoch.loss) and epoch.seconds > 0 for epoch in told)
    assert [name for name, value in backbone.named_parameters() if torch.equal(value, before[name])] == []
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    assert not backbone.training


def test_the_loss_falls() -> None:
    told: list[PretrainEpoch] = []
    pretrain(small_backbone(), images(16), epochs=12, batch_size=8, learning_rate=1e-3, on_epoch=told.append)
    losses = [epoch.loss for epoch in told]
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.1


def test_a_learning_rate_of_zero_learns_nothing() -> None:
    backbone = small_backbone()
    before = {name: value.clone() for name, value in backbone.named_parameters()}
    pretrain(backbone, images(), epochs=1, batch_size=4, learning_rate=0.0)
    assert all(torch.equal(value, before[name]) for name, value in backbone.named_parameters())


def test_the_seed_alone_decides(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.safetensors" for i in range(3)]
    for file, seed, noise in zip(files, (0, 0, 1), (1, 2, 1), strict=True):
        torch.manual_seed(noise)  # what else happens in the process does not matter
        state = torch.get_rng_state()
        pretrain_image_set(image_set_of(), EMBEDDED, file, seed=seed, epochs=1, batch_size=6)
        assert torch.equal(torch.get_rng_state(), state)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes() != files[2].read_bytes()


def test_labels_only_measure(tmp_path: Path) -> None:
    with_labels = pretrain_image_set(image_set_of(), EMBEDDED, tmp_path / "a.safetensors", epochs=1, batch_size=6)
    few = pretrain_image_set(image_set_of(labelled=10), EMBEDDED, tmp_path / "b.safetensors", epochs=1, batch_size=6)
    assert with_labels is not None
    assert 0 <= with_labels <= 1
    assert few is None
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_the_file_is_half_precision_and_loads(tmp_path: Path) -> None:
    out = tmp_path / "new" / "w.safetensors"
    pretrain_image_set(image_set_of(), EMBEDDED, out, epochs=1, batch_size=6)
    assert [path.name for path in out.parent.iterdir()] == ["w.safetensors"]
    state = load_file(out)
    assert {value.dtype for value in state.values()} == {torch.float16}
    loaded = build_backbone(EMBEDDED, weights=out).vit.state_dict()
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[key], state[key].float()) for key in state)


def test_too_few_images_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"only 5 images\. Give --batch-size 2"):
        pretrain_image_set(image_set_of(5), EMBEDDED, tmp_path / "w.safetensors", batch_size=6)
    assert list(tmp_path.iterdir()) == []


def test_a_backbone_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="vit_tny"):
        pretrain_image_set(image_set_of(), "vit_tny", tmp_path / "w.safetensors", batch_size=6)
    assert list(tmp_path.iterdir()) == []


def test_images_in_other_sizes_are_welcome(tmp_path: Path) -> None:
    image_set = image_set_of()
    sizes = [(1, 1), (1, 40), (64, 8), *[(16, 16)] * 9]
    image_set = replace(image_set, sources=tuple(np.zeros(size, np.uint8) for size in sizes))
    pretrain_image_set(image_set, EMBEDDED, tmp_path / "w.safetensors", epochs=1, batch_size=12)
    assert all(torch.isfinite(value).all() for value in load_file(tmp_path / "w.safetensors").values())


def test_the_learning_rate_falls_like_a_cosine() -> None:
    assert [cosine_down(p) for p in (0, 0.5, 1)] == pytest.approx([1, 0.5, 0])


def test_strong_views_change_every_image_within_bounds_and_by_their_generator_alone() -> None:
    x = images(6)
    one, again = (strong_view(x, torch.Generator().manual_seed(1)) for _ in range(2))
    other = strong_view(x, torch.Generator().manual_seed(2))
    assert one.shape == x.shape
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert one.min() >= 0
    assert one.max() <= 1
    assert all((a - b).abs().mean() > 0.01 for a, b in zip(one, x, strict=True))
