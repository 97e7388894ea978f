"""`sptnet.load`: the same predictions for the same image in every form of input."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

import sptnet
from helpers.rounding import assert_differs, assert_same, rounding, terms_of
from sptnet.config import Config
from sptnet.config.recipes import load_recipe
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.errors import Misuse
from sptnet.inference.predictor import Predictor, as_sources, load
from sptnet.losses import STUDENT_TEMPERATURE
from sptnet.model.calibrator import Calibrator, Line
from sptnet.model.model_folder import save_model
from sptnet.training.experiment import train


def picture(seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (20, 28, 3), dtype=np.uint8)


def tiny_config(folder: Path) -> Config:
    changes = ["backbone.name=sptnet_digits_vit", "n_categories=4", "head.hidden=16", "head.bottleneck=8",
               "training.batch_size=8", "simgcd.epochs=1", "sptnet.epochs=1", "sptnet.k=1",
               "prompt.border=5"]  # fmt: skip
    return load_recipe("sptnet", changes).changed(data={"folder": str(folder)})


@pytest.fixture(scope="module")
def load_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose first known class has the name that the first new category would get."""
    root = tmp_path_factory.mktemp("load")
    for number, name in enumerate(("new-1", "owl", "unlabelled")):
        (root / "data" / name).mkdir(parents=True)
        for i in range(6):
            Image.fromarray(picture(10 * number + i)).save(root / "data" / name / f"{i}.png")
    train(tiny_config(root / "data"), root / "run", command=["test"])
    return root / "run"


@pytest.fixture(scope="module")
def predictor(load_run: Path) -> Predictor:
    return load(load_run, "cpu")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("later")
    paths = [folder / f"{i}.png" for i in range(3)]
    for i, path in enumerate(paths):
        Image.fromarray(picture(100 + i)).save(path)
    return paths


def assert_same_answer(found: npt.NDArray[Any], expected: npt.NDArray[Any], predictor: Predictor) -> None:
    """Compare categories exactly; probabilities are a softmax of cosines divided by the temperature."""
    if found.dtype == np.int64:
        assert found.tolist() == expected.tolist()
    else:
        scale = 1 / STUDENT_TEMPERATURE if found.shape[1] == len(predictor.categories) else None
        assert_same(found, expected, terms_of(predictor.model), scale=scale)


def test_names_of_new_categories_do_not_clash(predictor: Predictor) -> None:
    assert predictor.categories == ("new-1", "owl", "new-2", "new-3")
    assert predictor.n_known == 2


def test_a_run_and_its_model_directory_are_the_same_model(
    load_run: Path, predictor: Predictor, files: list[Path]
) -> None:
    again = load(str(load_run / "model"))
    assert again.categories == predictor.categories
    assert np.array_equal(again.predict_proba(files), predictor.predict_proba(files))


def test_shapes_and_dtypes(predictor: Predictor, files: list[Path]) -> None:
    categories, probabilities = predictor.predict(files), predictor.predict_proba(files)
    features = predictor.features(files)
    assert (categories.shape, probabilities.shape, features.shape) == ((3,), (3, 4), (3, 96))
    assert (categories.dtype, probabilities.dtype, features.dtype) == (np.int64, np.float32, np.float32)
    assert np.array_equal(categories, probabilities.argmax(1))
    assert_same(probabilities.sum(1), np.ones(3), terms=4)
    assert not np.array_equal(features[0], features[1])


@pytest.mark.parametrize("method", ["predict", "predict_proba", "features"])
def test_all_kinds_of_input_give_the_same_answer(method: str, predictor: Predictor, files: list[Path]) -> None:
    call = getattr(predictor, method)
    arrays = [picture(100 + i) for i in range(3)]
    pil = [Image.fromarray(array) for array in arrays]
    expected = call(files)
    for images in (
        [str(file) for file in files],
        tuple(files),
        pil,
        arrays,
        np.stack(arrays),
        [files[0], pil[1], arrays[2]],
    ):
        assert np.array_equal(call(images), expected)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "features"])
def test_one_image_gives_one_row(method: str, predictor: Predictor, files: list[Path]) -> None:
    call = getattr(predictor, method)
    array = picture(100)
    expected = call(files)[:1]
    for image in (files[0], str(files[0]), Image.fromarray(array), array, [files[0]]):
        answer = call(image)
        assert len(answer) == 1
        assert_same_answer(answer, expected, predictor)


def test_grey_arrays_are_images_and_stacks_of_them_are_many(predictor: Predictor) -> None:
    grey = picture(1)[:, :, 0]
    one = predictor.predict_proba(grey)
    assert one.shape == (1, 4)
    assert_same_answer(predictor.predict_proba(np.stack([grey] * 5)), np.repeat(one, 5, axis=0), predictor)
    assert_same_answer(predictor.predict_proba(Image.fromarray(grey)), one, predictor)
    assert_same_answer(predictor.predict_proba(grey[:, :, None]), one, predictor)


