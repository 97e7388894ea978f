"""The token bank: fixed views that are computed once, and training that does not depend on when."""

import errno
import json
import os
import pickle
import shutil
from collections import namedtuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers.rounding import assert_same, rounding
from sptnet.config import ViewSettings
from sptnet.config.recipes import load_recipe
from sptnet.data.readable import fingerprint
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.errors import Failure, Misuse
from sptnet.methods.phases import MODEL, PROMPT, RAW, View
from sptnet.methods.stage_plan import Clock
from sptnet.model import token_bank
from sptnet.model.bank_header import read_header
from sptnet.model.token_bank import TokenBank, size
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.seeds import seed_of
from sptnet.training.batching.batches import EpochBatches, TrainingData
from sptnet.training.experiment import Experiment
from sptnet.training.step import banked_tokens, step_loss

KEY = "these weights"


@pytest.fixture
def bank(tmp_path):
    return TokenBank(tmp_path / "bank", n_images=6, n_views=3, length=5, dim=96, key=KEY)


def test_written_tokens_are_read_and_flagged(bank):
    images, views = torch.tensor([4, 0]), torch.tensor([2, 1])
    tokens = torch.randn(2, 5, 96).half()
    assert bank.filled(images, views).tolist() == [False, False]
    bank.write(images, views, tokens)
    assert torch.equal(bank.read(images, views), tokens)
    assert bank.filled(torch.tensor([4, 0, 4, 0]), torch.tensor([2, 1, 1, 2])).tolist() == [True, True, False, False]


def test_a_reopened_bank_has_its_tokens(bank, tmp_path):
    tokens = torch.randn(1, 5, 96).half()
    bank.write(torch.tensor([3]), torch.tensor([0]), tokens)
    again = TokenBank(tmp_path / "bank", 6, 3, 5, 96, KEY)
    assert again.filled(torch.tensor([3, 3]), torch.tensor([0, 1])).tolist() == [True, False]
    assert torch.equal(again.read(torch.tensor([3]), torch.tensor([0])), tokens)


@pytest.mark.parametrize("other", [(7, 3, 5, 96, KEY), (6, 4, 5, 96, KEY), (6, 3, 5, 96, "other weights")])
def test_a_bank_of_something_else_is_refused(bank, tmp_path, other):
    with pytest.raises(Misuse, match=r"was made from other images, views or weights. Give another `views.bank_folder`"):
        TokenBank(tmp_path / "bank", *other)


def test_a_damaged_header_names_the_folder_to_remove(bank, tmp_path):
    (tmp_path / "bank" / "bank.json").write_text("{")
    with pytest.raises(Failure, match=r"is damaged .* Remove the folder"):
        TokenBank(tmp_path / "bank", 6, 3, 5, 96, KEY)


def test_a_disk_too_small_is_noticed_before_training(tmp_path):
    with pytest.raises(Misuse, match=r"needs \d+\.\d GiB, but .* Give fewer views with `views.bank=N`"):
        TokenBank(tmp_path / "bank", 10**9, 64, 197, 768, KEY)


def test_another_process_is_sent_the_folder_and_not_the_tokens(tmp_path):
    bank = TokenBank(tmp_path / "bank", 600, 3, 5, 96, KEY)
    sent = pickle.dumps(bank)
    assert len(sent) < 1000
    reopened, tokens = pickle.loads(sent), torch.randn(1, 5, 96).half()
    bank.write(torch.tensor([3]), torch.tensor([2]), tokens)
    assert reopened.filled(torch.tensor([3, 4]), torch.tensor([2, 2])).tolist() == [True, False]
    assert torch.equal(reopened.read(torch.tensor([3]), torch.tensor([2])), tokens)
    assert reopened.n_views == 3


