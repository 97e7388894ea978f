"""Tables print every text verbatim."""

import pytest

from helpers.result_runs import small_result
from sptnet.cli.tables import CATEGORY_COLUMNS, category_rows, print_table
from sptnet.results.categories import describe_categories


@pytest.mark.parametrize("name", ["[bold]x", "[/]", "[red]a[/red]", "\\[b]", ":cat:", "[link=a]b", "end\\"])
def test_names_that_look_like_markup_are_printed_verbatim(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(f"title {name}", [f"column {name}", "n"], [[name, "1"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].rstrip() == f"title {name}"
    cells = [[cell.strip() for cell in line.strip("┃│").replace("┃", "│").split("│")] for line in (lines[2], lines[4])]
    assert cells == [[f"column {name}", "n"], [name, "1"]]


def test_the_first_columns_are_left_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("t", ["aaaa", "bbbb", "cccc"], [["1", "2", "3"]], lefts=2)
    assert "│ 1    │ 2    │    3 │" in capsys.readouterr().out


def test_rows_of_the_table_as_text() -> None:
    rows = category_rows(describe_categories(small_result()))
    assert len(CATEGORY_COLUMNS) == len(rows[0]) == 7
    assert rows[0][:5] == ["cat", "dog", "no", "3", "0.70"]
    assert rows[1] == ["dog", "cat", "no", "1", "0.90", "1.00", "0"]
    assert rows[3] == ["new-2", "-", "yes", "0", "-", "-", "0"]
