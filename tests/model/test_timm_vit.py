"""Pre-trained weights: a cached file is used without a network, and a missing network is reported at once."""

import socket
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from sptnet.errors import Failure, Misuse
from sptnet.model.backbone import build_backbone
from sptnet.model.vit import timm_vit

NAME = "vit_tiny_patch16_224.augreg_in21k"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    asked: list[tuple[str, int]] = []

    def refuse(address: tuple[str, int], timeout: float) -> None:
        asked.append(address)
        raise OSError("no network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(timm_vit.constants, "HF_HUB_OFFLINE", False)
    for key in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(key, raising=False)
    return asked


def test_without_network_the_ways_out_are_named(
    no_network: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timm_vit, "try_to_load_from_cache", lambda repository, file: None)
    with pytest.raises(Failure, match=r"could not be downloaded.*backbone\.weights=FILE.*sptnet_digits_vit"):
        build_backbone(NAME)
    assert len(no_network) == 1


def test_kept_weights_need_no_network(
    no_network: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    weights = timm.create_model(NAME, pretrained=False).state_dict()
    save_file(weights, tmp_path / "model.safetensors")
    kept = {"model.safetensors": str(tmp_path / "model.safetensors")}
    monkeypatch.setattr(timm_vit, "try_to_load_from_cache", lambda repository, file: kept.get(file))
    vit = build_backbone(NAME).vit
    assert no_network == []
    assert torch.equal(vit.blocks[3].mlp.fc1.weight, weights["blocks.3.mlp.fc1.weight"])


def test_behind_a_proxy_the_hub_counts_as_reachable(
    no_network: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not timm_vit.hub_is_reachable()
    monkeypatch.setenv("HTTPS_PROXY", "proxy:3128")
    assert timm_vit.hub_is_reachable()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "vit_base_patch16_224.dinno",
            r"timm has no weights 'dinno' for vit_base_patch16_224\. Those it has: .*\bdino\b",
        ),
        (
            "vit_small_patch8_224.mine",
            r"timm has no weights 'mine' for vit_small_patch8_224\. Those it has: dino\.",
        ),
    ],
)
def test_weights_that_timm_lacks_are_refused_with_those_it_has(name: str, says: str) -> None:
    with pytest.raises(Misuse, match=says):
        timm_vit.check_name(name)


def test_a_model_without_any_weights_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm_vit.timm, "list_pretrained", lambda pattern: [])
    with pytest.raises(Misuse, match=r"for vit_tiny_patch16_224\. It has none: give a file of weights, or another"):
        timm_vit.check_name("vit_tiny_patch16_224.mine")
    timm_vit.check_name("vit_tiny_patch16_224")


def test_an_image_size_that_timm_cannot_build_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, **settings: object) -> None:
        raise RuntimeError("no grid")

    monkeypatch.setattr(timm_vit.timm, "create_model", refuse)
    says = rf"{NAME} cannot be built at 30 px: no grid\. Give another `backbone\.image_size`\."
    with pytest.raises(Misuse, match=says):
        timm_vit.create_vit(NAME, 30, False, {}, "")
