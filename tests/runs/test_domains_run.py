"""Domains from folder to scores: who is labelled, which sets are scored, and the same from the command line."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from sptnet.config import DataSettings
from sptnet.config.recipes import load_recipe
from sptnet.data.image_set import ImageSet
from sptnet.data.load import load_data, resolve_n_categories
from sptnet.data.split import make_split
from sptnet.data.split_file import read_split, write_split
from sptnet.errors import Failure, Misuse
from sptnet.results.scores import mean_scores, score, score_sets, scored_sets

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


@pytest.fixture(scope="module")
def domain_folder(tmp_path_factory):
    """PACS in miniature: six small pictures of each class in each domain."""
    root = tmp_path_factory.mktemp("PACS")
    random = np.random.RandomState(0)
    for domain in DOMAINS:
        for name in CLASSES:
            (root / domain / name).mkdir(parents=True)
            for i in range(6):
                pixels = random.randint(0, 256, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / domain / name / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def data(domain_folder):
    return load_data(DataSettings(source="pacs", folder=str(domain_folder)))


def domains_of(data, part):
    return {data.image_set.domains[i] for i in part}


def test_labels_come_from_the_labelled_domain_alone(data):
    split = data.split
    assert domains_of(data, split.labelled) == {"photo"}
    assert len(split.labelled) == 4 * 6 // 2
    assert set(split.target[split.labelled]) == {0, 1, 2, 3}


def test_the_rest_of_it_and_the_second_domain_are_unlabelled_and_the_others_unseen(data):
    split = data.split
    assert domains_of(data, split.unlabelled) == {"photo", "art_painting"}
    assert len(split.unlabelled) == 2 * 7 * 6 - 12
    assert domains_of(data, split.test) == {"cartoon", "sketch"}
    assert len(split.test) == 2 * 7 * 6


def test_the_draw_is_the_published_one_among_the_labelled_domain(data):
    image_set = data.image_set
    known = [i for i in range(len(image_set)) if image_set.domains[i] == "photo" and image_set.labels[i] < 4]
    drawn = np.random.RandomState(0).choice(len(known), 12, replace=False)
    assert data.split.labelled.tolist() == sorted(known[i] for i in drawn)


def test_the_split_survives_its_file(data, tmp_path):
    write_split(data.split, data.image_set, tmp_path / "split.json")
    again = read_split(tmp_path / "split.json", data.image_set)
    for part in ("labelled", "unlabelled", "holdout", "test", "target"):
        assert np.array_equal(getattr(again, part), getattr(data.split, part)), part


def test_an_unknown_labelled_domain_lists_those_there_are(data):
    with pytest.raises(
        Misuse, match=r"no images of a domain clipart. Its domains: art_painting, cartoon, photo, sketch"
    ):
        make_split(data.image_set, 4, labelled_domain="clipart")


def test_a_plain_pile_has_no_domain(few_digits):
    with pytest.raises(Misuse, match=r"no images of a domain photo. Its domains: none"):
        make_split(few_digits.image_set, 5, labelled_domain="photo")


def test_any_folder_of_domains_by_its_settings(domain_folder):
    settings = DataSettings(
        source="domains",
        folder=str(domain_folder),
        labelled_domain="sketch",
        unlabelled_domains=["cartoon", "photo"],
        known_classes=["dog", "house"],
        labelled_share=0.25,
    )
    data = load_data(settings)
    assert domains_of(data, data.split.labelled) == {"sketch"}
    assert domains_of(data, data.split.unlabelled) == {"sketch", "cartoon", "photo"}
    assert domains_of(data, data.split.test) == {"art_painting"}
    assert data.split.known_classes == ("dog", "house")
    assert len(data.split.labelled) == 3


def test_a_folder_of_domains_must_say_which_is_labelled(domain_folder):
    with pytest.raises(Misuse, match="which domain has the labels"):
        load_data(DataSettings(source="domains", folder=str(domain_folder)))


def test_a_benchmark_with_a_corrupt_image_is_refused(domain_folder, tmp_path):
    """To leave it out would shift the published draw of the labelled images."""
    whole = shutil.copytree(domain_folder, tmp_path / "PACS")
    (whole / "sketch" / "dog" / "3.png").write_bytes(b"cut off")
    with pytest.raises(Failure, match=r"1 of 168 images .* sketch/dog/3\.png .* `data\.check_counts=false`"):
        load_data(DataSettings(source="pacs", folder=str(whole)))
    told = []
    data = load_data(DataSettings(source="pacs", folder=str(whole), check_counts=False), told.append)
    assert [problem.name for problem in data.unreadable] == ["sketch/dog/3.png"]
    assert len(data.image_set) == 167


def test_a_labels_file_is_for_folders(domain_folder, tmp_path):
    with pytest.raises(Misuse, match=r"data.labels is for folders, but data.source is pacs"):
        load_data(DataSettings(source="pacs", folder=str(domain_folder), labels=str(tmp_path / "labels.csv")))


def test_every_domain_is_scored_on_its_own(data):
    sets = scored_sets(data.image_set, data.split)
    assert list(sets) == ["unlabelled", "photo", "art_painting", "cartoon", "sketch"]
    assert [len(part) for part in sets.values()] == [72, 30, 42, 42, 42]
    assert np.array_equal(np.sort(np.concatenate([sets["photo"], sets["art_painting"]])), sets["unlabelled"])


def test_each_set_has_its_own_matching_and_the_unseen_their_mean(data):
    random = np.random.RandomState(0)
    predicted = random.randint(0, 7, len(data.image_set))
    swap = np.array([1, 0, 2, 3, 4, 5, 6])
    sketch = np.array([domain == "sketch" for domain in data.image_set.domains])
    predicted[sketch] = swap[data.split.target[sketch]]  # perfect, but for the names of two clusters
    scores = score_sets(data.image_set, data.split, predicted)
    assert list(scores) == ["unlabelled", "photo", "art_painting", "cartoon", "sketch", "unseen, mean"]
    assert scores["sketch"]["all"] == 1.0
    for name, part in scored_sets(data.image_set, data.split).items():
        assert scores[name] == score(data.split.target[part], predicted[part], 4)
    mean = scores["unseen, mean"]
    assert mean["all"] == pytest.approx((scores["cartoon"]["all"] + 1.0) / 2)
    assert mean["balanced"]["new"] == pytest.approx((scores["cartoon"]["balanced"]["new"] + 1.0) / 2)
    assert mean["images"] == 84


def test_the_mean_of_one_is_itself(data):
    one = score(np.array([0, 1, 5]), np.array([0, 1, 1]), 2)
    assert mean_scores([one]) == one


def test_a_pile_without_domains_has_its_two_sets(few_digits):
    assert list(scored_sets(few_digits.image_set, few_digits.split)) == ["unlabelled"]
    image_set = few_digits.image_set
    test = np.arange(len(image_set)) % 7 == 0
    divided = ImageSet(image_set.name, image_set.ids, image_set.sources, image_set.names, image_set.labels, None, test)
    assert list(scored_sets(divided, make_split(divided, 5))) == ["unlabelled", "test"]


@pytest.fixture(scope="module")
def trained(domain_folder, tmp_path_factory, tiny_settings):
    """A run of the `pacs` recipe's data through the command line's own function."""
    from sptnet.config.recipes import load_recipe
    from sptnet.training.experiment import train

    settings = [*tiny_settings, "data.source=pacs", f'data.folder="{domain_folder}"', "data.known_classes=4"]
    out = tmp_path_factory.mktemp("runs") / "pacs"
    scores = train(load_recipe("digits", [*settings, "method=simgcd"]), out)
    return out, scores


def test_a_run_scores_every_domain(trained):
    out, scores = trained
    assert list(scores) == ["unlabelled", "photo", "art_painting", "cartoon", "sketch", "unseen, mean"]
    assert json.loads((out / "run.json").read_text())["scores"].keys() == scores.keys()


def said(runner_words, capsys, monkeypatch):
    import sys

    from sptnet.cli import main

    monkeypatch.setattr(sys, "argv", ["sptnet", *runner_words])
    code = 0
    try:
        main()
    except SystemExit as leaving:
        code = leaving.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_evaluate_gives_the_run_s_own_scores(trained, capsys, monkeypatch):
    out, scores = trained
    code, text, _ = said(["evaluate", str(out), "--json"], capsys, monkeypatch)
    assert code == 0
    assert json.loads(text)["sketch"]["all"] == scores["sketch"]["all"]
    assert json.loads(text)["unseen, mean"] == scores["unseen, mean"]


def test_a_model_directory_is_scored_on_a_benchmark(trained, domain_folder, capsys, monkeypatch):
    out, scores = trained
    words = ["evaluate", str(out / "model"), "--source", "pacs", "--data", str(domain_folder), "--json"]
    code, text, _ = said(words, capsys, monkeypatch)
    assert code == 0
    assert json.loads(text)["art_painting"]["all"] == scores["art_painting"]["all"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--source", "pacs"], "where is pacs? Give its folder with --data DIR."),
        (["--source", "pac", "--data", "x"], "there is no data set pac. Did you mean pacs?"),
        (["--source", "cub", "--data", "x"], "CUB_200_2011"),
    ],
)
def test_what_evaluate_cannot_score(trained, words, error, capsys, monkeypatch):
    code, _, err = said(["evaluate", str(trained[0] / "model"), *words], capsys, monkeypatch)
    assert code == 2
    assert error in err


def test_a_model_with_another_number_of_known_classes_is_refused(
    few_digits, domain_folder, run_it, tiny_config, tmp_path, capsys, monkeypatch
):
    run_it(tmp_path / "run", tiny_config.model_copy(update={"method": "simgcd"}), few_digits)
    words = ["evaluate", str(tmp_path / "run" / "model"), "--source", "pacs", "--data", str(domain_folder)]
    code, _, err = said(words, capsys, monkeypatch)
    assert code == 2
    assert "the model knows 5 categories, but the split has 4 known classes" in err


# --- how many categories ---


def test_the_true_number_is_the_default(data):
    assert resolve_n_categories(None, 1.0, data.split) == 7


@pytest.mark.parametrize(("factor", "n"), [(0.6, 4), (2, 14), (10, 70), (1.5, 10)])
def test_a_factor_makes_it_wrong_on_purpose(data, factor, n):
    assert resolve_n_categories(None, factor, data.split) == n


def test_fewer_than_the_known_ones_is_refused(data):
    with pytest.raises(Misuse, match=r"category_factor 0.4 times 7 is 3, but 4 categories are known"):
        resolve_n_categories(None, 0.4, data.split)
    with pytest.raises(Misuse, match=r"`n_categories` is 3, but 4 categories are known already. Give at least 4"):
        resolve_n_categories(3, 1.0, data.split)


def test_a_number_and_a_factor_exclude_each_other():
    with pytest.raises(Misuse, match="n_categories and category_factor exclude each other"):
        load_recipe("simgcd", ["n_categories=8", "category_factor=2.0"])


def test_a_run_writes_what_the_factor_became(domain_folder, tiny_settings, tmp_path):
    from sptnet.config.recipes import load_recipe
    from sptnet.results.run_folder import RunFolder
    from sptnet.training.experiment import Experiment

    settings = [*tiny_settings, "data.source=pacs", f'data.folder="{domain_folder}"', "data.known_classes=4"]
    config = load_recipe("digits", [*settings, "category_factor=2"])
    experiment = Experiment(config, RunFolder(tmp_path / "run"), tell=lambda _: None)
    assert (experiment.state.config.n_categories, experiment.state.config.category_factor) == (14, 1.0)
    assert len(experiment.state.names) == 14