def batches_of(bank, pixels, phase=RAW, seed=11):
    random = np.random.RandomState(0)
    sources = [random.randint(0, 256, (40, 60, 3), dtype=np.uint8) for _ in range(6)]
    numbers = [torch.tensor([0, 0, 3]), torch.tensor([5, 4, 2])]
    labels, known, unknown = np.array([0, 1, -1, -1, 2, -1]), np.array([0, 1, 4]), np.array([2, 3, 5])
    data = TrainingData(ImageStore(sources, pixels), ViewMaker(pixels), labels, known, unknown, tuple("abcdef"))
    return EpochBatches(data, numbers, [phase] * 2, seed, bank)


def test_the_draws_of_an_image_are_different_views_of_its_bank(bank, make_model):
    pixels = make_model().backbone.pixels
    for seed in range(40):
        one, two = batches_of(bank, pixels, seed=seed)[0].banked
        assert ((one.views >= 0) & (one.views < 3) & (two.views >= 0) & (two.views < 3)).all()
        assert (one.views != two.views).all()


def test_all_views_of_the_bank_are_used_about_equally(bank, make_model):
    pixels = make_model().backbone.pixels
    drawn = torch.cat([d.views for seed in range(300) for d in batches_of(bank, pixels, seed=seed)[0].banked])
    five_deviations = 5 * (1 / 3 * 2 / 3 / len(drawn)) ** 0.5
    assert (torch.bincount(drawn, minlength=3) / len(drawn) - 1 / 3).abs().max() < five_deviations


def test_pixels_are_made_for_missing_views_and_for_whole_draws(bank, make_model):
    pixels = make_model().backbone.pixels
    batch = batches_of(bank, pixels)[1]
    held = batch.banked[0].views
    bank.write(batch.indices[:2], held[:2], torch.zeros(2, 5, 96).half())
    again = batches_of(bank, pixels)[1]
    assert again.banked[0].made.tolist() == [False, False, True]
    assert torch.equal(again.draws[0], batch.draws[0][2:])
    assert batches_of(bank, pixels, MODEL)[1].banked[0].made.all()


def test_a_view_of_the_bank_is_the_same_whenever_it_is_drawn(bank, make_model):
    pixels = make_model().backbone.pixels
    batches = batches_of(bank, pixels)
    batch = batches[0]
    for draw, chosen in zip(batch.draws, batch.banked, strict=True):
        for position, (image, view) in enumerate(zip(batch.indices.tolist(), chosen.views.tolist(), strict=True)):
            expected = batches.data.maker.random_view(batches.data.store[image], seed_of("bank", image, view))
            assert torch.equal(draw[position], expected)


def first_batch(model, bank, number=0, **words):
    """Return a batch as a training step gets it: on the device, normalised."""
    batches = batches_of(bank, model.backbone.pixels, **words)
    return batches[number].to(torch.device("cpu"), batches.data.maker)


def test_tokens_are_those_of_the_backbone_in_float16(bank, make_model, cpu):
    model = make_model()
    batch = first_batch(model, bank)
    expected = model.backbone.enter_last_block(batch.draws[0]).half().float()
    computed = banked_tokens(model, batch, View(0), bank, cpu)
    assert torch.equal(computed, computed.half().float())
    assert_same(computed, expected, terms=1, dtype=torch.float16)
    assert torch.equal(banked_tokens(model, batch, View(0), bank, cpu), computed), "and the same when they are read"


def test_a_filled_bank_spares_the_frozen_blocks(bank, make_model, cpu, monkeypatch):
    model = make_model()
    batch = first_batch(model, bank)
    banked_tokens(model, batch, View(0), bank, cpu)
    monkeypatch.setattr(model.backbone, "enter_last_block", None)
    banked_tokens(model, batch, View(0), bank, cpu)


