"""`CategoryDiscoverer`: conventions of scikit-learn, all forms of input, repeatable results."""

import pickle
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch.utils.data import Dataset

from helpers.rounding import assert_same, terms_of
from sptnet import CategoryDiscoverer
from sptnet.data.benchmarks.digits import digits
from sptnet.discovery import pace
from sptnet.discovery.estimator_inputs import (
    GivenImages,
    as_image_set,
    as_images,
    has_names,
    label_names,
    label_per_category,
    seed_from,
    sorted_names,
)
from sptnet.errors import Failure, Misuse
from sptnet.inference.assess import assess
from sptnet.inference.predictor import load
from sptnet.losses import STUDENT_TEMPERATURE
from sptnet.methods import METHODS
from sptnet.model.backbone import EMBEDDED, build_backbone
from sptnet.model.calibrator import Calibrator, Line
from sptnet.runtime.distributed import World

NAMES = ["1", "2", "4", "new-1", "new-2"]
TINY = {"backbone.image_size": 32, "kmeans.n_init": 2, "head.hidden": 16, "head.bottleneck": 8}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SECONDS", 0.005)


def few() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return forty digits 0 to 4, their classes, and labels for half of 1, 2 and 4."""
    image_set = digits()
    chosen = np.concatenate([np.flatnonzero(image_set.labels == c)[:8] for c in range(5)])
    truth = image_set.labels[chosen]
    y = np.where(np.isin(truth, (1, 2, 4)) & (np.arange(40) % 2 == 0), truth, -1)
    return np.stack([np.asarray(image_set.sources[i]) for i in chosen]), truth, y


X, TRUTH, Y = few()


def discoverer(**changes: Any) -> CategoryDiscoverer:
    options: dict[str, Any] = {"method": "kmeans", "n_categories": 5, "backbone": EMBEDDED, "device": "cpu"}
    return CategoryDiscoverer(**{**options, "settings": TINY, **changes})


@pytest.fixture(scope="module")
def fitted() -> CategoryDiscoverer:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pace, "SECONDS", 0.005)
        return discoverer().fit(X, Y)


# --- conventions ------------------------------------------------------------------------------------------------------


def test_parameters_are_kept_as_they_are() -> None:
    defaults = CategoryDiscoverer().get_params()
    assert defaults == {
        **{"method": "sptnet", "n_categories": "auto", "backbone": "auto", "device": "auto", "random_state": 0},
        **{"weights": None, "epochs": None, "minutes": None, "settings": None, "out": None, "verbose": False},
    }
    odd = CategoryDiscoverer("magic", -3, settings={"no": "such"}, epochs=-1)
    assert clone(odd).get_params() == odd.get_params()
    assert odd.set_params(method="kmeans").method == "kmeans"


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform"])
def test_an_unfitted_estimator_is_refused(method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(discoverer(), method)(X)
    with pytest.raises(NotFittedError):
        discoverer().score(X, TRUTH)


def test_attributes_after_fitting(fitted: CategoryDiscoverer) -> None:
    assert fitted.classes_.tolist() == [1, 2, 4, 5, 6]
    assert [category.name for category in fitted.categories_] == NAMES
    assert (fitted.n_categories_, fitted.n_known_, fitted.run_) == (5, 3, None)
    assert fitted.labels_.shape == (40,)
    assert fitted.probabilities_.shape == (40, 5)
    assert_same(fitted.probabilities_.sum(1), np.ones(40), terms=5)
    assert np.array_equal(fitted.classes_[fitted.probabilities_.argmax(1)], fitted.labels_)
    assert fitted.embedding_.shape == (40, 96)
    assert_same(np.linalg.norm(fitted.embedding_, axis=1), np.ones(40), terms=96)
    categories = np.where(Y == -1, fitted.labels_, Y).tolist()
    assert [category.size for category in fitted.categories_] == [categories.count(c) for c in fitted.classes_]
    assert fitted.images_[:2] == ("image-00", "image-01")
    assert fitted.plan_.reasons == ("K-means on the features of the backbone; nothing trains.",)


def test_names_come_back_as_names(fitted: CategoryDiscoverer) -> None:
    words = {1: "one", 2: "two", 4: "four"}
    named = discoverer().fit(X, [words.get(y) for y in Y.tolist()])
    assert named.classes_.tolist() == ["four", "one", "two", "new-1", "new-2"]
    found = named.predict(X)
    assert found.dtype.kind == "U"
    assert np.array_equal(found, named.labels_)
    assert np.array_equal(found, named.classes_[named.predict_proba(X).argmax(1)])
    known = np.isin(fitted.labels_, (1, 2, 4))
    assert known.any()
    assert found[known].tolist() == [words[y] for y in fitted.labels_[known].tolist()], "the same images"
    assert set(found[~known]) <= {"new-1", "new-2"}
    assert named.score(X, found) == 1.0


def test_numbers_come_back_as_the_same_numbers(fitted: CategoryDiscoverer) -> None:
    assert fitted.predict(X).dtype == np.int64
    assert set(fitted.predict(X)) <= {1, 2, 4, 5, 6}
    labelled = np.flatnonzero(Y >= 0)
    assert np.mean(fitted.predict(X)[labelled] == Y[labelled]) > 0.5
    floats = discoverer().fit(X, np.where(Y < 0, np.nan, Y))
    assert np.array_equal(floats.labels_, fitted.labels_)
    assert floats.labels_.dtype == np.int64


@pytest.mark.parametrize(
    ("names", "n_known", "named", "labels"),
    [
        (("0", "1", "new-1"), 2, False, [0, 1, 2]),
        (("3", "10", "new-1", "new-2"), 2, False, [3, 10, 11, 12]),
        (("3", "10", "new-1"), 2, True, ["3", "10", "new-1"]),
        (("new-1", "new-2"), 0, False, [0, 1]),
        (("7",), 1, False, [7]),
    ],
)
def test_the_label_of_every_category(names: tuple[str, ...], n_known: int, named: bool, labels: list[Any]) -> None:
    assert label_per_category(names, n_known, named).tolist() == labels


@pytest.mark.parametrize(
    ("labels", "named"),
    [([3, -1], False), ([None, "a"], True), (["", None, 3.0], False), ([7, "b"], True), ([], False)],
)
def test_labels_are_names_or_numbers(labels: list[Any], named: bool) -> None:
    assert has_names(labels) == named


def test_predictions_repeat_the_fit(fitted: CategoryDiscoverer) -> None:
    assert np.array_equal(fitted.predict(X), fitted.labels_)
    terms = terms_of(build_backbone(EMBEDDED, image_size=32, pretrained=False))
    # Probabilities are a softmax of squared distances of unit vectors, divided by the temperature.
    assert_same(fitted.predict_proba(X), fitted.probabilities_, terms, scale=2 / STUDENT_TEMPERATURE)
    assert_same(fitted.transform(X), fitted.embedding_, terms)
    again = clone(fitted)
    assert np.array_equal(again.fit_predict(X, Y), fitted.labels_)
    assert np.array_equal(clone(fitted).fit_transform(X, Y), fitted.embedding_)


def test_probabilities_are_calibrated(fitted: CategoryDiscoverer, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrator = Calibrator(Line(0.5, 1.0), Line(0.25, -1.0))
    monkeypatch.setattr(
        "sptnet.training.experiment.assess", lambda *given: replace(assess(*given), calibrator=calibrator)
    )
    found = clone(fitted).fit(X, Y)
    assert np.array_equal(found.labels_, fitted.labels_)
    assert np.array_equal(found.classes_[found.probabilities_.argmax(1)], fitted.labels_)
    assert_same(found.probabilities_.sum(1), np.ones(40), terms=5)
    assert not np.allclose(found.probabilities_, fitted.probabilities_, atol=0.01)
    assert np.allclose(found.predict_proba(X), found.probabilities_, atol=1e-3)


def test_a_fitted_estimator_can_be_pickled(fitted: CategoryDiscoverer) -> None:
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(X[:5]), fitted.labels_[:5])


def test_the_score_matches_categories_and_classes(fitted: CategoryDiscoverer) -> None:
    found = fitted.labels_
    assert fitted.score(X, found) == 1.0
    renamed = np.array(["zero", "one", "two", "three", "four", "five", "six"])[found]
    assert fitted.score(X, renamed.tolist()) == 1.0
    assert fitted.score(X, [None] * 39 + [7]) == 1.0, "a single image always matches"
    assert 0.5 < fitted.score(X, TRUTH) <= 1
    with pytest.raises(Misuse, match=r"y has no label to compare with\. Give the class of at least one image\."):
        fitted.score(X, [-1] * 40)


@pytest.mark.parametrize(
    ("method", "epochs"),
    [("sskmeans", None), ("auto", None), *((method, 1) for method in METHODS if method not in ("kmeans", "sskmeans"))],
)
def test_every_method_fits(method: str, epochs: int | None) -> None:
    settings = {**TINY, "gcd.output": 16, "gcd.n_init": 1, "training.batch_size": 10}
    settings |= {f"{wide}.output": 16 for wide in ("dccl", "promptcal", "cipr", "gpc")}
    found = discoverer(method=method, epochs=epochs, settings=settings, minutes=0.001).fit(X, Y)
    assert [category.name for category in found.categories_] == NAMES
    again = found.predict(X)
    if method == "cipr":  # its clustering assigns the images it was fitted on; later ones go to the nearest centroid
        assert set(again) <= set(found.labels_)
        assert np.mean(again == found.labels_) > 0.5
    else:
        assert np.array_equal(again, found.labels_)
    if method != "auto":
        assert found.plan_.config.method == method
        assert epochs is None or found.plan_.config.simgcd.epochs == 1


def test_categories_are_counted() -> None:
    found = discoverer(n_categories="auto").fit(X, Y)
    assert found.n_categories_ == len(found.classes_) >= 3


def test_without_labels_it_clusters() -> None:
    for found in (discoverer().fit(X), discoverer(method="auto").fit(X, [-1] * 40)):
        assert found.classes_.tolist() == list(range(5)), "the numbers of a clustering"
        assert [category.name for category in found.categories_] == [f"new-{i}" for i in range(1, 6)]
        assert set(found.labels_) <= set(range(5))
        assert found.n_known_ == 0


def test_seeds() -> None:
    assert [seed_from(7), seed_from(np.int64(7))] == [7, 7]
    assert seed_from(np.random.RandomState(3)) == seed_from(np.random.RandomState(3))
    drawn = np.random.RandomState(3)
    assert seed_from(drawn) != seed_from(drawn)
    assert 0 <= seed_from(None) < 2**31
    assert np.array_equal(
        discoverer(random_state=np.random.RandomState(1)).fit(X, Y).labels_,
        discoverer(random_state=np.random.RandomState(1)).fit(X, Y).labels_,
    )


# --- on disk ----------------------------------------------------------------------------------------------------------


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = discoverer(method="simgcd", epochs=1).fit(X, Y)
    assert list(tmp_path.iterdir()) == []
    assert len(found.predict(X[:3])) == 3


def test_a_run_directory_on_demand(tmp_path: Path) -> None:
    found = discoverer(out=tmp_path / "run").fit(X, Y)
    assert found.run_ == tmp_path / "run"
    predictor = load(tmp_path / "run", "cpu")
    assert predictor.categories == tuple(category.name for category in found.categories_) == tuple(NAMES)
    assert np.array_equal(found.classes_[predictor.predict(X)], found.labels_)
    with pytest.raises(Misuse, match="is not empty"):
        found.fit(X, Y)


def test_it_is_silent_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    discoverer().fit(X, Y)
    assert capfd.readouterr() == ("", "")
    discoverer(verbose=True).fit(X, Y)
    said = capfd.readouterr().err
    assert said.startswith("K-means on the features of the backbone; nothing trains.\n")
    assert "finished in" in said


# --- inputs -----------------------------------------------------------------------------------------------------------


class Pairs(Dataset[Any]):
    """Dataset of the digits, with or without labels."""

    def __init__(self, labels: list[Any] | None) -> None:
        self.labels = labels

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> Any:
        return X[i] if self.labels is None else (X[i], self.labels[i])


def test_all_forms_of_images_give_the_same(fitted: CategoryDiscoverer, tmp_path: Path) -> None:
    paths = []
    for i, pixels in enumerate(X):
        paths.append(tmp_path / f"{i:02d}.png")
        Image.fromarray(pixels).save(paths[-1])
    forms: list[Any] = [
        list(X),
        X[..., None].repeat(3, axis=3),
        [Image.fromarray(pixels) for pixels in X],
        torch.from_numpy(X)[:, None],
        torch.from_numpy(X)[:, None].expand(-1, 3, -1, -1).float() / 255,
        paths,
        [str(path) for path in paths],
        np.array([str(path) for path in paths]),
        tmp_path,
        str(tmp_path),
        Pairs(None),
        Pairs([0] * 40),
    ]
    for form in forms:
        assert np.array_equal(fitted.predict(form), fitted.labels_), type(form)
    found = discoverer().fit(paths, Y)
    assert np.array_equal(found.labels_, fitted.labels_)
    assert found.images_ == tuple(map(str, paths))


def test_a_dataset_brings_its_labels(fitted: CategoryDiscoverer) -> None:
    tensors = [torch.tensor(int(label)) for label in Y]
    assert np.array_equal(discoverer().fit(Pairs(tensors)).labels_, fitted.labels_)
    assert np.array_equal(discoverer().fit(Pairs([0] * 40), Y).labels_, fitted.labels_), "y takes precedence"


def test_labels_of_a_folder_are_its_sub_folders(tmp_path: Path) -> None:
    for i, pixels in enumerate(X):
        folder = tmp_path / (f"digit {Y[i]}" if Y[i] >= 0 else "unlabelled")
        folder.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{i:02d}.png")
    found = discoverer().fit(tmp_path)
    assert found.classes_.tolist() == ["digit 1", "digit 2", "digit 4", "new-1", "new-2"]
    assert set(found.labels_) <= set(found.classes_)
    assert len(found.images_) == len(found.labels_) == 40
    assert found.images_[0] == "digit 1/08.png"
    with pytest.raises(Misuse, match=r"labels of a folder are the names of its sub-folders\. Leave y out"):
        discoverer().fit(tmp_path, Y)


@pytest.mark.parametrize(
    ("y", "names"),
    [
        ([3, -1, 10], ["3", None, "10"]),
        (np.array([3.0, np.nan, -1.0]), ["3", None, None]),
        (["b", None, ""], ["b", None, None]),
        (np.array(["b", None, 7], dtype=object), ["b", None, "7"]),
        (torch.tensor([1, -1, 2]), ["1", None, "2"]),
        ([np.int64(1), np.float32(2), float("nan")], ["1", "2", None]),
    ],
)
def test_labels_in_all_forms(y: Any, names: list[str | None]) -> None:
    assert label_names(y, 3) == names


def test_known_classes_come_in_order() -> None:
    assert sorted_names(["10", "9", None, "b", "a", "10"]) == ("9", "10", "a", "b")
    image_set = as_image_set(GivenImages(tuple(X[:3]), None), ["10", None, "9"])
    assert (image_set.names, image_set.labels.tolist()) == (("9", "10"), [1, -1, 0])
    twice = as_image_set(GivenImages((Path("a"), Path("a")), None), ["x", None])
    assert twice.ids == ("image-0", "image-1")
    mixed = as_image_set(GivenImages((Path("a"), X[0]), None), ["x", None])
    assert mixed.ids == ("a", "image-1")


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "x", "y", "message"),
    [
        ({}, X, Y[:-1], "y has 39 labels but X has 40 images. Give one per image."),
        ({}, X, [0.5] * 40, "y holds 0.5. Give names or whole numbers from 0, and -1, None or NaN"),
        ({}, X, [-2] * 40, "y holds -2. Give names"),
        ({}, X, [True] * 40, "y holds True. Give names"),
        ({}, X, TRUTH, "every image is labelled, so there is nothing to discover. Give -1, None or NaN in y"),
        ({"method": "sptnet"}, X, None, "no image has a label, but SPTNet learns from labels. Label some images"),
        (
            {"method": "magic"},
            X,
            Y,
            "unknown method 'magic'. Use auto or one of: kmeans, sskmeans, gcd, simgcd, sptnet, rankstats, uno",
        ),
        ({"n_categories": 2}, X, Y, "`n_categories` is 2, but 3 categories are known already."),
        ({"n_categories": "many"}, X, Y, "n_categories: "),
        ({"epochs": 0}, X, Y, "`epochs` is 0. Give a whole number of at least 1, or None."),
        ({"minutes": 0}, X, Y, "minutes is 0. Give a number above 0."),
        ({"random_state": -1}, X, Y, "random_state is -1. Give a whole number from 0 to 4294967294."),
        ({"settings": {"training.batchsize": 3}}, X, Y, "unknown key training.batchsize. Did you mean"),
        ({"weights": "nowhere.pth"}, X, Y, "no weights file at"),
        ({}, X[0], Y, "X has the shape (8, 8). Give images x height x width, with channels as a fourth axis."),
        ({}, [], [], "X has no images. Give at least one."),
        ({}, 7, None, "X is int. Give a folder, a list of images, an array of images, or a Dataset."),
        ({}, [7], None, "an image in X is int. Give paths, arrays, tensors or Pillow images."),
        ({}, "nowhere", None, "there is no folder"),
    ],
)
def test_misuse_is_refused(options: dict[str, Any], x: Any, y: Any, message: str) -> None:
    with pytest.raises(Misuse) as error:
        discoverer(**options).fit(x, y)
    assert message in str(error.value)


def test_folders_without_images(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"no images found in .*/\. Give a folder that holds images\."):
        as_images(tmp_path)
    with pytest.raises(Misuse, match=r"there is no folder .*x\. Give a folder of images; a single image goes into a"):
        as_images(tmp_path / "x")


def test_a_dataset_needs_images_and_a_length() -> None:
    class Endless(Dataset[Any]):
        def __getitem__(self, i: int) -> Any:
            return X[0]

    with pytest.raises(Misuse, match="X is a Dataset without images or without a length"):
        as_images(Endless())


def test_an_unreadable_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(Failure, match=r"cannot read the image .*bad\.png: not an image\. Repair or remove it\."):
        discoverer().fit([*X[:39], tmp_path / "bad.png"], Y)


def test_several_processes_need_a_shared_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sptnet.discovery.estimator.world", lambda: World(0, 2))
    with pytest.raises(Misuse, match=r"need a run directory on a shared disk\. Give `out=DIR`\."):
        discoverer().fit(X, Y)
