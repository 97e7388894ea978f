"""Looking at a pile: once where the model has not changed, through the bank where its frozen blocks have not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import sptnet
from helpers.rounding import assert_differs, assert_same, terms_of
from sptnet.config import Config, PromptSettings
from sptnet.data.load import SplitImages
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.inference.features import FeatureCache
from sptnet.model.gcd_model import GcdModel
from sptnet.model.token_bank import TokenBank
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.distributed import World
from sptnet.training.experiment import Experiment
from sptnet.training.run_state import RunState
from sptnet.training.stage import Stage
from sptnet.training.trainer import EpochReport, StageTrainer


@pytest.fixture
def model(make_model: Callable[..., GcdModel]) -> GcdModel:
    return make_model()


@pytest.fixture
def cache(model: GcdModel, few_digits: SplitImages, cpu: Any) -> FeatureCache:
    pixels = model.backbone.pixels
    return FeatureCache(ImageStore(few_digits.image_set.sources, pixels), ViewMaker(pixels), cpu, 0, 8, World())


@pytest.fixture
def bank(tmp_path: Path, model: GcdModel, few_digits: SplitImages) -> TokenBank:
    return TokenBank(tmp_path / "bank", len(few_digits.image_set), 2, 5, model.backbone.dim, "")


CHOSEN = np.array([7, 3, 59, 3, 0])


@torch.no_grad()
def expected(model: GcdModel, cache: FeatureCache, indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """One image at a time, by the model as a whole."""
    maker, store = cache.maker, cache.store
    views = [maker.normalise(maker.centre_view(store[int(i)])[None]) for i in indices]
    features = torch.cat([model.features(view) for view in views])
    return features, torch.cat([model(view)[1] for view in views])


def assert_as_expected(found: Any, model: GcdModel, cache: FeatureCache, banked: bool = False) -> None:
    """Tokens of the bank are rounded to float16 once, which the last block passes on."""
    precision: dict[str, Any] = {"terms": 1, "dtype": torch.float16} if banked else {"terms": terms_of(model)}
    features, logits = expected(model, cache, CHOSEN)
    assert_same(found.features, features, **precision)
    assert_same(found.logits, logits, **precision)


def test_outputs_are_those_of_the_model_in_the_order_asked_for(model: GcdModel, cache: FeatureCache) -> None:
    assert_as_expected(cache.outputs(model, CHOSEN), model, cache)


def test_what_was_seen_is_not_looked_at_again(model: GcdModel, cache: FeatureCache, embedded: list[int]) -> None:
    told: list[int] = []
    cache.compute_all(model, on_progress=told.append)
    assert told == [8, 16, 24, 32, 40, 48, 56, 60]
    assert sum(embedded) == 60
    found = cache.outputs(model, CHOSEN)
    assert sum(embedded) == 60
    assert_as_expected(found, model, cache)


def test_logits_are_those_of_the_head_as_it_is_now(model: GcdModel, cache: FeatureCache) -> None:
    """A clustering changes the head alone, so features may be kept where logits may not."""
    cache.compute_all(model)
    with torch.no_grad():
        model.head.get_parameter("prototypes").neg_()
    assert_as_expected(cache.outputs(model, CHOSEN), model, cache)


def test_a_changed_model_looks_again(model: GcdModel, cache: FeatureCache) -> None:
    cache.compute_all(model)
    before = cache.outputs(model, CHOSEN)
    with torch.no_grad():
        next(model.backbone.last_blocks(1)).mul_(3)
    cache.forget()
    after = cache.outputs(model, CHOSEN)
    assert_differs(after.features, before.features, terms_of(model))
    assert_as_expected(after, model, cache)


def test_through_the_bank_the_frozen_blocks_see_an_image_once(
    model: GcdModel, cache: FeatureCache, bank: TokenBank, embedded: list[int]
) -> None:
    found = cache.outputs(model, CHOSEN, bank)
    assert sum(embedded) == len(CHOSEN), "image 3, asked for twice, is new both times"
    again = cache.outputs(model, CHOSEN, bank)
    assert torch.equal(again.features, found.features)
    cache.outputs(model, np.arange(10), bank)
    assert sum(embedded) == len(CHOSEN) + 7, "three of the ten were there"
    assert_as_expected(found, model, cache, banked=True)


def test_through_the_bank_the_last_block_is_the_one_of_now(
    model: GcdModel, cache: FeatureCache, bank: TokenBank
) -> None:
    cache.outputs(model, CHOSEN, bank)
    with torch.no_grad():
        next(model.backbone.last_blocks(1)).mul_(1.5)
    assert_as_expected(cache.outputs(model, CHOSEN, bank), model, cache, banked=True)


def test_nothing_is_dropped_while_looking(model: GcdModel, cache: FeatureCache, bank: TokenBank) -> None:
    model.backbone.vit.blocks[-1].mlp.drop2.p = 0.9  # type: ignore[union-attr]
    model.train()
    found = cache.outputs(model, CHOSEN, bank)
    assert model.training
    assert_as_expected(found, model.eval(), cache, banked=True)


def test_the_centre_view_takes_no_place_of_a_random_one(model: GcdModel, cache: FeatureCache, bank: TokenBank) -> None:
    everything = torch.arange(60)
    cache.outputs(model, everything.numpy(), bank)
    for view in range(bank.n_views):
        assert not bank.filled(everything, torch.full_like(everything, view)).any()
    assert bank.filled(everything, torch.full_like(everything, bank.centre)).all()


@pytest.mark.parametrize("kind", ["spatial+global", "vpt"])
def test_a_prompted_model_does_not_go_by_the_bank(
    kind: Any, model: GcdModel, cache: FeatureCache, bank: TokenBank, embedded: list[int]
) -> None:
    model.attach_prompt(PromptSettings(kind=kind, border=4), torch.Generator().manual_seed(0))
    for _ in range(2):
        embedded.clear()
        found = cache.outputs(model, CHOSEN, bank)
        assert sum(embedded) == len(CHOSEN)
    assert_as_expected(found, model, cache)


def test_no_image_at_all(model: GcdModel, cache: FeatureCache, bank: TokenBank) -> None:
    for some_bank in (None, bank):
        found = cache.outputs(model, np.empty(0, dtype=np.int64), some_bank)
        assert found.features.shape == (0, model.backbone.dim)
        assert found.logits.shape == (0, 10)


# --- in a run ---------------------------------------------------------------------------------------------------------


def of_method(config: Config, method: str, bank: int) -> Config:
    small = {"epochs": 3, "output": 64, "n_init": 3, "learning_rate": 0.5}
    return config.changed(views={"bank": bank}, gcd=small).model_copy(update={"method": method})


@pytest.mark.parametrize("bank", [0, 2])
@pytest.mark.parametrize("method", ["simgcd", "gcd"])
def test_after_the_last_epoch_every_image_is_looked_at_once(
    method: str,
    bank: int,
    tiny_config: Config,
    few_digits: SplitImages,
    embedded: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clustering, the last epoch's scores, the final ones and the predictions go by one pass."""
    run_epoch = StageTrainer.run_epoch

    def forgetful(self: StageTrainer, *arguments: Any) -> Any:
        report = run_epoch(self, *arguments)
        embedded.clear()
        return report

    monkeypatch.setattr(StageTrainer, "run_epoch", forgetful)
    config = of_method(tiny_config, method, bank)
    experiment = Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=lambda line: None)
    scores = experiment.run()
    assert sum(embedded) == len(few_digits.image_set)
    assert experiment.run_folder.metrics()[-1]["scores"] == scores