@pytest.mark.parametrize("phase", [RAW, MODEL, PROMPT], ids=lambda phase: phase.name)
def test_a_step_from_the_bank_is_the_plain_step(phase, tmp_path, make_model, make_training_data, cpu, tiny_config):
    """The same pixels through the plain path give the same loss, but for the rounding to float16."""
    from sptnet.config import PromptSettings
    from sptnet.methods import stages_of

    model = make_model()
    model.attach_prompt(PromptSettings(border=4), torch.Generator().manual_seed(0))
    bank = TokenBank(tmp_path / "bank", 6, 3, 5, 96, KEY)
    batch = first_batch(model, bank, 1, phase=phase)
    plan = stages_of(tiny_config)[-1]
    clock = Clock(0, 1, 0, 1)
    plain = step_loss(model, batch, phase, plan, clock, cpu).total.item()
    # Each token is rounded once, and its error spreads over the dimensions of a feature, of which a cosine sees one.
    # Losses are means over the views of cosines divided by a temperature, at least 0.07 in the first epoch.
    views = 2 * len(batch.indices)
    tolerance = rounding(1, dtype=torch.float16, averaged=model.backbone.dim * views) / 0.07
    assert step_loss(model, batch, phase, plan, clock, cpu, bank).total.item() == pytest.approx(plain, abs=tolerance)


def banked(config, **views):
    return config.changed(views={"bank": 3, **views})


def test_a_run_with_a_bank_learns_and_leaves_it_in_the_run(tiny_config, few_digits, run_it, tmp_path):
    folder = run_it(tmp_path / "run", banked(tiny_config), few_digits)
    again = RunFolder(folder).metrics()
    assert again[-1]["losses"]["model"]["total"] < again[0]["losses"]["raw"]["total"]
    sums = np.fromfile(folder / "tokens" / "sums.bin", dtype=np.uint64)
    assert (sums != 0).mean() > 0.5


def test_a_bank_filled_before_changes_no_number(tiny_config, few_digits, run_it, tmp_path, assert_same_result):
    bank_folder = str(tmp_path / "shared")
    first = run_it(tmp_path / "one", banked(tiny_config, bank_folder=bank_folder), few_digits)
    second = run_it(tmp_path / "two", banked(tiny_config, bank_folder=bank_folder), few_digits)
    assert_same_result(first, second)


def test_tokens_that_a_power_cut_has_lost_change_no_number(
    tiny_config, few_digits, run_it, tmp_path, assert_same_result
):
    config = banked(tiny_config, bank_folder=str(tmp_path / "shared"))
    first = run_it(tmp_path / "one", config, few_digits)
    tokens = tmp_path / "shared" / "tokens.bin"
    whole = tokens.read_bytes()
    tokens.write_bytes(bytes(len(whole)))
    assert_same_result(first, run_it(tmp_path / "two", config, few_digits))
    assert tokens.read_bytes() == whole


def test_a_bank_of_an_earlier_version_changes_no_number(tiny_config, few_digits, run_it, tmp_path, assert_same_result):
    """0.1.0 wrote no mark, flags instead of checksums, and a key with its own fingerprint of the images."""
    config = banked(tiny_config, bank_folder=str(tmp_path / "shared"))
    first = run_it(tmp_path / "one", config, few_digits)
    header, sums = tmp_path / "shared" / "bank.json", tmp_path / "shared" / "sums.bin"
    shape = json.loads(header.read_text())
    images = f"images-2:{fingerprint(few_digits.image_set, 2)}"
    assert images in shape["key"]
    old = {name: value for name, value in shape.items() if name not in ("kind", "version")}
    header.write_text(json.dumps(old | {"key": shape["key"].replace(images, fingerprint(few_digits.image_set, 1))}))
    flags = np.fromfile(sums, np.uint64) != 0
    flags.tofile(tmp_path / "shared" / "filled.bin")
    sums.unlink()
    tokens = (tmp_path / "shared" / "tokens.bin").read_bytes()
    assert_same_result(first, run_it(tmp_path / "two", config, few_digits))
    assert (tmp_path / "shared" / "tokens.bin").read_bytes() == tokens and not sums.exists()


def test_a_full_disk_ends_a_run_that_then_resumes(
    tiny_config, few_digits, run_it, tmp_path, assert_same_result, monkeypatch
):
    whole = run_it(tmp_path / "whole", banked(tiny_config), few_digits)
    written, pwrite = 0, os.pwrite

    def fills_up(file, content, offset):
        nonlocal written
        written += len(content)
        if written > 80 * 5 * 96 * 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(file, content, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fills_up)
        with pytest.raises(Failure, match=r"tokens.bin .* \(No space left .* `resume=True`: the views"):
            run_it(tmp_path / "cut", banked(tiny_config), few_digits)
    run_it(tmp_path / "cut", banked(tiny_config), few_digits, resume=True)
    assert_same_result(tmp_path / "cut", whole)


