"""The method learns: on the embedded digits it beats k-means on the same features within a few epochs."""

import runpy
from pathlib import Path

import pytest
import torch

from sptnet.config.recipes import load_recipe
from sptnet.data.load import load_data
from sptnet.results.run_folder import RunFolder
from sptnet.training.experiment import Experiment


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    bank = {"views.bank": 2, "views.bank_folder": str(tmp_path_factory.mktemp("tokens"))}
    config = load_recipe("digits", {"gcd.epochs": 4, "simgcd.epochs": 16, "training.evaluate_every": 100, **bank})
    data = load_data(config.data)

    def run(method: str) -> dict[str, float]:
        folder = RunFolder(tmp_path_factory.mktemp("digits") / method)
        chosen = config.model_copy(update={"method": method})
        scores: dict[str, float] = Experiment(chosen, folder, data, tell=lambda line: None).run()["unlabelled"]
        return scores

    return {"k-means": run("kmeans"), "GCD": run("gcd"), "SimGCD": run("simgcd")}


def test_the_embedded_backbone_is_better_than_chance_and_not_perfect(scores: dict[str, dict[str, float]]) -> None:
    assert 0.5 < scores["k-means"]["all"] < 0.75


def test_simgcd_beats_kmeans(scores: dict[str, dict[str, float]]) -> None:
    assert scores["SimGCD"]["all"] > scores["k-means"]["all"] + 0.03
    assert scores["SimGCD"]["old"] > 0.75


def test_gcd_beats_kmeans(scores: dict[str, dict[str, float]]) -> None:
    assert scores["GCD"]["all"] > scores["k-means"]["all"] + 0.03


def test_the_embedded_backbone_is_small_and_what_its_readme_says() -> None:
    from importlib.resources import files

    from sptnet.data.benchmarks.digits import digits
    from sptnet.data.store import ImageStore
    from sptnet.data.views import ViewMaker
    from sptnet.model.backbone import EMBEDDED, EMBEDDED_WEIGHTS, build_backbone

    tool = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "pretrain_digits.py"))
    assert (files("sptnet") / "weights" / EMBEDDED_WEIGHTS).stat().st_size <= 3 * 2**20  # type: ignore[attr-defined]
    backbone, image_set = build_backbone(EMBEDDED, reading="exact").double(), digits()
    store, maker = ImageStore(image_set.sources, backbone.pixels), ViewMaker(backbone.pixels)
    views = maker.normalise(torch.stack([maker.centre_view(store[i]) for i in range(len(image_set))]))
    with torch.inference_mode():
        features = torch.cat([backbone(part.double()) for part in views.split(256)])
    readme = (files("sptnet") / "weights" / "README.md").read_text()
    # In float64, since in float32 neighbours may change places: the tenth and the next differ by 8e-7 at least.
    accuracy = tool["knn_accuracy"](features, image_set.labels)
    assert f"{100 * accuracy:.2f} %" == "87.48 %"
    assert "87.48 %" in readme
