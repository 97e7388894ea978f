"""The methods that cluster, k-means and GCD: heads, losses, centroids, and whole runs."""

import csv
import json
import math
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import sptnet
from helpers.rounding import DOUBLE, assert_differs, assert_same, rounding, terms_of
from sptnet.clustering.centroids import find_centroids, matched_first
from sptnet.config import Config, KMeansSettings
from sptnet.errors import Misuse
from sptnet.head import CentroidHead, ContrastiveHead
from sptnet.inference.features import extract_features
from sptnet.losses import contrastive_loss, info_nce, supervised_contrastive
from sptnet.methods import METHODS, method_of
from sptnet.model.backbone import build_backbone
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.seeds import seed_of
from sptnet.training.experiment import Experiment
from sptnet.training.parameter_groups import parameter_groups
from sptnet.training.trainer import StageTrainer


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# --- heads ---


def test_the_centroid_head_gives_minus_the_squared_distance_to_each_centroid():
    head = CentroidHead(6, 4).double()
    head.centroids.copy_(normal(4, 6, seed=1))
    features = normal(5, 6)
    same, logits = head(features)
    assert same is features
    for i in range(5):
        unit = features[i] / features[i].norm()
        for k in range(4):
            assert logits[i, k].item() == pytest.approx(-float(((unit - head.centroids[k]) ** 2).sum()), abs=DOUBLE)


def test_the_contrastive_head_is_an_mlp_a_unit_bottleneck_and_unit_rows():
    head = ContrastiveHead(6, 4, hidden=8, bottleneck=5, output=11).double()
    features = normal(3, 6)
    x = features
    for layer in (head.mlp[0], head.mlp[2], head.mlp[4]):
        x = x @ layer.weight.T + layer.bias
        if layer is not head.mlp[4]:
            x = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    x = x / x.norm(dim=1, keepdim=True)
    rows = head.directions / head.directions.norm(dim=1, keepdim=True)
    projections, logits = head(features)
    assert_same(projections, x @ rows.T, terms_of(head))
    assert logits.shape == (3, 4)
    assert head.n_categories == 4


def short_and_long(output=40):
    torch.manual_seed(3)
    long = ContrastiveHead(6, 4, hidden=8, bottleneck=5, output=output).double()
    short = ContrastiveHead(6, 4, hidden=8, bottleneck=5, output=output, short=True).double()
    short.load_state_dict(long.state_dict())
    return short, long