@pytest.mark.parametrize("bank", [3, "auto"])
@pytest.mark.parametrize("name", ["tokens.bin", "filled.bin"])
def test_a_run_leaves_files_of_others_alone(tiny_config, few_digits, tmp_path, bank, name):
    mine = tmp_path / "mine" / name
    mine.parent.mkdir()
    mine.write_bytes(b"a year of work")
    config = banked(tiny_config, bank=bank, bank_folder=str(mine.parent))
    with pytest.raises(Misuse, match=rf"{name} does not belong to a token bank"):
        Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=lambda _: None).run()
    assert mine.read_bytes() == b"a year of work" and list(mine.parent.iterdir()) == [mine]
    assert not (tmp_path / "run").exists()


def test_tokens_that_vanish_during_a_step_are_an_error(tmp_path, make_model, cpu):
    model = make_model()
    bank = TokenBank(tmp_path / "bank", 6, 3, 5, 96, KEY)
    banked_tokens(model, first_batch(model, bank), View(0), bank, cpu)
    batch = first_batch(model, bank)  # without pixels, since all views are stored
    bank = TokenBank(tmp_path / "bank", 6, 3, 5, 96, KEY)
    (tmp_path / "bank" / "tokens.bin").write_bytes(bytes(6 * 4 * 5 * 96 * 2))
    with pytest.raises(Failure, match=r"lost tokens while it was in use.*`resume=True`"):
        banked_tokens(model, batch, View(0), bank, cpu)


def test_a_resumed_run_is_the_undisturbed_one(
    tiny_config, few_digits, run_it, tmp_path, assert_same_result, monkeypatch
):
    import sptnet.training.trainer

    whole = run_it(tmp_path / "whole", banked(tiny_config), few_digits)
    done = 0
    original = sptnet.training.trainer.StageTrainer.train_step

    def stops(self, batch, phase, number):
        nonlocal done
        done += 1
        if done == 18:  # in the second stage
            raise KeyboardInterrupt
        return original(self, batch, phase, number)

    monkeypatch.setattr(sptnet.training.trainer.StageTrainer, "train_step", stops)
    with pytest.raises(KeyboardInterrupt):
        run_it(tmp_path / "cut", banked(tiny_config), few_digits)
    run_it(tmp_path / "cut", banked(tiny_config), few_digits, resume=True)
    assert_same_result(tmp_path / "cut", whole)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_workers_change_no_number(tiny_config, few_digits, run_it, tmp_path, assert_same_result):
    alone = run_it(tmp_path / "alone", banked(tiny_config), few_digits)
    helped = run_it(tmp_path / "helped", banked(tiny_config, workers=2), few_digits)
    assert_same_result(alone, helped)


def test_only_the_last_block_may_train_on_a_bank(tiny_config, few_digits, tmp_path):
    config = banked(tiny_config).changed(backbone={"trainable_blocks": 2})
    with pytest.raises(Misuse, match="only that block may train"):
        Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=lambda _: None).run()
    assert not (tmp_path / "run").exists()


def test_overwriting_a_run_removes_its_bank(tiny_config, few_digits, run_it, tmp_path):
    folder = run_it(tmp_path / "run", banked(tiny_config), few_digits)
    shutil.rmtree(folder / "checkpoints")
    Experiment(tiny_config, RunFolder(folder), few_digits, tell=lambda _: None).run(overwrite=True)
    assert not (folder / "tokens").exists()


# --- as many views as fit ---

VIEW_OF_SIXTY = 60 * 5 * 96 * 2  # bytes, at 32 pixels


def experiment(config, data, folder, **changes):
    said = []
    config = config.changed(views={"bank": "auto"}).changed(**changes)
    return Experiment(config, RunFolder(folder), data, said.append), said


