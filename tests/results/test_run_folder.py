"""The run directory: its marker, what may be deleted, kills while it is created or replaced, and its lock."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.kills import kill_everywhere
from sptnet.config import Config
from sptnet.config.recipes import load_recipe, to_toml
from sptnet.errors import Failure, Misuse
from sptnet.results.run_content import LOCK, MARKER, MARKER_TEXT
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.locks import Locked

WRITTEN = Path(__file__).parents[1] / "fixtures" / "v0.1.0"
FACTS = {"status": "finished", "versions": {"sptnet": "0.1.0"}, "data": {"fingerprint": "0"}}


@pytest.fixture(scope="module")
def config() -> Config:
    return load_recipe("digits")


def tree(folder: Path) -> dict[str, bytes | None]:
    """Contents of all files below a folder, to check that they stay the same."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def full_run(path: Path, config: Config, marked: bool = True) -> RunFolder:
    """A run with some of every kind of file."""
    run = RunFolder(path)
    run.create(config, files={"labels.csv": "path,label\n"})
    run.write_facts(FACTS)
    run.add_metrics({"stage_number": 0, "epoch": 1})
    for name in (
        *("model/model.json", "model/model.safetensors", "model-simgcd/model.json", "best-simgcd/model.json"),
        *("checkpoints/stage0-epoch00001.safetensors", "checkpoints/best-stage0.safetensors"),
        *("categories/000-cat.png", "counts/4.safetensors"),
        *("tokens/tokens.bin", "predictions.csv", "features.safetensors", "report.html"),
    ):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("x")
    if not marked:
        (path / MARKER).unlink()
    return run


def refusal(run: RunFolder, overwrite: bool = True) -> str:
    """The message about a folder that is not replaced, which stays as it is."""
    before = tree(run.path)
    with pytest.raises(Misuse) as error:
        run.check_new(overwrite)
    with pytest.raises(Misuse):
        run.create(load_recipe("digits"), overwrite)
    assert tree(run.path) == before
    return str(error.value)


# what is ours


def test_the_marker_is_the_first_file_of_a_run(tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def write(path: Path, text: str) -> None:
        written.append(path.name)
        path.write_text(text)

    monkeypatch.setattr("sptnet.results.run_folder.write_text_atomically", write)
    RunFolder(tmp_path / "run").create(config, files={"labels.csv": ""})
    assert written == [MARKER, "labels.csv", "config.toml"]


@pytest.mark.parametrize("text", ["", "# settings\n", 'method = "simgcd"\n'])
def test_a_folder_is_no_run_just_because_its_config_file_can_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    (tmp_path / "model-cars").mkdir()
    (tmp_path / "model-cars" / "beetle.png").write_text("mine")
    assert refusal(RunFolder(tmp_path)) == (
        f"{tmp_path} holds other files than a run, such as config.toml, which sptnet never deletes. Give another `out`."
    )


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        *("model-cars/beetle.png", "config.toml.bak", "notes.txt", "model.zip", "edits.jsonl.part", ".hidden"),
        *("checkpoints/notes.txt", "model/notes.txt", "categories/holiday/me.png", "counts/mine.safetensors"),
    ],
)
def test_anything_foreign_in_a_run_is_named_and_kept(tmp_path: Path, config: Config, name: str, marked: bool) -> None:
    run = full_run(tmp_path / "run", config, marked)
    run.check_new(overwrite=True)
    (run.path / name).parent.mkdir(exist_ok=True)
    (run.path / name).write_text("mine")
    named = name if name.split("/")[0] in ("checkpoints", "model", "counts") else name.split("/")[0]
    named = "categories/holiday" if "holiday" in name else named
    assert f"such as {named}, which sptnet never deletes" in refusal(run)