def test_short_projections_have_the_same_losses_and_gradients():
    labels, labelled = torch.tensor([0, 1, 0, -1, -1, 1]), torch.tensor([1, 1, 1, 0, 0, 1]).bool()
    found = []
    for head in short_and_long():
        features = normal(12, 6).requires_grad_()
        projections, _ = head(features)
        loss = contrastive_loss(projections, labels, labelled).total
        trained = [features, head.directions, *head.mlp.parameters()]
        found.append((projections, loss, torch.autograd.grad(loss, trained)))
    (short, loss, gradients), (long, expected, expected_gradients) = found
    assert (short.shape, long.shape) == ((12, 5), (12, 40))
    assert_same(short @ short.T, long @ long.T, terms=40 + 5, sums=3)
    assert loss.item() == pytest.approx(expected.item(), abs=DOUBLE)
    for ours, theirs in zip(gradients, expected_gradients, strict=True):
        assert theirs.abs().max() > 1e-4
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("within", ["an axis less", "a plane", "nearly a plane"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_that_hardly_span_the_bottleneck_are_used_as_they_are(within, dtype):
    short, long = (head.to(dtype) for head in short_and_long())
    normal_vector = F.normalize(normal(5, seed=8), dim=0).to(dtype)
    with torch.no_grad():
        for head in (short, long):
            if within == "an axis less":
                head.directions[:, -1] = 0
            else:
                out = 1 - (1e-4 if within == "nearly a plane" else 0)
                head.directions -= out * (head.directions @ normal_vector)[:, None] * normal_vector
    features = normal(3, 6).to(dtype)
    assert_same(short(features)[0], long(features)[0], terms=5)


def test_only_losses_within_a_step_have_short_projections():
    """PromptCAL compares with a teacher's projections, and GPC's are shorter than its bottleneck."""
    short = {
        name: method_of(Config(method=name)).head(Config(method=name), 12, 7).short
        for name in ("gcd", "dccl", "cipr", "gpc", "promptcal")
    }
    assert short == {"gcd": True, "dccl": True, "cipr": True, "gpc": False, "promptcal": False}
    assert not ContrastiveHead(6, 4, hidden=8, bottleneck=5, output=5, short=True).short


def test_the_published_widths_are_the_defaults():
    gcd = Config(method="gcd")
    assert (gcd.head.hidden, gcd.head.bottleneck, gcd.gcd.output) == (2048, 256, 65536)
    assert (gcd.gcd.epochs, gcd.gcd.learning_rate, gcd.gcd.weight_decay) == (200, 0.1, 5e-5)
    assert (gcd.gcd.n_init, gcd.gcd.max_iter, gcd.gcd.tol) == (100, 200, 1e-4)
    head = method_of(gcd).head(gcd, 12, 7)
    assert isinstance(head, ContrastiveHead)
    assert [tuple(p.shape) for p in head.parameters() if p.ndim == 2] == [
        *((65536, 256), (2048, 12), (2048, 2048), (256, 2048)),
    ]


# --- losses ---


def test_the_contrastive_loss_is_the_weighted_sum_of_its_parts():
    projections, labels = normal(10, 7), torch.tensor([0, 1, -1, 0, -1])
    labelled = labels >= 0
    loss = contrastive_loss(projections, labels, labelled)
    rows = labelled.repeat(2)
    supervised = supervised_contrastive(projections[rows], labels[labelled], 0.07)
    assert loss.info_nce.item() == pytest.approx(info_nce(projections, 1.0).item(), rel=DOUBLE)
    assert loss.supervised_contrastive.item() == pytest.approx(supervised.item(), rel=DOUBLE)
    assert loss.total.item() == pytest.approx((0.65 * loss.info_nce + 0.35 * supervised).item(), rel=DOUBLE)
    assert list(loss.parts()) == ["info_nce", "supervised_contrastive", "total"]


@pytest.mark.parametrize("labels", [[-1, -1, -1], [2, -1, -1], [0, 1, 2]])
def test_the_contrastive_loss_is_finite_for_every_batch(labels):
    projections = normal(6, 7).requires_grad_()
    labels = torch.tensor(labels)
    loss = contrastive_loss(projections, labels, labels >= 0)
    loss.total.backward()
    assert all(torch.isfinite(part) for part in loss.parts().values())
    assert torch.isfinite(projections.grad).all()


def test_a_few_steps_on_the_contrastive_loss_bring_views_of_an_image_together():
    projections = normal(12, 8).requires_grad_()
    labels = torch.tensor([0, 0, 1, 1, -1, -1])

    def agreement():
        return F.cosine_similarity(projections[:6], projections[6:]).mean().item()

    before = agreement()
    for _ in range(60):
        (gradient,) = torch.autograd.grad(contrastive_loss(projections, labels, labels >= 0).total, projections)
        projections = (projections - 0.5 * gradient).detach().requires_grad_()
    assert agreement() > before + 0.3


def test_gcd_decays_biases_too():
    parameters = [torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))]
    assert [g["weight_decay"] for g in parameter_groups(parameters, 0.1, decay_vectors=True)] == [0.1, 0.1]
    (plan,) = method_of(Config(method="gcd")).stages(Config(method="gcd"))
    assert plan.optimisers["model"].decay_vectors


# --- centroids ---


def test_clusters_are_named_by_the_best_matching():
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    clusters = np.array([3, 3, 1, 1, 1, 0, 0, 3])
    assert matched_first(clusters, labels, 5).tolist() == [3, 1, 0, 2, 4]


def test_a_known_class_gets_a_cluster_even_if_another_has_more_of_it():
    labels = np.array([0, 0, 0, 0, 1])
    clusters = np.array([2, 2, 2, 2, 2])
    order = matched_first(clusters, labels, 3)
    assert order[0] == 2
    assert sorted(order.tolist()) == [0, 1, 2]


def three_blobs():
    """Thirty directions around each of three axes; five of the first two blobs are labelled."""
    random = np.random.RandomState(0)
    features = np.concatenate([np.eye(4)[i] + 0.05 * random.standard_normal((30, 4)) for i in (2, 0, 1)])
    truth = np.repeat([0, 1, 2], 30)
    labels = np.full(90, -1)
    labels[:5], labels[30:35] = 0, 1
    return torch.from_numpy(features).float() * 7, labels, truth


