"""Checkpoints: written whole or not at all, refused with a way out when damaged."""

import json
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sptnet.data.load import SplitImages
from sptnet.errors import Failure, Misuse
from sptnet.runtime.files import write_atomically, write_text_atomically
from sptnet.training.checkpoint import (
    Checkpoint,
    digest,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from sptnet.training.trainer import StageTrainer


def example(stage=0, epoch=1):
    random = torch.Generator().manual_seed(epoch)
    tensors = {"model.a": torch.randn(3, 4, generator=random), "momentum.a": torch.randn(3, 4, generator=random)}
    return Checkpoint(stage, epoch, tensors, {"best": [0.5, 1], "frozen": "abc", "scalers": {}})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    saved = example(1, 7)
    again = load_checkpoint(save_checkpoint(tmp_path / "new" / "folder", saved))
    assert (again.stage, again.epoch, again.facts) == (1, 7, saved.facts)
    assert again.tensors.keys() == saved.tensors.keys()
    assert all(torch.equal(again.tensors[name], value) for name, value in saved.tensors.items())


def test_the_two_newest_are_kept(tmp_path):
    for stage, epoch in [(0, 8), (0, 9), (0, 10), (0, 11), (1, 1)]:
        path = save_checkpoint(tmp_path, example(stage, epoch))
        assert newest_checkpoint(tmp_path) == path
    assert names(tmp_path) == ["stage0-epoch00011.safetensors", "stage1-epoch00001.safetensors"]


def test_no_checkpoint_at_all(tmp_path):
    assert newest_checkpoint(tmp_path / "nowhere") is None
    assert newest_checkpoint(tmp_path) is None


def test_a_leftover_part_is_neither_read_nor_in_the_way(tmp_path):
    left = tmp_path / ".stage0-epoch00009.safetensors.sptnet-0123456789abcdef.part"
    left.mkdir()
    (left / "stage0-epoch00009.safetensors").write_bytes(b"half a checkpoint")
    assert newest_checkpoint(tmp_path) is None
    path = save_checkpoint(tmp_path, example(0, 9))
    assert load_checkpoint(path).epoch == 9
    assert names(tmp_path) == ["stage0-epoch00009.safetensors"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text_atomically(path, "old")

    def fail(part):
        part.write_text("half of the n")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    assert path.read_text() == "old"


def test_the_old_file_stays_until_the_new_one_is_on_the_disk(tmp_path, monkeypatch):
    path, order = tmp_path / "a.txt", []
    write_text_atomically(path, "old")
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (order.append(("sync", path.read_text())), sync(file)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append(("replace", path.read_text())), replace(a, b)))
    write_text_atomically(path, "new")
    assert order == [("sync", "old"), ("replace", "old"), ("sync", "new")], "the file, then its folder"
    assert path.read_text() == "new"


# --- damage ---


def damaged(path, other):
    """What every message about a damaged checkpoint must have: the file and the way out."""
    way_out = (
        f"Delete it; `resume=True` then goes on from {other.name}"
        if other
        else "`resume=True` then starts the run again"
    )
    return rf"{re.escape(str(path))} is damaged .*{re.escape(way_out)}"


@pytest.mark.parametrize("keep", [0, 5, 100, -1], ids=["empty", "inside the length", "inside the header", "last byte"])
def test_a_truncated_file_is_named_with_the_one_before_it(tmp_path, keep):
    before, path = save_checkpoint(tmp_path, example(0, 1)), save_checkpoint(tmp_path, example(0, 2))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(Failure, match=damaged(path, before)):
        load_checkpoint(path)
    path.unlink()
    assert load_checkpoint(newest_checkpoint(tmp_path)).epoch == 1, "the way out is one"


def test_a_damaged_only_checkpoint_sends_back_to_the_beginning(tmp_path):
    path = save_checkpoint(tmp_path, example())
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(Failure, match=damaged(path, None)):
        load_checkpoint(path)


def header_size(content):
    return 8 + struct.unpack("<Q", content[:8])[0]


@pytest.mark.parametrize("bit", [0, 7])
def test_any_flipped_bit_in_the_tensors_is_noticed(tmp_path, bit):
    path = save_checkpoint(tmp_path, example())
    whole = path.read_bytes()
    for position in range(header_size(whole), len(whole), 5):
        content = bytearray(whole)
        content[position] ^= 1 << bit
        path.write_bytes(content)
        with pytest.raises(Failure, match=damaged(path, None)):
            load_checkpoint(path)


def test_a_flipped_bit_in_the_header_is_noticed_or_harmless(tmp_path):
    """Where the run stood is as much a part of a checkpoint as its tensors."""
    path = save_checkpoint(tmp_path, example())
    whole, good, unnoticed = path.read_bytes(), load_checkpoint(path), []
    for position in range(header_size(whole)):
        content = bytearray(whole)
        content[position] ^= 1
        path.write_bytes(content)
        try:
            read = load_checkpoint(path)
        except Failure:
            continue
        except Exception as error:
            unnoticed.append((position, repr(error)))
            continue
        same = (read.stage, read.epoch, read.facts) == (good.stage, good.epoch, good.facts)
        if not same or digest(read.tensors) != digest(good.tensors):
            unnoticed.append((position, f"stage {read.stage}, epoch {read.epoch}, {read.facts}"))
    assert unnoticed == []


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"sptnet": "{}"}, {"sptnet": "[]"}, {"sptnet": "?"}])
def test_a_foreign_file_is_refused(tmp_path, metadata):
    path = tmp_path / "stage0-epoch00003.safetensors"
    save_file({"weight": torch.zeros(2)}, path, metadata)
    with pytest.raises(Failure, match=damaged(path, None)):
        load_checkpoint(path)


