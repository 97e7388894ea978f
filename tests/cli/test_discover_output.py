"""The printed result of a discovery, and the number of labels to check."""

from dataclasses import replace
from pathlib import Path

import pytest

from conftest import Call
from helpers.report_runs import assessed_run
from sptnet.cli.discover_output import next_commands, print_result
from sptnet.report.page.write import read_for_report, write_report
from sptnet.results.expected_accuracy import ExpectedAccuracy
from sptnet.runtime.text import shell_line

EXPECTED = ExpectedAccuracy(0.62, 0.55, 0.7, {"cat": 0.9})
TO_CHECK = "labels to check: 2 (the model contradicts them; the report shows the images)"


def printed(run: Path, page: bool, capsys: pytest.CaptureFixture[str]) -> list[str]:
    report = write_report(run, tell=lambda message: None, model_pictures=False) if page else read_for_report(run)
    print_result(run, report)
    return capsys.readouterr().out.splitlines()


def test_the_expectation_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = assessed_run(tmp_path, EXPECTED)
    sentence = "About 62 % (55 to 70) of the 35 unsorted images should be right"
    lines = printed(run, True, capsys)
    place = lines.index(f"{sentence}; the report shows the 35 least sure.")
    assert lines[place + 1 : place + 4] == [
        "found: 40 images, 3 known categories, 2 new, 10 doubtful",
        TO_CHECK,
        f"report: {run / 'report.html'}",
    ]
    assert f"{sentence}." in printed(run, False, capsys)


def test_the_reason_is_printed_if_there_is_no_expectation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = assessed_run(tmp_path, None, "there are too few labels.")
    wanted = "How many of the 35 unsorted images are right is not known: there are too few labels."
    assert wanted in printed(run, False, capsys)


def test_the_list_of_categories_counts_labels_to_check(tmp_path: Path, call: Call) -> None:
    run = assessed_run(tmp_path, EXPECTED)
    answer = call("edit", run, "list")
    assert (answer.code, answer.out.splitlines()[-1]) == (0, TO_CHECK)
    for image in ("</script>.png", "<script>window.hacked=1</script>.png", "<img src=x onerror=window.hacked=1>.png"):
        assert call("edit", run, "drop", image).code == 0
    assert "labels to check" not in call("edit", run, "list").out


def test_without_a_page_the_labels_to_check_are_those_of_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(assessed_run(tmp_path, EXPECTED), False, capsys)
    assert (
        "labels to check: 2 (the model contradicts them; `guess` differs from `category` in predictions.csv)" in lines
    )
    assert not [line for line in lines if "the report shows" in line]


def test_a_new_category_is_offered_for_renaming_and_a_known_one_is_not(tmp_path: Path) -> None:
    run = assessed_run(tmp_path, EXPECTED)
    report = read_for_report(run)
    new = next(category.name for category in report.categories if category.is_new and category.size)
    commands = next_commands(run, report)
    assert commands[0] == shell_line(["sptnet", "edit", str(run), "rename", new, "NAME"])
    known = replace(report, categories=[category for category in report.categories if not category.is_new])
    assert next_commands(run, known) == commands[1:]
