"""Control characters in names are escaped wherever a command prints; no encoding of the output makes it fail."""

import ast
import csv
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import sptnet
from conftest import Call, random_model
from helpers.result_runs import make_run, small_result
from sptnet.cli.discover_output import print_result
from sptnet.cli.output import show_csv, show_line, show_text
from sptnet.cli.tables import print_table
from sptnet.config import PromptSettings
from sptnet.model.model_folder import ModelCard, save_model
from sptnet.report.page.write import read_for_report
from sptnet.results.run_result import RunResult
from sptnet.runtime import progress

SOURCE = Path(sptnet.__file__).parent
EVIL = "\x1b[31m\u202e\nred\x9b.png"
SHOWN = "\\x1b[31m\\u202e\\nred\\x9b.png"
PRINTERS = {"cli/output.py", "cli/tables.py", "runtime/progress.py"}


def is_harmless(text: str) -> bool:
    return not any(c in text for c in "\x1b\x9b\u202e\r")


# --- one boundary -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_only_the_boundary_prints(file: Path) -> None:
    """Other modules call it, so that no name can reach the terminal as it is."""
    calls = [node.func for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    names = {ast.unparse(function) for function in calls}
    printing = {name for name in names if name in ("print", "Console", "typer.echo", "typer.secho")}
    printing |= {name for name in names if name.startswith(("sys.stdout.w", "sys.stderr.w"))}
    assert not printing or file.relative_to(SOURCE).as_posix() in PRINTERS


def test_lines_tables_and_messages_are_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show_line(EVIL)
    show_text(f"a\n\tb {EVIL}\n")
    print_table(f"title {EVIL}", [f"column {EVIL}"], [[EVIL]])
    show_csv(f'image,n\r\n"{EVIL}",1\r\n')
    out = capsys.readouterr().out
    assert is_harmless(out.replace("\r\n", "\n"))
    lines = out.splitlines()
    assert lines[:3] == [SHOWN, "a", "\tb \\x1b[31m\\u202e"]
    assert lines[3] == "red\\x9b.png"
    assert lines[4].rstrip() == f"title {SHOWN}"
    assert lines[-2:] == ["image,n", f"{SHOWN},1"]
    stream = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=stream, soft_wrap=True))
    progress.say(f"skipped {EVIL} :cat:")
    assert stream.getvalue() == f"skipped {SHOWN} :cat:\n"


def test_progress_bars_are_escaped_and_keep_their_own_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=stream, force_terminal=True, width=200))
    with progress.bar(f"[red]{EVIL}", 2) as update:
        update(1, f"note {EVIL}")
    text = stream.getvalue()
    assert f"[red]{SHOWN}" in text and f"note {SHOWN}" in text
    assert "\x1b[31m\u202e" not in text and "\x1b[" in text


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "m"
    prompt = PromptSettings(kind="none")
    save_model(folder, random_model(n_categories=2), ModelCard(("\x1b[1mcat", "=dog"), 1, prompt, 0.875))
    return folder


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for i, name in enumerate((EVIL, os.fsdecode(b"not utf-8 \xff.png"), "né.png", "plain.png")):
        Image.fromarray(np.full((8, 8), 40 * i, np.uint8)).save(folder / name)
    return folder


def test_predict_on_stdout(model: Path, images: Path, call: Call) -> None:
    answer = call("predict", model, images, "--device", "cpu")
    assert answer.code == 0
    assert is_harmless(answer.out.replace("\r\n", "\n"))
    rows = list(csv.reader(answer.out.splitlines()))
    shown = ["né.png", "not utf-8 \\udcff.png", "plain.png", SHOWN]
    assert sorted(row[0] for row in rows[1:]) == sorted(f"{images}/{name}" for name in shown)
    assert {row[1] for row in rows[1:]} <= {"\\x1b[1mcat", "'=dog"}