def test_batches_do_not_change_the_answer(load_run: Path, predictor: Predictor, files: list[Path]) -> None:
    small = Predictor(predictor.model, predictor.card, predictor.compute, batch_size=2)
    assert_same_answer(small.predict_proba(files), predictor.predict_proba(files), predictor)


def test_no_images_give_no_answers(predictor: Predictor) -> None:
    assert predictor.predict([]).shape == (0,)
    assert predictor.predict_proba([]).shape == (0, 4)
    assert predictor.features([]).shape == (0, 96)


def test_logits_of_tensors_are_those_behind_the_probabilities(predictor: Predictor, files: list[Path]) -> None:
    pixels = predictor.model.backbone.pixels
    store, maker = ImageStore(files, pixels, predictor.card.crop_ratio), ViewMaker(pixels)
    x = maker.normalise(torch.stack([maker.centre_view(store[i]) for i in range(3)]))
    logits = predictor.logits(x)
    assert logits.shape == (3, 4)
    assert torch.equal(logits, predictor.outputs(files).logits)
    assert (logits.abs() <= 1 + rounding(terms_of(predictor.model.head))).all()  # cosines
    probabilities = (logits / STUDENT_TEMPERATURE).softmax(1).numpy()
    assert np.array_equal(probabilities, predictor.outputs(files).probabilities)


def test_probabilities_are_calibrated_if_the_model_has_a_calibrator(predictor: Predictor, files: list[Path]) -> None:
    calibrator = Calibrator(Line(0.5, 1.0), Line(0.25, -1.0))
    plain = Predictor(predictor.model, replace(predictor.card, calibrator=None), predictor.compute)
    assert np.array_equal(plain.predict_proba(files), plain.outputs(files).probabilities)
    calibrated = Predictor(predictor.model, replace(predictor.card, calibrator=calibrator), predictor.compute)
    found = calibrated.predict_proba(files)
    assert found.dtype == np.float32
    assert_same(found, calibrator.probabilities(plain.outputs(files).logits, 2), terms=1)
    assert not np.allclose(found, plain.predict_proba(files), atol=0.01)
    assert_same(found.sum(1), np.ones(3), terms=4)
    assert np.array_equal(calibrated.predict(files), plain.predict(files))
    assert np.array_equal(found.argmax(1), plain.predict(files))
    assert np.array_equal(calibrated.outputs(files).probabilities, plain.predict_proba(files)), "outputs stay raw"
    assert calibrated.predict_proba([]).shape == (0, 4)


def test_prompts_are_applied_unless_left_out(predictor: Predictor, files: list[Path]) -> None:
    with_prompts, without = predictor.outputs(files), predictor.outputs(files, prompted=False)
    assert torch.equal(with_prompts.features, torch.from_numpy(predictor.features(files)))
    assert_differs(with_prompts.features, without.features, terms_of(predictor.model))


def test_saving_a_loaded_model_changes_no_bit(predictor: Predictor, files: list[Path], tmp_path: Path) -> None:
    save_model(tmp_path / "copy", predictor.model, predictor.card)
    again = load(tmp_path / "copy")
    assert again.card == predictor.card
    assert torch.equal(again.outputs(files).logits, predictor.outputs(files).logits)


def test_predicting_does_not_change_the_images(predictor: Predictor) -> None:
    array = picture(5)
    predictor.predict([array, array])
    assert np.array_equal(array, picture(5))


@pytest.mark.parametrize("shape", [(3,), (1, 2, 8, 8, 3)])
def test_arrays_that_hold_no_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(Misuse, match="3 or 4 axes"):
        as_sources(np.zeros(shape, np.uint8))


def test_arrays_with_channels_first_are_refused(predictor: Predictor) -> None:
    with pytest.raises(Misuse, match=r"shape \(3, 8, 8\) is no image"):
        predictor.predict(np.zeros((2, 3, 8, 8), np.uint8))


def test_tensors_are_refused_where_images_are_wanted(predictor: Predictor) -> None:
    with pytest.raises(Misuse, match="cannot be read from Tensor"):
        predictor.predict([torch.zeros(3, 8, 8)])  # type: ignore[list-item]


def test_an_unknown_device_is_refused(load_run: Path) -> None:
    with pytest.raises(Misuse, match="unknown device 'gpu'"):
        load(load_run, "gpu")


def test_the_public_name_can_be_used_repeatedly(load_run: Path, files: list[Path]) -> None:
    """A sub-module with the name of a public function would replace it once it is imported."""
    for _ in range(2):
        assert sptnet.load(load_run).n_known == 2


def test_public_names_exist_and_others_do_not() -> None:
    assert callable(sptnet.split_accuracy)
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        _ = sptnet.lod
