"""`sptnet estimate`: its table, plot and JSON, and what it refuses."""

import json
from pathlib import Path

import pytest

from conftest import Call
from sptnet.clustering.count import CountTrial


@pytest.fixture
def words(digit_folder: Path, tiny_settings: list[str]) -> list[object]:
    settings = [w for setting in [*tiny_settings, "data.known_classes=5"] for w in ("--set", setting)]
    return ["estimate", "digits", "--data", digit_folder, *settings]


def test_the_verb_prints_a_number_a_table_and_a_plot(call: Call, words: list[object], tmp_path: Path) -> None:
    plot = tmp_path / "plots" / "curve.png"
    code, out, _ = call(*words, "--plot", plot)
    assert code == 0
    assert "counts tried" in out and "labelled accuracy" in out
    last = out.splitlines()[-3:]
    assert last[0].startswith("about ") and last[0].endswith("; 5 known, 10 in truth")
    number = last[0].split()[1]
    assert last[1] == f"train with: --set n_categories={number}"
    assert last[2] == f"plot: {plot}"
    assert plot.read_bytes().startswith(b"\x89PNG")
    again = call(*words, "--plot", plot)
    assert again[0] == 2 and f"{plot} exists already. Give another --plot." in again[2]


@pytest.mark.parametrize("method", ["share", "balance", "brent"])
def test_the_verb_gives_json(call: Call, words: list[object], method: str) -> None:
    code, out, _ = call(*words, "--json", "--seed", 3, "--method", method, "--min", 6, "--max", 12)
    assert code == 0
    answer = json.loads(out)
    assert (answer["method"], answer["n_known"], answer["truth"]) == (method, 5, 10)
    assert set(answer) == {"n_categories", "interval", "curve", "method", "n_known", "truth"}
    counts = [trial["n_categories"] for trial in answer["curve"]]
    assert min(counts) >= 6 and max(counts) <= 12
    assert set(answer["curve"][0]) == set(CountTrial.__dataclass_fields__)


def test_the_verb_does_not_know_the_truth_of_unsorted_images(
    call: Call, words: list[object], digit_folder: Path, tmp_path: Path
) -> None:
    for i, image in enumerate(sorted(digit_folder.glob("*/*.png"))):
        known = int(image.parent.name) < 3 and i % 2 == 0
        target = tmp_path / (image.parent.name if known else "unlabelled") / image.name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(image.read_bytes())
    code, out, _ = call("estimate", "--data", tmp_path, "--backbone", "sptnet_digits_vit", *words[4:-2])
    assert code == 0
    assert out.splitlines()[-2].endswith("; 3 known")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--plot", "curve.txt"],
            "curve.txt is not the name of a picture. Give a file that ends in .png, .pdf or .svg.",
        ),
        (
            ["--set", "data.known_classes=1", "--method", "balance"],
            "at least two known ones with at least two labelled",
        ),
        (["--max", "3"], "max_categories is 3, less than the smallest count 5"),
        (["--method", "guess"], "unknown method 'guess'"),
        (["--source", "nowhere"], "data.source"),
    ],
)
def test_the_verb_refuses(call: Call, words: list[object], more: list[str], message: str) -> None:
    code, _, err = call(*words, *more)
    assert code == 2
    assert message in err


def test_images_without_any_label_are_refused(call: Call, words: list[object], tmp_path: Path) -> None:
    (tmp_path / "unlabelled").mkdir()
    first = next(iter(sorted(Path(str(words[3])).glob("*/*.png"))))
    (tmp_path / "unlabelled" / "a.png").write_bytes(first.read_bytes())
    code, _, err = call(*["estimate", "digits", "--data", tmp_path, *words[4:-2]])
    assert code == 2
    assert "no training image has a label" in err