def test_runs_of_the_first_version_have_no_marker_and_are_replaced(tmp_path: Path, config: Config) -> None:
    shutil.copytree(WRITTEN / "stopped", tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    with pytest.raises(Misuse, match=r"is not empty\. Go on with `resume=True`, replace it with `overwrite=True`"):
        run.check_new()
    run.create(config, overwrite=True)
    assert names_in(run.path) == [MARKER, "config.toml"]


@pytest.mark.parametrize("spoil", ["no facts", "facts of another", "facts damaged", "settings of another"])
def test_without_a_marker_settings_and_facts_must_be_those_of_a_run(tmp_path: Path, config: Config, spoil: str) -> None:
    run = full_run(tmp_path / "run", config, marked=False)
    if spoil == "no facts":
        run.facts_file.unlink()
    elif spoil == "facts of another":
        run.facts_file.write_text(json.dumps({"status": "ok"}))
    elif spoil == "facts damaged":
        run.facts_file.write_text("[" * 100_000)
    else:
        run.config_file.write_text(to_toml(config) + "\n[site]\ntitle = 'mine'\n")
    assert "other files than a run" in refusal(run)


@pytest.mark.parametrize("text", ["", "mine\n", MARKER_TEXT + "and more\n"])
def test_another_text_is_no_marker(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    (tmp_path / "model").mkdir()
    assert f"such as {MARKER}, which" in refusal(RunFolder(tmp_path))


def test_a_link_to_a_marker_is_no_marker(tmp_path: Path, config: Config) -> None:
    run = full_run(tmp_path / "run", config)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / MARKER).symlink_to(run.path / MARKER)
    (tmp_path / "mine" / "model").mkdir()
    assert "other files than a run" in refusal(RunFolder(tmp_path / "mine"))


def test_of_linked_folders_and_files_only_the_links_are_deleted(tmp_path: Path, config: Config) -> None:
    run = full_run(tmp_path / "run", config)
    theirs = tmp_path / "big disk"
    theirs.mkdir()
    (theirs / "photo.png").write_text("mine")
    for name in ("tokens", "checkpoints", "model"):
        shutil.rmtree(run.path / name)
        (run.path / name).symlink_to(theirs)
    run.predictions_file.unlink()
    run.predictions_file.symlink_to(theirs / "photo.png")
    run.config_file.rename(theirs / "config.toml")
    run.config_file.symlink_to(theirs / "config.toml")
    run.create(config, overwrite=True)
    assert names_in(run.path) == [MARKER, "config.toml"]
    assert names_in(theirs) == ["config.toml", "photo.png"]
    assert (theirs / "photo.png").read_text() == "mine"
    assert not run.config_file.is_symlink()


# kills


def test_killed_while_it_is_created(tmp_path: Path, config: Config) -> None:
    def prepare(number: int) -> Callable[[], None]:
        def work() -> None:
            run = RunFolder(tmp_path / str(number))
            run.check_new()
            with run.lock():
                run.create(config, files={"labels.csv": "path,label\n"})

        return work

    begun = 0
    for number in kill_everywhere(prepare):
        run = RunFolder(tmp_path / str(number))
        begun += run.is_run
        if run.is_run:
            assert run.config() == config
            with pytest.raises(Misuse, match="is not empty"):
                run.check_new()
        elif (run.path / MARKER).exists():
            with pytest.raises(Misuse, match=r"was stopped before its settings were written\. Begin it again with"):
                run.config()
            if not (run.path / "labels.csv").exists():
                run.check_new()
        run.check_new(overwrite=True)
        with run.lock():
            run.create(config, overwrite=True)
        assert names_in(run.path) == [MARKER, "config.toml"]
    assert 0 < begun < number


@pytest.mark.parametrize("marked", [True, False])
def test_killed_while_it_is_replaced(tmp_path: Path, config: Config, marked: bool) -> None:
    other, template = config.model_copy(update={"seed": 7}), full_run(tmp_path / "template", config, marked)
    settings = {to_toml(config): "old", to_toml(other): "new", "": "none"}

    def prepare(number: int) -> Callable[[], None]:
        run = RunFolder(shutil.copytree(template.path, tmp_path / str(number)))

        def work() -> None:
            with run.lock():
                run.create(other, overwrite=True)

        return work

    seen = set()
    for number in kill_everywhere(prepare, step=1 if marked else 4):
        run = RunFolder(tmp_path / str(number))
        state = settings[run.config_file.read_text() if run.is_run else ""]
        seen.add(state)
        if state == "old":  # the settings go first, so that nobody resumes half of a run
            assert set(names_in(run.path)) >= set(names_in(template.path))
        with run.lock():
            run.create(other, overwrite=True)
        assert names_in(run.path) == [MARKER, "config.toml"]
    assert seen == {"old", "none", "new"}


def test_a_folder_without_settings_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(Misuse, match=r"is not a run: its config\.toml is empty\. Give the folder of a run"):
        RunFolder(tmp_path).config()
    (tmp_path / "config.toml").unlink()
    with pytest.raises(Misuse, match=r"is not a run: it has no config\.toml\. Give the folder of a run"):
        RunFolder(tmp_path).config()


@pytest.mark.parametrize("state", ["old", "part", "both", "only old", "old and part"])
@pytest.mark.parametrize("name", ["model", "model-simgcd", "best-sptnet"])
def test_models_that_the_first_version_left_half_replaced(
    tmp_path: Path, config: Config, name: str, state: str
) -> None:
    run = full_run(tmp_path / "run", config, marked=False)
    model = run.path / name
    for end in ("", ".old", ".part"):
        model.with_name(name + end).mkdir(exist_ok=True)
        (model.with_name(name + end) / "model.json").write_text(end)
    for end in {"old": [".part"], "part": [".old"], "both": [], "only old": ["", ".part"], "old and part": [""]}[state]:
        shutil.rmtree(model.with_name(name + end))
    run.recover()
    assert [entry for entry in names_in(run.path) if entry.startswith(name)][:1] == [name]
    assert (model / "model.json").read_text() == (".old" if state in ("only old", "old and part") else "")
    assert not model.with_name(f"{name}.old").exists() and not model.with_name(f"{name}.part").exists()


def test_recovering_removes_own_left_overs_and_nothing_else(tmp_path: Path, config: Config) -> None:
    run = full_run(tmp_path / "run", config, marked=False)
    before = tree(run.path)
    for name in (
        *("config.toml.part", "metrics.jsonl.part", "checkpoints/stage0-epoch00002.safetensors.part"),
        *(".report.html.sptnet-0123456789abcdef.part", "checkpoints/.stage0.sptnet-0123456789abcdef.part"),
    ):
        if "sptnet-" in name:
            (run.path / name).mkdir()
        else:
            (run.path / name).write_text("half")
    mine = {"notes.part": b"mine", "model.old": None, "model.old/holiday.png": b"mine"}
    (run.path / "model.old").mkdir()
    for name in ("notes.part", "model.old/holiday.png"):
        (run.path / name).write_text("mine")
    run.recover()
    assert tree(run.path) == before | mine | {MARKER: MARKER_TEXT.encode()}


# the lock


def test_a_run_that_is_being_written_is_neither_replaced_nor_locked_again(tmp_path: Path, config: Config) -> None:
    run = full_run(tmp_path / "run", config)
    with run.lock():
        before = tree(run.path)
        for attempt in (lambda: run.check_new(overwrite=True), run.check_free, lambda: run.lock().__enter__()):
            with pytest.raises(Locked, match=rf"^the run {run.path} is being written by process \d+ on .* since "):
                attempt()
        assert tree(run.path) == before
    assert not (run.path / LOCK).exists()
    run.check_new(overwrite=True)


# how it ended


def test_run_json_says_how_a_run_ended(tmp_path: Path, config: Config) -> None:
    run = RunFolder(tmp_path / "run")
    run.create(config)
    run.write_end("failed", "early")
    assert run.facts() == {}, "it had not begun"
    run.write_facts({"status": "running", "seed": 1})
    run.write_end("failed", "no space left")
    assert run.facts() == {"status": "failed", "seed": 1, "reason": "no space left"}
    run.write_facts({"status": "finished"})
    run.write_end("stopped")
    assert run.facts() == {"status": "finished"}
    run.facts_file.write_text("{")
    with pytest.raises(Failure, match=r"run\.json is damaged"):
        run.write_end("stopped")