def test_scores_on_the_way_come_from_the_bank(
    tiny_config: Config, few_digits: SplitImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scored after every epoch, an image's centre view goes through the frozen blocks once, and once at the end."""
    calls: list[int] = []
    through_bank = FeatureCache._through_bank

    def overhear(self: FeatureCache, model: GcdModel, indices: np.ndarray, bank: TokenBank) -> torch.Tensor:
        calls.append(len(indices))
        return through_bank(self, model, indices, bank)

    monkeypatch.setattr(FeatureCache, "_through_bank", overhear)
    lines = {}
    for bank in (0, 2):
        config = of_method(tiny_config, "simgcd", bank).changed(training={"evaluate_every": 1})
        folder = RunFolder(tmp_path / f"bank-{bank}")
        Experiment(config, folder, few_digits, tell=lambda line: None).run()
        lines[bank] = folder.metrics()
    assert calls == [45, 45], "the unlabelled images after the first two of three epochs"
    assert all("scores" in line for line in lines[2])


@pytest.mark.parametrize("method", ["simgcd", "gcd"])
def test_a_run_stopped_after_its_last_epoch_ends_the_same(
    method: str,
    tiny_config: Config,
    few_digits: SplitImages,
    run_it: Callable[..., Path],
    tmp_path: Path,
    assert_same_result: Callable[[Path, Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = of_method(tiny_config, method, 2)
    whole = run_it(tmp_path / "whole", config, few_digits)
    with monkeypatch.context() as patch:
        patch.setattr(RunState, "save", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_it(tmp_path / "cut", config, few_digits)
    run_it(tmp_path / "cut", config, few_digits, resume=True)
    assert_same_result(tmp_path / "cut", whole)


def test_what_was_seen_in_one_epoch_does_not_serve_the_next(
    tiny_config: Config,
    few_digits: SplitImages,
    run_it: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line, kept = Stage._line, []

    def overhear(self: Stage, report: EpochReport, last: bool) -> dict[str, Any]:
        before = self.state.features.kept is not None
        told = line(self, report, last)
        kept.append((before, self.state.features.kept is not None))
        return told

    monkeypatch.setattr(Stage, "_line", overhear)
    run_it(tmp_path / "run", of_method(tiny_config, "gcd", 0), few_digits)
    assert kept == [(False, False), (False, True), (False, True)], "the second and the last epoch are scored"


def test_the_best_epoch_is_looked_at_anew(
    tiny_config: Config,
    held_out_digits: SplitImages,
    run_it: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last epoch was scored, but another one is kept: its predictions are written."""
    line = Stage._line

    def the_first_is_best(self: Stage, report: EpochReport, last: bool) -> dict[str, Any]:
        return line(self, report, last) | {"old_holdout": 1 / report.epoch}

    monkeypatch.setattr(Stage, "_line", the_first_is_best)
    config = of_method(tiny_config, "gcd", 0).changed(training={"select": "best-old-holdout"})
    folder = run_it(tmp_path / "run", config, held_out_digits)
    features = load_file(folder / "features.safetensors")["features"]
    expected = torch.from_numpy(sptnet.load(folder).features(list(held_out_digits.image_set.sources)))
    assert features.dtype == torch.float16
    assert_same(features, torch.nn.functional.normalize(expected, dim=1), terms=1)