def test_a_table_in_a_file_has_the_names_as_they_are(model: Path, images: Path, tmp_path: Path, call: Call) -> None:
    answer = call("predict", model, images, "--out", tmp_path / "table.csv", "--device", "cpu")
    assert answer.code == 0
    with (tmp_path / "table.csv").open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
        names = [row["image"] for row in csv.DictReader(stream)]
    assert sorted(names) == sorted(str(path) for path in images.iterdir())


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_no_encoding_of_the_terminal_makes_a_command_fail(
    model: Path, images: Path, tmp_path: Path, command: Callable[..., Any], encoding: str
) -> None:
    (images / "bad \udcff né.png").write_bytes(b"")

    def strict() -> None:
        for name, number in (("stdout", 1), ("stderr", 2)):
            stream = open(number, "w", buffering=1, encoding=encoding, errors="strict", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)

    words = ["predict", str(model), str(images), "--device", "cpu", "--max-unreadable", "1"]
    process = command(words, strict)
    assert process.wait() == 0
    out = process.output.read_text(encoding=encoding)
    assert out.count("not utf-8 \\udcff.png") == 1
    assert "bad \\udcff n" in out
    assert ("n\\xe9.png" if encoding == "ascii" else "né.png") in out


def test_a_stream_that_is_ascii_from_the_start() -> None:
    program = "from sptnet.cli.output import *; prepare_streams(); show_line('né \\udcff'); show_error('né \\udcff')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
    assert answer.stdout == answer.stderr == b"n\\xe9 \\udcff\n"


@pytest.mark.parametrize("words", [("predict",), ("edit", "x", EVIL), (EVIL,), ("check", "a", EVIL), (f"--{EVIL}",)])
def test_usage_errors_quote_arguments_harmlessly(words: tuple[str, ...], call: Call) -> None:
    answer = call(*words)
    assert answer.code == 2
    assert is_harmless(answer.err) and is_harmless(answer.out)


@pytest.mark.parametrize("words", [("check", EVIL), ("edit", EVIL, "list"), ("predict", EVIL, EVIL), ("train", EVIL)])
def test_errors_quote_arguments_harmlessly(words: tuple[str, ...], call: Call) -> None:
    answer = call(*words)
    assert answer.code in (1, 2)
    assert is_harmless(answer.err) and len(answer.err.splitlines()) == 1
    assert "error: " in answer.err and "\\x1b[31m" in answer.err


def test_the_loss_that_is_not_finite(
    tmp_path: Path, digit_folder: Path, tiny_settings: list[str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the images of the batch."""
    from sptnet.training import trainer

    data = tmp_path / "data"
    for file in digit_folder.rglob("*.png"):
        link = data / file.parent.name / f"{file.stem}{EVIL}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)

    stop = trainer.stop_at_bad_loss
    monkeypatch.setattr(trainer, "stop_at_bad_loss", lambda parts, *at: stop({**parts, "total": float("nan")}, *at))
    settings = [word for setting in [*tiny_settings, "data.source=folder"] for word in ("--set", setting)]
    answer = call("train", "digits", "--data", data, "--out", tmp_path / "run", *settings)
    assert answer.code == 1
    assert is_harmless(answer.err)
    assert "error: the loss is not finite" in answer.err and SHOWN in answer.err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"


# --- commands to paste ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["\x1b[31mred\n", "it's", "-x", "$(touch hacked)", "a b", "\u202etxt"])
def test_the_next_commands_can_be_pasted(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = small_result()
    hostile = RunResult(**{**vars(result), "names": (*result.names[:2], name, "new-2")})
    run = make_run(tmp_path / "my \x1b run", hostile)
    print_result(run, read_for_report(run))
    lines = capsys.readouterr().out.splitlines()
    commands = lines[lines.index("next:") + 1 :]
    assert len(commands) == 4 and all(is_harmless(line) for line in lines)
    program = f"sptnet() {{ printf '%s\\0' \"$@\"; }}; {commands[0]}"
    said = subprocess.run(["bash", "-c", program], capture_output=True, check=True, cwd=tmp_path).stdout
    words = [os.fsdecode(word) for word in said.split(b"\0")[:-1]]
    assert words == ["edit", str(run), "rename", *(["--"] if name == "-x" else []), name, "NAME"]
    assert not (tmp_path / "hacked").exists()


def test_a_category_that_looks_like_an_option_can_be_renamed(tmp_path: Path, call: Call) -> None:
    result = small_result()
    run = make_run(tmp_path, RunResult(**{**vars(result), "names": (*result.names[:2], "-x", "new-2")}))
    command = f"sptnet edit {shlex.quote(str(run))} rename -- -x otter"
    answer = call(*shlex.split(command)[1:])
    assert (answer.code, answer.err) == (0, "")