def bank_chosen(config, data, folder, **changes):
    """Return the number of views that a run would begin with, and the messages about it."""
    chosen, said = experiment(config, data, folder, **changes)
    assert not folder.exists()
    return chosen.state.config.views.bank, said


@pytest.mark.parametrize(
    ("views", "bank"), [(10, 8), (9, 8), (8.9, 4), (5, 4), (4.9, 2), (3, 2), (2.9, 0)], ids=lambda n: str(n)
)
@pytest.mark.parametrize("limit", ["budget", "disk"])
def test_the_most_views_that_fit_are_taken(views, bank, limit, tiny_config, few_digits, tmp_path, monkeypatch):
    room, budget = round(views * VIEW_OF_SIXTY), None
    usage = namedtuple("usage", "free")
    if limit == "budget":
        budget = room / 1e9
    else:
        monkeypatch.setattr("sptnet.model.token_bank.shutil.disk_usage", lambda path: usage(2 * room))
    chosen, said = bank_chosen(tiny_config, few_digits, tmp_path / "run", views={"bank_budget_gb": budget})
    assert chosen == bank
    if bank:
        megabytes = (bank + 1) * VIEW_OF_SIXTY / 1e6  # the centre view has room too
        assert said == [
            f"token bank of {bank} views per image, up to {megabytes:.2f} MB in {tmp_path / 'run' / 'tokens'}"
        ]
    else:
        assert said == [
            "no token bank: 2 views per image take 0.17 MB, and it may have 0.17 MB. Every step makes fresh views "
            "instead. More room: `views.bank_budget_gb=N`, or another disk with `views.bank_folder=DIR`."
        ]


def test_a_budget_beyond_the_disk_is_the_disk(tiny_config, few_digits, tmp_path, monkeypatch):
    free = namedtuple("usage", "free")(5 * VIEW_OF_SIXTY)
    monkeypatch.setattr("sptnet.model.token_bank.shutil.disk_usage", lambda path: free)
    assert bank_chosen(tiny_config, few_digits, tmp_path / "run", views={"bank_budget_gb": 1.0})[0] == 4


def test_the_number_is_written_and_kept_when_the_disk_has_changed(
    tiny_config, few_digits, run_it, tmp_path, monkeypatch, assert_same_result
):
    budget = {"bank": "auto", "bank_budget_gb": 5 * VIEW_OF_SIXTY / 1e9}
    short = {"simgcd": {"epochs": 1}, "sptnet": {"epochs": 1}}
    folder = run_it(tmp_path / "run", tiny_config.changed(views=budget, **short), few_digits)
    assert "bank = 4\n" in (folder / "config.toml").read_text()
    assert np.fromfile(folder / "tokens" / "sums.bin", dtype=np.uint64).size == 60 * 5
    four = run_it(tmp_path / "four", tiny_config.changed(views={"bank": 4}, **short), few_digits)
    assert_same_result(folder, four)
    monkeypatch.setattr("sptnet.training.bank_setup.choose_bank", lambda *_: pytest.fail("it was chosen before"))
    run_it(folder, None, few_digits, resume=True)
    assert_same_result(folder, four)


@pytest.mark.parametrize(("n_bytes", "text"), [(25_040_000_000, "25.0 GB"), (1e9, "1.0 GB"), (9.9e8, "990.00 MB")])
def test_sizes_in_words(n_bytes, text):
    assert size(n_bytes) == text


def test_a_bank_that_is_there_decides(tiny_config, few_digits, tmp_path):
    TokenBank(tmp_path / "shared", 60, 3, 5, 96, KEY)
    views = {"bank_folder": str(tmp_path / "shared"), "bank_budget_gb": 1e-9}
    chosen, said = bank_chosen(tiny_config, few_digits, tmp_path / "run", views=views)
    assert chosen == 3
    assert said == [f"token bank of 3 views per image, up to 0.23 MB in {tmp_path / 'shared'}"]