def test_the_digest_knows_names_shapes_types_and_values():
    base = {"a": torch.arange(6.0), "b": torch.zeros(2)}
    others = [
        {"a": torch.arange(6.0), "c": torch.zeros(2)},
        {"a": torch.arange(6.0).view(2, 3), "b": torch.zeros(2)},
        {"a": torch.arange(6.0), "b": torch.zeros(2, dtype=torch.int32)},
        {"a": torch.arange(6.0), "b": torch.tensor([0.0, -0.0])},
        {"a": torch.arange(6.0)},
    ]
    digests = {digest(tensors) for tensors in [base, *others]}
    assert len(digests) == 6
    assert digest(dict(reversed(base.items()))) == digest(base)
    assert digest({"b": torch.zeros(4)[::2], "a": torch.arange(6.0)}) == digest(base), "the memory's order is no matter"


# --- checkpoints of a run ---


@pytest.fixture
def stopped(tiny_config, few_digits, run_it, tmp_path, monkeypatch):
    """A run interrupted in the third of its three SimGCD epochs, and the images it ran on."""
    inner, steps = StageTrainer.train_step, []

    def step(self, batch, phase, number):
        steps.append(number)
        if len(steps) == 13:
            raise KeyboardInterrupt
        return inner(self, batch, phase, number)

    with monkeypatch.context() as patch:
        patch.setattr(StageTrainer, "train_step", step)
        with pytest.raises(KeyboardInterrupt):
            run_it(tmp_path / "run", tiny_config, few_digits)
    folder = tmp_path / "run"
    assert names(folder / "checkpoints") == ["stage0-epoch00001.safetensors", "stage0-epoch00002.safetensors"]
    return folder


def test_what_a_checkpoint_of_a_run_holds(stopped):
    checkpoint = load_checkpoint(newest_checkpoint(stopped / "checkpoints"))
    kinds = {name.split(".")[0] for name in checkpoint.tensors}
    weights = {name.split(".", 1)[1] for name in checkpoint.tensors if name.startswith("model.")}
    momenta = {name.split(".", 1)[1] for name in checkpoint.tensors if name.startswith("momentum.")}
    assert kinds == {"model", "momentum"}
    assert weights == momenta
    assert all(name.startswith(("head.", "backbone.vit.blocks.3.")) for name in weights)


def test_a_damaged_checkpoint_stops_the_resume_and_its_way_out_works(
    stopped, few_digits, run_it, tiny_config, tmp_path, assert_same_result
):
    path = newest_checkpoint(stopped / "checkpoints")
    content = bytearray(path.read_bytes())
    content[-100] ^= 4
    path.write_bytes(content)
    with pytest.raises(Failure, match="Delete it; `resume=True` then goes on from stage0-epoch00001"):
        run_it(stopped, data=few_digits, resume=True)
    path.unlink()
    run_it(stopped, data=few_digits, resume=True)
    assert_same_result(stopped, run_it(tmp_path / "whole", tiny_config, few_digits))


def change_frozen_weights(path: Path) -> None:
    from safetensors.torch import load_file

    weights = load_file(path)
    weights["patch_embed.proj.bias"][0] += 1e-3
    save_file(weights, path)


def test_other_frozen_weights_are_refused(stopped, tiny_config, tiny_weights, few_digits, run_it, tmp_path):
    """The file of weights was replaced since the run began."""
    other = tmp_path / "other.safetensors"
    other.write_bytes(tiny_weights.read_bytes())
    moved = tiny_config.changed(backbone={"weights": str(other)})
    change_frozen_weights(other)
    before = {p.name: p.read_bytes() for p in (stopped / "checkpoints").iterdir()}
    with pytest.raises(Failure, match=r"weights are not those this run began with.*`overwrite=True`"):
        run_it(stopped, moved, few_digits, resume=True)
    assert {p.name: p.read_bytes() for p in (stopped / "checkpoints").iterdir()} == before
    run_it(stopped, data=few_digits, resume=True)


