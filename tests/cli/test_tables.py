"""Tables print every text verbatim."""

import pytest

from sptnet.cli.tables import print_table


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