def test_the_bank_of_a_run_that_is_replaced_does_not_decide(tiny_config, few_digits, run_it, tmp_path):
    folder = run_it(tmp_path / "run", banked(tiny_config).changed(simgcd={"epochs": 1}), few_digits)
    chosen, _ = experiment(tiny_config, few_digits, folder, views={"bank_budget_gb": 3 * VIEW_OF_SIXTY / 1e9})
    assert chosen.state.config.views.bank == 2


def test_final_features_come_from_the_bank_only_if_asked(tiny_config, few_digits, run_it, tmp_path):
    """Features of length one from tokens in half precision differ by their rounding."""
    features = {}
    for at_end in (False, True):
        config = banked(tiny_config).changed(simgcd={"epochs": 1}, views={"bank_at_end": at_end})
        run = run_it(tmp_path / f"run-{at_end}", config.model_copy(update={"method": "simgcd"}), few_digits)
        features[at_end] = load_file(run / "features.safetensors")["features"].float()
        bank = TokenBank(*opened_with(run / "tokens"))
        centre = torch.full((60,), bank.centre)
        assert bank.filled(torch.arange(60), centre).all() == at_end
    error = (features[True] - features[False]).abs().max()
    assert 0 < error < 2.0**-7  # half precision has steps of 2^-11; the last block has some products


def test_clusters_too_can_come_from_the_bank(tiny_config, few_digits, run_it, tmp_path):
    config = banked(tiny_config).changed(views={"bank_at_end": True}).model_copy(update={"method": "sskmeans"})
    run = run_it(tmp_path / "run", config, few_digits)
    bank, images = TokenBank(*opened_with(run / "tokens")), torch.arange(60)
    assert bank.filled(images, torch.full((60,), bank.centre)).all()
    assert not bank.filled(images, torch.zeros_like(images)).any()


def opened_with(folder):
    """Return the arguments that open an existing bank."""
    header = read_header(folder)
    return folder, *(header[name] for name in ("images", "views", "length", "dim", "key"))


def test_no_bank_is_chosen_where_more_than_the_last_block_trains(tiny_config, few_digits, tmp_path):
    chosen, said = bank_chosen(tiny_config, few_digits, tmp_path / "run", backbone={"trainable_blocks": 2})
    assert chosen == 0
    assert said == ["no token bank, since it would hold what enters the last block, and more than that block trains"]


def test_no_bank_is_chosen_where_nothing_trains(tiny_config, few_digits, tmp_path):
    config = tiny_config.model_copy(update={"method": "kmeans"})
    assert bank_chosen(config, few_digits, tmp_path / "run") == (0, [])


def test_wrong_settings_of_a_bank_are_refused(tiny_settings):
    with pytest.raises(Misuse, match=r"views.bank: .* Got 'many'") as error:
        load_recipe("digits", [*tiny_settings, "views.bank=many", "views.bank_budget_gb=0"])
    assert "views.bank_budget_gb: input should be greater than 0. Got 0." in str(error.value)
    assert load_recipe("digits", [*tiny_settings, "views.bank=auto"]).views.bank == "auto"


def test_banks_with_room(make_model, tmp_path, monkeypatch):
    """A bank of V views has V + 1 rows per image and may take half of the free disk, or the budget if one is set."""
    backbone = make_model().backbone
    five_rows = 5 * 100 * 2 * backbone.tokens_per_view * backbone.dim
    for free, banks in ((2 * five_rows, (4, 2)), (2 * five_rows - 1, (2,)), (0, ())):
        monkeypatch.setattr(token_bank, "free_disk", lambda folder, free=free: free)
        assert token_bank.banks_with_room(ViewSettings(), tmp_path, 100, backbone) == banks
    monkeypatch.setattr(token_bank, "free_disk", lambda folder: 10 * five_rows)
    for budget, banks in ((five_rows, (4, 2)), (five_rows - 1, (2,))):
        settings = ViewSettings(bank_budget_gb=budget / 1e9)
        assert token_bank.banks_with_room(settings, tmp_path, 100, backbone) == banks
