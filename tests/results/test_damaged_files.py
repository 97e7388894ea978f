"""Damaged files of a run: every reader and every command names the file in one line."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Call
from helpers.report_runs import hostile_run
from helpers.result_runs import make_run
from sptnet.config import Config
from sptnet.data.benchmarks.digits import digits
from sptnet.data.folder import read_folder
from sptnet.data.split import make_split
from sptnet.data.split_file import read_split, write_split
from sptnet.discovery.rounds import carry_names
from sptnet.errors import Failure, SptnetError
from sptnet.inference.bulk.image_list import named_images
from sptnet.report.page.curves import count_chart, training_charts
from sptnet.report.page.facts import run_facts
from sptnet.results.assessment import read_expectation
from sptnet.results.categories import read_names
from sptnet.results.edits.log import read_edits_file, read_log
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import read_result

NOT_TEXT = [
    b"\xff\xfe\x00",
    b"\0" * 64,
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 5000,
    b"",
    b"[",
    b"3",
    b"null",
    b"[]",
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path)


def refusal(read: Callable[[], object], file: Path) -> str:
    with pytest.raises(SptnetError) as error:
        read()
    message = str(error.value)
    assert "\n" not in message and str(file) in message and len(message) < 600
    assert "). " in message or "'. " in message, "a way out"
    return message.replace(str(file), "FILE")


# --- run.json, metrics.jsonl, estimate.json, edits.jsonl, config.toml -------------------------------------------------

GOOD_LINE = {"stage": "simgcd", "stage_number": 0, "epoch": 1, "losses": {"raw": {"total": 1.0}}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "content: input should be a valid dictionary"),
        ('{"scores": 3}', "scores: input should be a valid dictionary"),
        ('{"scores": {"unlabelled": 3}}', "scores.unlabelled: input should be a valid dictionary"),
        (
            '{"scores": {"unlabelled": {"all": 1, "old": "x", "new": 1}}}',
            "scores.unlabelled.old: input should be a valid",
        ),
        ('{"scores": {"unlabelled": {"all": 1}}}', "scores.unlabelled.old: field required"),
        (
            '{"scores": {"unlabelled": {"all": 1e999, "old": 1, "new": 1}}}',
            "scores.unlabelled.all: input should be a fin",
        ),
        ('{"data": []}', "data: input should be a valid dictionary"),
        ('{"data": {"name": 3}}', "data.name: input should be a valid string"),
        ('{"data": {"labelled": "many"}}', "data.labelled: input should be a valid integer"),
        ('{"data": {"unreadable": [3]}}', "data.unreadable.0: input should be a valid dictionary"),
        ('{"data": {"unreadable": [{"image": "a"}]}}', "data.unreadable.0.reason: field required"),
        ('{"command": "x"}', "command: input should be a valid list"),
        ('{"command": [1]}', "command.0: input should be a valid string"),
        ('{"versions": [1]}', "versions: input should be a valid dictionary"),
        ('{"device": 3}', "device: input should be a valid string"),
        ('{"started": "yesterday"}', "started: invalid isoformat string: 'yesterday'"),
        ('{"seconds": "1"}', "seconds: input should be a valid number"),
        ('{"seconds": 1' + "0" * 400 + "}", "seconds: "),
        ('{"expected_accuracy": {"value": "x"}}', "expected_accuracy.value: input should be a valid number"),
        ('{"expected_accuracy": 3}', "expected_accuracy: input should be a valid dictionary"),
        ('{"selected_epoch": []}', "selected_epoch: input should be a valid integer"),
        ('{"parts": 3}', "parts: input should be a valid list"),
        ('{"parts": []}', "parts: list should have at least 1 item"),
        ('{"parts": ["x"]}', "parts.0: input should be a valid dictionary"),
        ('{"parts": [{"seconds": "x"}]}', "parts.0.seconds: input should be a valid number"),
        ('{"plan": []}', "plan: input should be a valid dictionary"),
        ('{"plan": {"minutes": -1}}', "plan.minutes: input should be greater than 0"),
    ],
)
def test_run_json(run: Path, content: str, says: str) -> None:
    folder = RunFolder(run)
    folder.facts_file.write_text(content)
    message = refusal(folder.facts, folder.facts_file)
    assert message.startswith(f"FILE is damaged ({says}")
    assert message.endswith("). Delete it to go on without it.")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epoch": "x"}, "epoch: input should be a valid integer"),
        ({"epoch": None}, "epoch: input should be a valid integer"),
        ({"epoch": True}, "epoch: input should be a valid integer"),
        ({"epoch": -1}, "epoch: input should be greater than or equal to 0"),
        ({"stage_number": []}, "stage_number: input should be a valid integer"),
        ({"stage": 3}, "stage: input should be a valid string"),
        ({"losses": 3}, "losses: input should be a valid dictionary"),
        ({"losses": {"raw": [1]}}, "losses.raw: input should be a valid dictionary"),
        ({"losses": {"raw": {"total": "x"}}}, "losses.raw.total: input should be a valid number"),
        ({"scores": {"unlabelled": {}}}, "scores.unlabelled.all: field required"),
        ({"old_holdout": "x"}, "old_holdout: input should be a valid number"),
        ({"seconds": []}, "seconds: input should be a valid number"),
        ({"learning_rates": {"model": "x"}}, "learning_rates.model: input should be a valid number"),
    ],
)
def test_metrics_jsonl(run: Path, change: dict[str, Any], says: str) -> None:
    folder = RunFolder(run)
    folder.metrics_file.write_text(f"{json.dumps(GOOD_LINE)}\n{json.dumps(GOOD_LINE | change)}\n")
    message = refusal(folder.metrics, folder.metrics_file)
    assert message.startswith(f"line 2 of FILE is damaged ({says}")
    assert message.endswith("). Repair or delete that line.")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"interval": [1, "x"]}, "interval.1: input should be a valid integer"),
        ({"interval": [1, 2, 3]}, "interval: list should have at most 2 items"),
        ({"interval": [1, 10**400]}, "interval.1: input should be less than or equal to"),
        ({"curve": [3]}, "curve.0: input should be a valid dictionary"),
        ({"curve": [{"n_categories": 2}]}, "curve.0.score: field required"),
        ({"method": None}, "method: input should be a valid string"),
    ],
)
def test_estimate_json(tmp_path: Path, content: dict[str, Any], says: str) -> None:
    file = tmp_path / "estimate.json"
    file.write_text(json.dumps({"n_categories": 3, "interval": [1, 5], "curve": [], "method": "a"} | content))
    assert refusal(lambda: count_chart(file), file).startswith(f"FILE is damaged ({says}")


@pytest.mark.parametrize(
    "line",
    [
        '{"at": "now"}',
        '{"verb": "undo"}',
        '{"at": 3, "verb": "undo"}',
        '{"at": "now", "verb": []}',
        '{"at": "now", "verb": "count", "n_categories": "3"}',
        '{"at": "now", "verb": "count", "n_categories": 1e3}',
        '{"at": "now", "verb": "move", "images": [3], "to": "a"}',
        '{"at": "now", "verb": "merge", "categories": "ab", "into": "a"}',
    ],
)
def test_edits_jsonl(run: Path, line: str) -> None:
    file = run / "edits.jsonl"
    file.write_text(f'{{"at": "now", "verb": "undo"}}\n{line}\n')
    assert refusal(lambda: read_log(run), file).startswith("line 2 of FILE is damaged (")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"caf\xe9 = 1", "'utf-8' codec can't decode"),
        (b"seed = 'x'", "seed: input should be a valid integer"),
        (b"seed = " + b"9" * 5000, "Exceeds the limit (4300 digits)"),
        (b"seed = " + b"[" * 50_000, "it is nested more than 50 levels deep"),
        (b"n_categories.a.b.c = 1", "n_categories: input should be a valid integer"),
        (b"data = 3", "data: this is a section with keys of its own, such as data.source"),
        (b"simgcd.learning_rate = inf", "simgcd.learning_rate: input should be a finite number"),
        (b"colour = 1", "unknown key colour"),
        (b'"a\\nb" = 1', r"unknown key 'a\nb'"),
        (b"views.workers = 99999999999", "views.workers: input should be less than or equal to 1024"),
    ],
)
def test_config_toml(run: Path, content: bytes, says: str) -> None:
    folder = RunFolder(run)
    folder.config_file.write_bytes(content)
    message = refusal(folder.config, folder.config_file)
    assert message.startswith(f"FILE is damaged ({says}") and message.endswith(
        "Restore it, or train into another folder."
    )


@pytest.mark.parametrize("content", NOT_TEXT)
def test_no_file_of_a_run_may_hold_just_anything(run: Path, content: bytes) -> None:
    folder = RunFolder(run)
    (run / "earlier.csv").write_text("image,category\n")
    readers: dict[str, Callable[[], object]] = {
        "run.json": folder.facts,
        "estimate.json": folder.plausible_counts,
        "edits.jsonl": lambda: read_log(run),
        "metrics.jsonl": folder.metrics,
        "predictions.csv": lambda: read_result(run),
        "features.safetensors": lambda: read_result(run),
        "model/model.json": lambda: read_result(run),
        "earlier.csv": lambda: carry_names(run),
        "config.toml": folder.config,
    }
    empty_is_fine = {"edits.jsonl", "metrics.jsonl", "config.toml"}
    for name, read in readers.items():
        file = run / name
        before = file.read_bytes() if file.exists() else None
        file.write_bytes(content + b"\n" * (name == "metrics.jsonl"))
        if content or name not in empty_is_fine:
            refusal(read, file)
        file.write_bytes(before) if before is not None else file.unlink()
    assert len(read_result(run)) == 8, "nothing was changed"


# --- files that a person gives ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b"9" * 5000, b"[", b"3", b"[3]", b'{"edits": 3}'])
def test_edits_that_a_page_saved(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "edits.json"
    file.write_bytes(content)
    with pytest.raises(SptnetError) as error:
        read_edits_file(file)
    assert "\n" not in str(error.value) and error.value.exit_code == 2


@pytest.mark.parametrize("content", [*NOT_TEXT, b"{}", b'{"known_classes": 3}', b'{"known_classes": [1]}'])
def test_a_split(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "split.json"
    write_split(make_split(digits(), 5), digits(), file)
    read_split(file, digits())
    file.write_bytes(content)
    assert refusal(lambda: read_split(file, digits()), file)


@pytest.mark.parametrize(
    "content", [b"\xff,\xfe", b"", b"\0", b"path\n", b'path,label\n"a', b"path,label\n" + b"a" * 200_000]
)
def test_a_labels_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "images").mkdir()
    file = tmp_path / "labels.csv"
    file.write_bytes(content)
    with pytest.raises(SptnetError) as error:
        read_folder(tmp_path / "images", file)
    assert "\n" not in str(error.value)


def test_names_and_lists(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_bytes(b"caf\xe9")
    assert refusal(lambda: read_names(file), file).startswith("FILE is not text in UTF-8 (")
    file.write_bytes(b"a.png\nb\0.png\n")
    assert refusal(lambda: named_images([], file), file) == (
        "FILE is damaged (line 2 is no path). Give a text file with one path per line."
    )
    assert refusal(lambda: named_images([], tmp_path), tmp_path).startswith("FILE cannot be read (Is a directory)")


def test_an_endless_number_in_the_expected_accuracy_is_named() -> None:
    with pytest.raises(Failure, match=r"the expected accuracy in run\.json is damaged \(OverflowError"):
        read_expectation({"expected_accuracy": {"value": 10**400, "low": 0, "high": 1}})


# --- mutations --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mutated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = hostile_run(tmp_path_factory.mktemp("mutated"))
    (run / "edits.jsonl").write_text('{"at": "now", "verb": "rename", "category": "x", "to": "y"}\n')
    (run / "earlier.csv").write_text("image,category\na,b\n")
    return run


READERS: dict[str, Callable[[Path], object]] = {
    "run.json": lambda run: read_expectation(facts := RunFolder(run).facts()) and run_facts(run, Config(), facts),
    "metrics.jsonl": lambda run: training_charts(RunFolder(run).metrics()),
    "estimate.json": lambda run: count_chart(run / "estimate.json"),
    "edits.jsonl": read_log,
    "config.toml": lambda run: RunFolder(run).config(),
    "predictions.csv": read_result,
    "model/model.json": read_result,
}
MARKS = b"\"'{}[],:-.=_\\\n\0\xff\xc3"
WORDS = [
    b"1e999",
    b"9" * 5000,
    b"1" * 400,
    b"NaN",
    b"null",
    b"true",
    b"[[[[[",
    b"\xed\xb3\xbf",
    b"3",
    b'"x"',
    b"{}",
    b"",
]
PIECES = st.sampled_from([*(bytes([mark]) for mark in MARKS), *WORDS])


@given(name=st.sampled_from(sorted(READERS)), places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9), PIECES)))
@settings(max_examples=200, deadline=None)
def test_mutated_files_are_read_or_named(mutated: Path, name: str, places: list[tuple[float, int, bytes]]) -> None:
    file = mutated / name
    whole = file.read_bytes()
    content = bytearray(whole)
    for share, length, piece in places:
        start = int(share * len(content))
        content[start : start + length] = piece
    try:
        file.write_bytes(content)
        READERS[name](mutated)
    except SptnetError as error:
        assert "\n" not in str(error)
    finally:
        file.write_bytes(whole)


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("run.json", "[]", ["report"]),
        ("run.json", '{"scores": 3}', ["report"]),
        ("run.json", '{"started": "x"}', ["report"]),
        ("metrics.jsonl", '{"epoch": "x"}\n', ["report"]),
        ("metrics.jsonl", "[" * 100_000 + "\n", ["report"]),
        ("edits.jsonl", "9" * 5000, ["edit", "RUN", "list"]),
        ("edits.jsonl", '{"at": "now", "verb": 3}', ["export", "RUN", "--as", "csv", "--to", "OUT"]),
        ("estimate.json", '{"interval": 3}', ["report"]),
        ("config.toml", "seed = 'x'", ["edit", "RUN", "list"]),
        ("config.toml", "a = " + "[" * 50_000, ["report"]),
        ("config.toml", "views.workers = 99999999999", ["train", "--resume", "--out", "RUN"]),
        ("predictions.csv", "\0", ["edit", "RUN", "list"]),
        ("model/model.json", '{"categories": 3}', ["edit", "RUN", "list"]),
    ],
)
def test_commands_name_the_file(name: str, content: str, words: list[str], tmp_path: Path, call: Call) -> None:
    run = make_run(tmp_path)
    (run / name).write_text(content)
    places = {"RUN": run, "OUT": tmp_path / "out.csv"}
    answer = call(
        *(places.get(word, word) for word in ([*words, "RUN", "--no-model-pictures"] if words == ["report"] else words))
    )
    assert (answer.code, answer.out) == (1, "")
    *before, last = answer.err.splitlines()
    assert last.startswith("error: ") and str(run / name) in last and "is damaged (" in last
    assert before in ([], ["drawing the map"])


def test_a_process_ends_with_one_line(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "edits.jsonl").write_bytes(b"\xff" * 10)
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    words = [sys.executable, "-m", "sptnet", "edit", str(run), "list"]
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {run / 'edits.jsonl'} is damaged ('utf-8' codec can't decode byte 0xff")
    assert done.stderr.count("\n") == 1


def test_a_name_that_no_file_can_have_is_an_image_without_a_file(run: Path) -> None:
    text = (run / "predictions.csv").read_text()
    for name in ("a" * 5000, "a\0b"):
        (run / "predictions.csv").write_text(text.replace("cat/a.png", name))
        result = read_result(run)
        assert (result.ids[0], result.sources[0]) == (name, None)


def test_a_cell_beyond_the_limit_of_csv_is_named(run: Path) -> None:
    rows = (run / "predictions.csv").read_text().splitlines()
    (run / "predictions.csv").write_text("\n".join([*rows, "x" * (csv.field_size_limit() + 1)]))
    assert "field larger than field limit" in refusal(lambda: read_result(run), run / "predictions.csv")