@pytest.mark.parametrize("semi_supervised", [False, True])
def test_centroids_of_known_classes_come_first_in_order(semi_supervised):
    features, labels, truth = three_blobs()
    centroids = find_centroids(features, labels, 3, KMeansSettings(), 0, semi_supervised)
    head = CentroidHead(4, 3)
    head.centroids.copy_(centroids)
    assert head(features)[1].argmax(1).numpy().tolist() == truth.tolist()


def test_plain_centroids_are_those_of_the_unlabelled_images():
    features, labels, truth = three_blobs()
    unit = F.normalize(features, dim=1)
    centroids = find_centroids(features, labels, 3, KMeansSettings(), 0, semi_supervised=False)
    for k in range(3):
        members = unit[torch.from_numpy((truth == k) & (labels < 0))]
        assert_same(centroids[k], members.mean(0), terms=len(members))


def test_semi_supervised_centroids_are_those_of_all_images():
    features, labels, truth = three_blobs()
    unit = F.normalize(features, dim=1)
    centroids = find_centroids(features, labels, 3, KMeansSettings(), 0, semi_supervised=True)
    for k in range(3):
        assert_same(centroids[k], unit[torch.from_numpy(truth == k)].mean(0), terms=30)


# --- runs ---


def config_of(tiny_config, method):
    small = {"epochs": 3, "output": 64, "n_init": 3, "learning_rate": 0.5}
    return tiny_config.changed(gcd=small).model_copy(update={"method": method})


@pytest.mark.parametrize("method", ["kmeans", "sskmeans", "gcd"])
def test_a_run_leaves_a_model_that_predicts_what_the_run_found(method, tiny_config, few_digits, run_it, tmp_path):
    folder = run_it(tmp_path / "run", config_of(tiny_config, method), few_digits)
    model = sptnet.load(folder)
    predicted = model.predict(list(few_digits.image_set.sources))
    with (folder / "predictions.csv").open() as file:
        written = [row["guess"] for row in csv.DictReader(file)]
    assert [model.categories[k] for k in predicted] == written
    assert json.loads((folder / "model" / "model.json").read_text())["head"] == {"kind": "centroids"}
    tensors = load_file(folder / "model" / "model.safetensors")
    assert [name for name in tensors if name.startswith("head")] == ["head.centroids"]
    scores = RunFolder(folder).facts()["scores"]["unlabelled"]
    assert 0 < scores["all"] <= 1
    assert model.predict_proba(list(few_digits.image_set.sources[:4])).sum(1) == pytest.approx(1, abs=rounding(10))


def test_kmeans_trains_nothing(tiny_config, few_digits, run_it, tmp_path):
    folder = run_it(tmp_path / "run", config_of(tiny_config, "kmeans"), few_digits)
    assert RunFolder(folder).metrics() == []
    assert not (folder / "checkpoints").exists()


def test_semi_supervised_k_means_holds_labelled_images_to_their_class(tiny_config, few_digits, run_it, tmp_path):
    config = config_of(tiny_config, "sskmeans")
    found = {}
    for method in ("kmeans", "sskmeans"):
        folder = run_it(tmp_path / method, config.model_copy(update={"method": method}), few_digits)
        found[method] = load_file(folder / "model" / "model.safetensors")["head.centroids"]
    split = few_digits.split
    images = np.concatenate([split.labelled, split.unlabelled])
    settings = config.backbone
    backbone = build_backbone(settings.name, settings.weights, settings.image_size, reading=config.reading)
    features = extract_features(backbone, few_digits.image_set.sources, config.views.crop_ratio, choose_compute("cpu"))
    labels = np.where(np.isin(images, split.labelled), split.target[images], -1)
    expected = find_centroids(features[images], labels, 10, config.sskmeans, seed_of(config.seed, "clustering"), True)
    terms = terms_of(backbone) + len(images)
    assert_same(found["sskmeans"], expected, terms)
    assert_differs(found["sskmeans"], found["kmeans"], terms)


@pytest.mark.parametrize("count", ["auto", 10])
def test_nothing_trained_looks_at_every_image_once(count, tiny_config, few_digits, run_it, tmp_path, embedded):
    """Counting, clustering and prediction share one pass through the backbone."""
    config = config_of(tiny_config, "sskmeans").model_copy(update={"n_categories": count})
    run_it(tmp_path / "run", config, few_digits)
    assert sum(embedded) == len(few_digits.image_set)