@pytest.fixture
def forge(stopped):
    """Function that changes the newest checkpoint of the stopped run and gives it a valid checksum."""

    def change(tensors=None, remove=(), **facts):
        path = newest_checkpoint(stopped / "checkpoints")
        old = load_checkpoint(path)
        made = {name: value for name, value in (old.tensors | (tensors or {})).items() if name not in remove}
        own = {"stage": old.stage, "epoch": old.epoch, **old.facts} | facts
        text = json.dumps({key: value for key, value in own.items() if value != "gone"})
        save_file(made, path, {"sptnet": text, "sha256": digest(made, text)})
        return stopped

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda: {"remove": ["model.head.prototypes"]}, r"model\.head\.prototypes is missing"),
        (lambda: {"tensors": {"model.head.prototypes": torch.zeros(1, 96)}}, r"shape \(1, 96\), not \(10, 96\)"),
        (lambda: {"tensors": {"model.head.prototypes": torch.zeros(())}}, r"shape \(\), not \(10, 96\)"),
        (
            lambda: {"tensors": {"momentum.head.prototypes": torch.zeros(1, 96)}},
            r"momentum\.head\.prototypes has the sha",
        ),
        (lambda: {"tensors": {"model.head.prototypes": torch.zeros(10, 96).double()}}, "type float64, not float32"),
        (lambda: {"tensors": {"model.more": torch.zeros(3)}}, r"model\.more is not part of it"),
        (lambda: {"stage": 7}, "it is of stage 8, and there are 2"),
    ],
    ids=["lacking", "broadcast", "scalar", "momentum", "type", "more", "stage"],
)
def test_a_checkpoint_of_other_settings_is_refused(forge, few_digits, run_it, change, says):
    stopped = forge(**change())
    with pytest.raises(
        Failure, match=rf"the checkpoint does not fit the settings of the run: .*{says}.*`overwrite=True`"
    ):
        run_it(stopped, data=few_digits, resume=True)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"epoch": "x"}, "epoch: input should be a valid integer"),
        ({"epoch": -1}, "epoch: input should be greater than or equal to 0"),
        ({"stage": "gone"}, "stage: field required"),
        ({"best": [1]}, "best: list should have at least 2 items"),
        ({"scalers": []}, "scalers: input should be a valid dictionary"),
        ({"scalers": {"model": {"scale": 1.0}}}, r"scalers\.model: a gradient scaler has"),
        ({"ending": 3}, "ending: input should be a valid list"),
        ({"seconds": "1"}, "seconds: input should be a valid number"),
        ({"seconds": float("nan")}, "NaN is not valid JSON"),
    ],
)
def test_wrongly_typed_facts_of_a_checkpoint_are_named(forge, few_digits, run_it, facts, says):
    stopped = forge(**facts)
    path = newest_checkpoint(stopped / "checkpoints")
    with pytest.raises(Failure, match=rf"{re.escape(str(path))} is damaged \({says}.*goes on from stage0-epoch00001"):
        run_it(stopped, data=few_digits, resume=True)


def other_pixel(data):
    sources = list(data.image_set.sources)
    sources[7] = sources[7].copy()
    sources[7][0, 0] ^= 1
    return {"sources": tuple(sources)}


def other_order(data):
    order = np.arange(len(data.image_set))[::-1]
    return {"ids": tuple(data.image_set.ids[i] for i in order)}


@pytest.mark.parametrize("change", [other_pixel, other_order], ids=["one pixel", "names"])
def test_other_images_are_refused(stopped, few_digits, run_it, change):
    from dataclasses import replace

    data = SplitImages(replace(few_digits.image_set, **change(few_digits)), few_digits.split, [])
    metrics = (stopped / "metrics.jsonl").read_text()
    with pytest.raises(Misuse, match=r"images are not those this run began with.*`overwrite=True`"):
        run_it(stopped, data=data, resume=True)
    assert (stopped / "metrics.jsonl").read_text() == metrics
    assert json.loads((stopped / "run.json").read_text())["status"] == "stopped"


def test_a_checkpoint_that_lacks_momentum_is_refused(forge, few_digits, run_it):
    """The optimiser cannot go on with a part of it."""
    stopped = forge()
    path = newest_checkpoint(stopped / "checkpoints")
    checkpoint = load_checkpoint(path)
    names = [name for name in checkpoint.tensors if name.startswith("momentum.")]
    forge(remove=names[:1], momentum=len(names))
    with pytest.raises(Failure, match=r"is damaged \(the momentum of 1 parameters is missing\)\. Delete it"):
        run_it(stopped, data=few_digits, resume=True)


def test_the_newest_checkpoint_is_that_of_the_last_epoch_whatever_its_number(tmp_path):
    """Names of six digits are before those of five in the order of the alphabet."""
    for stage, epoch in ((0, 5), (0, 99_999), (0, 100_000), (0, 100_001)):
        written = save_checkpoint(tmp_path, example(stage, epoch))
        assert newest_checkpoint(tmp_path) == written
    assert names(tmp_path) == ["stage0-epoch100000.safetensors", "stage0-epoch100001.safetensors"]
    for stage in (2, 10):
        assert save_checkpoint(tmp_path, example(stage, 1)) == newest_checkpoint(tmp_path)
