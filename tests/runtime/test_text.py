"""Names in messages, commands and cells."""

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sptnet.runtime.text import for_spreadsheet, from_spreadsheet, shell_line, shell_word, visible

HOSTILE = (
    "\x1b[31mred",
    "\x1b]8;;http://x\x07link",
    "two\nlines",
    "back\rover",
    "tab\t",
    "\x85",
    "\u2028",
    "\u2029",
    *"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c",
    "\x9b31m",
    "\x7f",
    "not utf-8 \udcff",
    "half \ud800",
    "\ufeff",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_control_characters_become_visible(name: str) -> None:
    shown = visible(f"a {name} b")
    assert shown.isprintable()
    assert shown == f"a {ascii(name)[1:-1]} b"


@pytest.mark.parametrize(
    "name", ["plain", "né 漢字 🦊", "👩\u200d👩\u200d👧", "漢\u200c字", "wide\u3000space", "back\\slash", "'\""]
)
def test_other_text_stays(name: str) -> None:
    assert visible(name) == name


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_the_result_is_one_line_of_text(text: str) -> None:
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in shown)
    assert visible(shown) == shown


def test_words_of_a_command_are_quoted_as_ever() -> None:
    assert shell_line(["sptnet", "edit", "my run", "it's", "x"]) == "sptnet edit 'my run' 'it'\"'\"'s' x"


@pytest.mark.parametrize("word", [*(name for name in HOSTILE if "\ud800" not in name), "\x1b1'\\\n9$(x)`x`", "$HOME"])
def test_a_shell_reads_the_word_back(word: str) -> None:
    quoted = shell_word(word)
    assert visible(quoted) == quoted
    echoed = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True).stdout
    assert echoed == os.fsencode(word)


def test_half_a_character_can_be_quoted() -> None:
    assert shell_word("\ud800") == "$'\\355\\240\\200'"


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+x", "'+x"),
        ("-x", "'-x"),
        ("@x", "'@x"),
        ("\tx", "'\tx"),
        ("\r=x", "'\r=x"),
        ("'=x", "''=x"),
        ("'quoted'", "'quoted'"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_formulas_get_an_apostrophe(name: str, cell: str) -> None:
    assert for_spreadsheet(name) == cell
    assert from_spreadsheet(cell) == name


@given(st.text(st.sampled_from("'=+-@\t\r\nab")))
def test_cells_are_no_formula_and_give_the_name_back(name: str) -> None:
    cell = for_spreadsheet(name)
    assert not cell.startswith(tuple("=+-@\t\r\n"))
    assert from_spreadsheet(cell) == name
