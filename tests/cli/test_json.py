"""`--json` of every command: one object on stdout, with the keys of docs/json.md; errors are one line on stderr."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

from conftest import Answer, Call, random_model
from helpers.checked_folders import paint, picture
from helpers.digit_folders import fill
from helpers.report_runs import assessed_run
from helpers.result_runs import make_run, small_result
from sptnet.cli import app
from sptnet.cli.discover_output import result_of_discovery
from sptnet.cli.output import show_json
from sptnet.clustering.count import CountEstimate, CountTrial
from sptnet.config import PromptSettings
from sptnet.data.benchmarks import BENCHMARKS
from sptnet.data.benchmarks.base import exactly
from sptnet.data.benchmarks.counts import CountRow
from sptnet.discovery import pace
from sptnet.discovery.demo import DemoRow
from sptnet.inference.count_categories import RunCount
from sptnet.model.model_folder import ModelCard, save_model
from sptnet.report.figures.write import Written
from sptnet.report.page.write import read_for_report
from sptnet.results.counts import Clustering, write_clustering
from sptnet.results.edits.log import Rename, add_edits, as_dict, read_log
from sptnet.results.expected_accuracy import ExpectedAccuracy
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
HOSTILE = ("\x1b[31mred\x7f\n", "né \udcff", "[bold]x", "\u202etxt")
CHANGES = "rename, merge, split, move, drop, confirm, count, undo, apply"
NAMED_VALUES = (".scores", "")
"""Objects whose keys are names."""
FREE = {".edits", ".undone", ".settings"}
"""Values whose keys are those of other files."""


def leaves(command: Any, *words: str) -> Iterator[str]:
    """Yield every command that does something, such as "edit list"."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, *words, name)
    if not hasattr(command, "commands"):
        yield " ".join(words)


COMMANDS = tuple(leaves(typer.main.get_command(app)))


def command_of(name: str) -> Any:
    command: Any = typer.main.get_command(app)
    for word in name.split():
        command = command.commands[word]
    return command


def test_every_command_has_the_option() -> None:
    assert len(COMMANDS) == 26
    helps = {option.help for name in COMMANDS for option in command_of(name).params if "--json" in option.opts}
    lacking = [name for name in COMMANDS if not any("--json" in option.opts for option in command_of(name).params)]
    assert lacking == [] and len(helps) == 1


# --- the documented keys ----------------------------------------------------------------------------------------------


def sections() -> dict[str, dict[str, str]]:
    """Return the documented keys with their descriptions, by heading."""
    parts = re.split(r"^### (.+)$", PAGE, flags=re.MULTILINE)[1:]
    tables = (dict(re.findall(r"^\| `([^`]+)` \| (.*) ?\|$", text, flags=re.MULTILINE)) for text in parts[1::2])
    return dict(zip(parts[::2], tables, strict=True))


def documented(heading: str) -> set[str]:
    """Return the documented keys of a command, with those of shared objects."""
    found, whole = set(), sections()
    by_link = {name.lower().replace(" ", "-"): name for name in whole}
    for key, value in whole[heading].items():
        prefix = key.rstrip(".")
        found |= {prefix} - {""}
        for link in re.findall(r"\(#([\w-]+)\)", value):
            found |= {prefix + inner for inner in documented(by_link[link])}
    return found | {re.sub(r"(\[\])?(\.\w+)?$", "", key) for key in found if key.count(".") > 1} - {""}


def keys_of(value: Any, path: str = "") -> set[str]:
    """Return the paths of all keys of an object, as docs/json.md writes them."""
    if path in FREE:
        return {path}
    own = {path} if path and not path.endswith("]") else set()
    if isinstance(value, dict) and path in NAMED_VALUES and all(isinstance(item, dict) for item in value.values()):
        return own.union(*(keys_of(item, f"{path}[]") for item in value.values()))
    if isinstance(value, dict):
        return own.union(*(keys_of(item, f"{path}.{key}") for key, item in value.items()))
    if isinstance(value, list):
        return own.union(*(keys_of(item, f"{path}[]") for item in value))
    return own


def check(heading: str, *objects: dict[str, Any]) -> None:
    """Compare printed objects with the page; together they have every key, and each has all keys of the first level."""
    printed = set().union(*map(keys_of, objects))
    assert printed == documented(heading)
    top = {key for key in documented(heading) if re.fullmatch(r"\.\w+", key)}
    assert [value for value in objects if {f".{key}" for key in value} != top and heading != "sptnet evaluate"] == []