def test_gcd_trains_the_last_block_and_says_how(tiny_config, few_digits, run_it, tmp_path):
    folder = run_it(tmp_path / "run", config_of(tiny_config, "gcd"), few_digits)
    lines = RunFolder(folder).metrics()
    assert [line["stage"] for line in lines] == ["gcd"] * 3
    assert set(lines[0]["losses"]["raw"]) == {"info_nce", "supervised_contrastive", "total"}
    assert lines[-1]["losses"]["raw"]["total"] < lines[0]["losses"]["raw"]["total"]
    assert "scores" in lines[1], "every second epoch"
    assert "scores" not in lines[0]
    assert lines[-1]["scores"]["unlabelled"] == RunFolder(folder).facts()["scores"]["unlabelled"]


def test_labelled_images_of_gcd_are_found_in_their_class(tiny_config, few_digits, run_it, tmp_path):
    folder = run_it(tmp_path / "run", config_of(tiny_config, "kmeans"), few_digits)
    split = few_digits.split
    images = [few_digits.image_set.sources[i] for i in split.labelled]
    same = sptnet.load(folder).predict(images) == split.target[split.labelled]
    assert same.mean() > 0.4, "named by the labelled images in them, though no training saw a label"


def test_a_resumed_gcd_run_is_the_undisturbed_one(
    tiny_config, few_digits, run_it, tmp_path, assert_same_result, monkeypatch
):
    config = config_of(tiny_config, "gcd")
    whole = run_it(tmp_path / "whole", config, few_digits)
    original, done = StageTrainer.train_step, 0

    def stops(self, batch, phase, number):
        nonlocal done
        done += 1
        if done == 8:
            raise KeyboardInterrupt
        return original(self, batch, phase, number)

    monkeypatch.setattr(StageTrainer, "train_step", stops)
    with pytest.raises(KeyboardInterrupt):
        run_it(tmp_path / "cut", config, few_digits)
    run_it(tmp_path / "cut", config, few_digits, resume=True)
    assert_same_result(tmp_path / "cut", whole)


def test_a_clustering_run_is_no_start_for_sptnet(tiny_config, few_digits, run_it, tmp_path):
    run_it(tmp_path / "km", config_of(tiny_config, "kmeans"), few_digits)
    config = tiny_config.changed(sptnet={"start_from": str(tmp_path / "km")})
    with pytest.raises(Misuse, match=r"is a run of kmeans, but sptnet builds on one of simgcd or sptnet\."):
        Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=lambda _: None)
    config = tiny_config.changed(sptnet={"start_from": str(tmp_path / "km" / "model")})
    with pytest.raises(Misuse, match=r"has no trained classifier to build on\. Give a run of simgcd or sptnet"):
        Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=lambda _: None)


def test_best_on_held_out_images_works_for_gcd(tiny_config, held_out_digits, run_it, tmp_path):
    config = config_of(tiny_config, "gcd").changed(training={"select": "best-old-holdout"})
    folder = run_it(tmp_path / "run", config, held_out_digits)
    facts, lines = RunFolder(folder).facts(), RunFolder(folder).metrics()
    best = max(line["old_holdout"] for line in lines)
    assert lines[facts["selected_epoch"] - 1]["old_holdout"] == best
    split = held_out_digits.split
    predicted = sptnet.load(folder).predict([held_out_digits.image_set.sources[i] for i in split.holdout])
    assert (predicted == split.target[split.holdout]).mean() == best


def test_every_method_of_the_package_is_listed_when_one_is_misspelt():
    with pytest.raises(Misuse, match=r"unknown method 'gdc'. Use one of: kmeans, sskmeans, gcd, simgcd, sptnet"):
        method_of(Config(method="gdc"))
    systems = ["rankstats", "uno", "orca", "dccl", "promptcal", "cipr", "gpc", "mugcd"]
    assert list(METHODS) == ["kmeans", "sskmeans", "gcd", "simgcd", "sptnet", *systems]


@pytest.mark.parametrize("method", ["kmeans", "sskmeans", "gcd"])
def test_the_command_line_runs_it(method, tiny_settings, digit_folder, tmp_path, capsys, monkeypatch):
    from sptnet.cli import main

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["sptnet", *words])
        with pytest.raises(SystemExit) as leaving:
            main()
        assert not leaving.value.code
        return capsys.readouterr().out

    settings = [*tiny_settings, f"method={method}", "gcd.epochs=2", "gcd.output=64", "gcd.n_init=2"]
    words = [word for setting in settings for word in ("--set", setting)]
    out = tmp_path / "run"
    assert "one matching (v2)" in run("train", "digits", "--data", str(digit_folder), *words, "--out", str(out))
    assert json.loads(run("evaluate", str(out), "--json")) == RunFolder(out).facts()["scores"]
