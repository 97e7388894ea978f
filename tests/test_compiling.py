"""Compiled blocks give the same numbers, and a machine that cannot compile is told what to do."""

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from conftest import SIZE, quiet
from sptnet.backbone import Backbone
from sptnet.data.pixel_format import PixelFormat
from sptnet.errors import Misuse
from sptnet.experiment import Experiment
from sptnet.run_folder import RunFolder
from sptnet.runtime.compiling import check_compiler


@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_compiled_blocks_give_the_same_numbers():
    try:
        check_compiler(torch.device("cpu"))
    except Misuse as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    vit = VisionTransformer(img_size=SIZE, patch_size=16, embed_dim=24, depth=3, num_heads=3, num_classes=0)
    backbone, images = Backbone("small", vit, PixelFormat(SIZE)), torch.randn(3, 3, SIZE, SIZE)
    with torch.no_grad():
        expected = backbone(images)
        backbone.compiled = True
        made = backbone(images)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


def test_only_the_blocks_before_the_last_are_compiled(monkeypatch, make_model):
    compiled, called = [], []
    monkeypatch.setattr(
        torch, "compile", lambda function: compiled.append(function) or (lambda *w: called.append(w) or function(*w))
    )
    model, images = make_model(), torch.randn(2, 3, SIZE, SIZE)
    plain = model.features(images)
    assert compiled == []
    model.backbone.compiled = True
    assert torch.equal(model.features(images), plain) and torch.equal(model.features(images), plain)
    assert compiled == [model.backbone._run_to_last_block] and len(called) == 2
    model.backbone.compiled = False
    model.features(images)
    assert len(called) == 2


def test_a_machine_without_a_compiler_says_what_to_do(monkeypatch, tiny_config, few_digits, tmp_path):
    def broken(function):
        def call(*_):
            raise RuntimeError("\nNo working C++ compiler found\nmore")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    config = tiny_config.changed(training={"compile": True})
    with pytest.raises(Misuse) as error:
        Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=quiet).run()
    assert str(error.value) == (
        "torch.compile does not work here (No working C++ compiler found). Install what it names, such as a C++ "
        "compiler, or leave it out with --set training.compile=false."
    )
    assert not (tmp_path / "run").exists()


def test_a_reason_without_words_is_named_by_its_kind(monkeypatch):
    def broken(function):
        raise ImportError

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(Misuse, match=r"does not work here \(ImportError\)"):
        check_compiler(torch.device("cpu"))