def only_object(answer: Answer, code: int = 0) -> dict[str, Any]:
    """Return the object that a command printed, which is all that it printed on stdout."""
    assert answer.code == code, answer.err
    assert answer.out.isascii() and answer.out.endswith("\n") and answer.out[:-1].isprintable()
    value = json.loads(answer.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert isinstance(value, dict)
    return value


def test_every_command_is_documented() -> None:
    headings = [heading.removeprefix("sptnet ") for heading in sections() if heading.startswith("sptnet ")]
    split = [f"edit {verb}" for heading in headings if "," in heading for verb in CHANGES.split(", ")]
    assert f"edit {CHANGES}" in headings
    plain = [heading for heading in headings if "," not in heading]
    forms = {"discover --dry-run", "predict --parts", "data NAME"}
    assert set(plain) - forms | set(split) == set(COMMANDS) and forms < set(plain)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "m"
    save_model(
        folder, random_model(n_categories=2), ModelCard(("=cat", "d\x7fg"), 1, PromptSettings(kind="none"), 0.875)
    )
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path)


def test_discover(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(pace, "SECONDS", 0.005)
    words = [fill(tmp_path / "photos"), "--out", tmp_path / "run", "--backbone", "sptnet_digits_vit"]
    words += ["--device", "cpu", "--method", "sskmeans", "--set", "backbone.image_size=32", "--no-report", "--json"]
    planned = only_object(call("discover", *words, "--dry-run"))
    check("sptnet discover --dry-run", planned)
    assert (planned["images"], planned["plan"]["method"], planned["refusal"]) == (48, "sskmeans", None)
    answer = call("discover", *words)
    found = only_object(answer)
    assert "plan:" in answer.err.splitlines()
    facts = RunFolder(tmp_path / "run").facts()
    assert (found["run"], found["method"]) == (str(tmp_path / "run"), "sskmeans")
    assert (found["seconds"], found["page"], found["images"]) == (facts["seconds"], None, 48)
    assert found["interval"][0] <= found["n_categories"] <= found["interval"][1]
    assert sum(category["size"] for category in found["categories"]) == 48
    assert len(found["categories"]) == found["n_categories"]
    assert found["next"][1] == f"sptnet edit {tmp_path / 'run'} confirm NAME"
    again = only_object(call("discover", *words, "--dry-run"))
    assert "is not empty. Go on with --resume, replace it with --overwrite" in again["refusal"]
    other = assessed_run(tmp_path / "assessed", ExpectedAccuracy(0.62, 0.55, 0.7))
    RunFolder(other).write_facts(RunFolder(other).facts() | {"scores": scores(), "seconds": 1.5})
    capsys.readouterr()
    show_json(result_of_discovery(other, read_for_report(other)))
    assessed = json.loads(capsys.readouterr().out)
    assert assessed["expected_accuracy"] == {"value": 0.62, "low": 0.55, "high": 0.7}
    assert (assessed["doubtful"], len(assessed["labels_to_check"])) == (10, 2)
    assert assessed["scores"]["unlabelled"]["old"] is None
    check("sptnet discover", found, assessed)


def scores() -> dict[str, Any]:
    three = {"all": 0.5, "old": float("nan"), "new": 0.25}
    return {"unlabelled": {**three, "balanced": three, "separate": three, "nmi": 0.1, "ari": 0.2, "images": 8}}


def test_train_and_evaluate(tmp_path: Path, train_words: list[str], call: Call) -> None:
    words = [*train_words, "--set", "method=kmeans", "--set", "data.known_classes=5", "--out", tmp_path / "run"]
    trained = only_object(call(*words, "--json"))
    scored = only_object(call("evaluate", tmp_path / "run", "--json"))
    facts = RunFolder(tmp_path / "run").facts()
    assert (trained["method"], trained["n_categories"], trained["seconds"]) == ("kmeans", 10, facts["seconds"])
    assert trained["scores"] == scored == facts["scores"]
    shares = {"value": 0.5, "low": 0.4, "high": 0.6}
    check("sptnet train", trained, {**trained, "expected_accuracy": shares})
    check("sptnet evaluate", scored)


def test_check(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SECONDS", 0.005)
    folder = paint(tmp_path / "pets", cat=5, dog=6, unlabelled=4)
    (folder / "cat" / "copy.png").write_bytes((folder / "cat" / "0.png").read_bytes())
    same = picture(99)
    same.save(folder / "dog" / "one.png")
    same.save(folder / "dog" / "two.bmp")
    (folder / "unlabelled" / os.fsdecode(b"\xff.png")).write_bytes(b"")
    words = ["--backbone", "sptnet_digits_vit", "--set", "backbone.image_size=32", "--skip-unreadable", "--json"]
    checked = only_object(call("check", folder, *words))
    assert [problem["name"] for problem in checked["unreadable"]] == ["unlabelled/\udcff.png"]
    refused = only_object(call("check", folder, *words[:4], "--json"), code=1)
    assert (checked["can_train"], refused["can_train"], refused["time"]) == (True, False, None)
    check("sptnet check", checked, refused)


def test_estimate(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = CountTrial(7, None, 0.5, float("inf"), 0.25)
    count = RunCount(CountEstimate(7, (6, 9), [trial], "share"), 5, None)
    monkeypatch.setattr("sptnet.inference.count_categories.estimate_categories", lambda *a: count)
    printed = only_object(call("estimate", "digits", "--json"))
    assert (printed["interval"], printed["curve"][0]["inertia"]) == ([6, 9], None)
    check("sptnet estimate", printed)


def test_predict(model: Path, tmp_path: Path, call: Call) -> None:
    folder = paint(tmp_path / "images", a=2)
    (folder / "=b\udcff\x7f.png").write_bytes((folder / "a" / "0.png").read_bytes())
    (folder / "bad.png").write_bytes(b"")
    words = ["predict", model, folder, "--device", "cpu", "--skip-unreadable", "--json"]
    printed = only_object(call(*words))
    assert {row["image"] for row in printed["rows"]} == {str(p) for p in folder.rglob("*.png") if p.name != "bad.png"}
    assert {row["category"] for row in printed["rows"]} <= {"=cat", "d\x7fg"}
    assert all(row["is_new"] == (row["category"] != "=cat") for row in printed["rows"])
    assert (printed["images"], printed["unreadable"][0]["image"]) == (3, str(folder / "bad.png"))
    written = only_object(call(*words, "--out", tmp_path / "table.csv"))
    assert (written["rows"], written["out"], written["images"]) == (None, str(tmp_path / "table.csv"), 3)
    check("sptnet predict", printed, written)
    parts = only_object(call(*words, "--parts", tmp_path / "parts"))
    assert parts == {"run": str(model), "parts": str(tmp_path / "parts"), "done": 1, "skipped": 0}
    check("sptnet predict --parts", parts)


def test_edit(run: Path, tmp_path: Path, call: Call) -> None:
    file = tmp_path / "edits.json"
    edits = [{"verb": "rename", "category": "cat", "to": "lynx"}]
    commands: list[tuple[list[object], dict[str, Any]]] = [
        (["rename", "new-1", "eel"], {"verb": "rename", "category": "new-1", "to": "eel"}),
        (
            ["merge", "eel", "new-2", "--into", "fish"],
            {"verb": "merge", "categories": ["eel", "new-2"], "into": "fish"},
        ),
        (["split", "fish"], {"verb": "split", "category": "fish", "parts": 2, "seed": 0}),
        (
            ["move", "test/e.png", "--to", "dog"],
            {"verb": "move", "images": ["test/e.png"], "to": "dog", "create": False},
        ),
        (["drop", "cat/b.png"], {"verb": "drop", "images": ["cat/b.png"]}),
        (["confirm", "dog"], {"verb": "confirm", "targets": ["dog"]}),
        (["undo"], {"verb": "undo"}),
        (["apply", file], edits[0]),
    ]
    assert {str(words[0]) for words, _ in commands} == set(CHANGES.split(", ")) - {"count"}
    file.write_text(json.dumps({"edits": edits, "after": 7}))
    printed = [only_object(call("edit", run, *words, "--json")) for words, _ in commands]
    check(f"sptnet edit {CHANGES}", *printed)
    other, category = make_run(tmp_path / "other"), np.array([0, 0, 1, 1, 2, 2, 3, 4])
    kept = Clustering(category, np.full(8, 0.5, np.float32), np.eye(5, 2, dtype=np.float32), n_known=2)
    write_clustering(other, kept)
    counted = only_object(call("edit", other, "count", 5, "--json"))
    check(f"sptnet edit {CHANGES}", counted)
    assert (counted["edits"], counted["n_new"]) == ([{"verb": "count", "n_categories": 5}], 3)
    assert [value["edits"] for value in printed] == [[edit] for _, edit in commands]
    assert [value["undone"] for value in printed if value["undone"]] == [{"verb": "confirm", "targets": ["dog"]}]
    assert (printed[0]["n_known"], printed[0]["n_new"], printed[1]["n_new"]) == (2, 2, 1)
    skipped = only_object(call("edit", run, "apply", file, "--json"))
    assert (skipped["edits"], skipped["skipped"]) == ([], 1)
    log = only_object(call("edit", run, "log", "--json"))
    check("sptnet edit log", log)
    assert log["edits"] == json.loads(json.dumps([{"at": at, **as_dict(edit)} for at, edit in read_log(run)]))
    listed = only_object(call("edit", run, "list", "--json"))
    check("sptnet edit list", listed)
    assert (listed["images"], listed["dropped"]) == (7, 1)


def test_an_edit_writes_the_page_or_says_that_it_is_older(run: Path, call: Call) -> None:
    page = str(run / "report.html")
    assert only_object(call("report", run, "--no-model-pictures", "--json"))["page"] == page
    answer = call("edit", run, "rename", "new-1", "eel", "--json")
    assert only_object(answer)["older_page"] == page and "is older than the edits" in answer.err
    renewed = only_object(call("edit", run, "rename", "eel", "otter", "--report", "--json"))
    assert (renewed["page"], renewed["older_page"]) == (page, None)
    assert call("edit", run, "undo", "--report").out.splitlines()[1:] == [f"wrote {page}"]


def test_names_that_are_no_text(tmp_path: Path, call: Call) -> None:
    result = small_result()
    ids = (*result.ids[:6], "unlabelled/\udcfe\x7f\x1b[1m.png", result.ids[7])
    run = make_run(tmp_path, RunResult(**{**vars(result), "names": HOSTILE, "ids": ids}))
    listed = only_object(call("edit", run, "list", "--json"))
    assert tuple(category["name"] for category in listed["categories"]) == HOSTILE
    assert ids[6] in listed["categories"][2]["representatives"]
    add_edits(run, [Rename(HOSTILE[1], "y")])
    assert only_object(call("edit", run, "log", "--json"))["edits"][0]["category"] == HOSTILE[1]


def test_export(run: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("edit", run, "drop", "cat/b.png").code == 0
    to = tmp_path / "out.csv"
    printed = only_object(call("export", run, "--as", "csv", "--to", to, "--json"))
    wanted = {"run": str(run), "form": "csv", "to": str(to), "categories": 3, "images": 7, "dropped": 1}
    assert printed == wanted
    card = SimpleNamespace(categories=("a", "b"))
    monkeypatch.setattr("sptnet.inference.export_model.export_model", lambda *a: card)
    model = only_object(call("export", run, "--as", "onnx", "--to", tmp_path / "m.onnx", "--json"))
    assert (model["categories"], model["images"], model["dropped"]) == (2, None, None)
    check("sptnet export", printed, model)


def test_report_and_figures(run: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    answer = call("report", run, "--no-model-pictures", "--open", "--json")
    written = only_object(answer)
    assert "no browser was found. Open the page by hand." in answer.err
    assert written == {"run": str(run), "page": f"{run}/report.html", "bytes": (run / "report.html").stat().st_size}
    check("sptnet report", written)
    drawn = Written([Path("figures/tsne.png")], ["give `overwrite=True`"])
    monkeypatch.setattr("sptnet.report.figures.write.write_figures", lambda *a: drawn)
    figures = only_object(call("figures", run, "--device", "cpu", "--json"))
    assert figures == {"files": ["figures/tsne.png"], "left_out": ["give --overwrite"]}
    check("sptnet figures", figures)


def test_import(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    built = random_model(n_categories=3), PromptSettings(kind="none")
    monkeypatch.setattr("sptnet.model.published.read_published", lambda file: SimpleNamespace(kind="simgcd"))
    monkeypatch.setattr("sptnet.model.published.build_published", lambda *a: built)
    out = tmp_path / "my model"
    printed = only_object(call("import", "m.pt", "--out", out, "--known", 1, "--json"))
    assert (printed["categories"], printed["n_known"], printed["kind"]) == (["known-1", "new-1", "new-2"], 1, "simgcd")
    assert printed["next"][0] == f"sptnet predict '{out}' IMAGES"
    check("sptnet import", printed)


def test_data(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = only_object(call("data", "--json"))
    assert [entry["name"] for entry in listed["benchmarks"]] == list(BENCHMARKS)
    assert {type(entry["download"]) for entry in listed["benchmarks"]} == {bool}
    check("sptnet data", listed)
    split = tmp_path / "split.json"
    plain = only_object(call("data", "digits", "--split-out", split, "--json"))
    assert (plain["split"], split.is_file(), plain["counts"][0]["expected"]) == (str(split), True, None)
    rows = [CountRow("  test a", 3, exactly(3))]
    monkeypatch.setattr("sptnet.data.benchmarks.counts.count_rows", lambda *a: rows)
    expected = only_object(call("data", "digits", "--json"))
    assert expected["counts"] == [{"what": "test a", "found": 3, "expected": {"value": 3, "rounded_to": 1}}]
    check("sptnet data NAME", plain, expected)


def test_demo(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [DemoRow("k-means", 0.5, 0.75, float("nan"), 2.5, 0)]
    page = tmp_path / "sptnet" / "report.html"
    monkeypatch.setattr("sptnet.discovery.demo.run_demo", lambda *a: iter(rows))
    monkeypatch.setattr("sptnet.report.page.write.write_report", lambda run: SimpleNamespace(page=page))
    answer = call("demo", "--out", tmp_path, "--json")
    printed = only_object(answer)
    assert "k-means: All 50.0" in answer.err
    assert (printed["page"], printed["methods"][0]["old"], printed["methods"][0]["new"]) == (str(page), 0.75, None)
    check("sptnet demo", printed)


def test_recipes(tmp_path: Path, call: Call) -> None:
    listed = only_object(call("recipes", "list", "--json"))
    check("sptnet recipes list", listed)
    shown = only_object(call("recipes", "show", "cub/sptnet", "--json"))
    full = only_object(call("recipes", "show", "cub/sptnet", "--full", "--json"))
    assert shown["text"] == call("recipes", "show", "cub/sptnet").out
    assert shown["settings"]["data"]["source"] == full["settings"]["data"]["source"] == "cub"
    assert len(full["settings"]) > len(shown["settings"])
    check("sptnet recipes show", shown, full)
    copied = only_object(call("recipes", "copy", "digits", tmp_path / "my.toml", "--json"))
    assert copied["file"] == str(tmp_path / "my.toml") and (tmp_path / "my.toml").is_file()
    check("sptnet recipes copy", copied)


def test_values_that_are_no_json_are_refused() -> None:
    with pytest.raises(TypeError, match="float32 is not JSON"):
        show_json({"a": np.float32(1)})


# --- errors -----------------------------------------------------------------------------------------------------------

WRONG: dict[str, Callable[[Path, Path], list[object]]] = {
    "demo": lambda missing, run: ["--out", run],
    "discover": lambda missing, run: [missing],
    "check": lambda missing, run: [missing],
    "train": lambda missing, run: ["sptnet", "--data", missing, "--out", missing / "out"],
    "estimate": lambda missing, run: ["--data", missing],
    "evaluate": lambda missing, run: [missing],
    "predict": lambda missing, run: [missing, run],
    "edit rename": lambda missing, run: ["cat", "lynx"],
    "edit merge": lambda missing, run: ["cat", "--into", "dog"],
    "edit split": lambda missing, run: ["cat"],
    "edit move": lambda missing, run: ["cat/a.png", "--to", "dog"],
    "edit drop": lambda missing, run: ["cat/a.png"],
    "edit confirm": lambda missing, run: ["cat"],
    "edit count": lambda missing, run: [3],
    "edit undo": lambda missing, run: [],
    "edit apply": lambda missing, run: [missing],
    "edit list": lambda missing, run: [],
    "edit log": lambda missing, run: [],
    "export": lambda missing, run: [missing, "--as", "csv", "--to", missing / "out.csv"],
    "report": lambda missing, run: [missing],
    "figures": lambda missing, run: [missing],
    "import": lambda missing, run: [missing, "--out", missing / "model"],
    "data": lambda missing, run: ["cub", "--data", missing],
    "recipes list": lambda missing, run: [missing],
    "recipes show": lambda missing, run: [missing],
    "recipes copy": lambda missing, run: [missing, missing / "my.toml"],
}
"""Arguments with a wrong path, by command; the run of `edit` is missing."""


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_path_is_one_line_on_stderr(name: str, as_json: bool, run: Path, tmp_path: Path, call: Call) -> None:
    missing = tmp_path / "missing"
    before = sorted(tmp_path.rglob("*"))
    verb, *inner = name.split()
    words = [verb, *([missing] if verb == "edit" else []), *inner, *WRONG[name](missing, run)]
    answer = call(*words, *(["--json"] if as_json else []))
    assert answer.code in (1, 2)
    assert answer.out == ""
    assert answer.err.startswith("error: ") and len(answer.err.splitlines()) == 1
    assert str(missing)[:60] in answer.err or str(run) in answer.err  # long names are cut
    assert sorted(tmp_path.rglob("*")) == before
