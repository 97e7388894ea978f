"""Formatting of names, counts and commands in messages."""

import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence

# Control characters of terminals, of line breaks and of writing direction, and halves of characters, as in names that
# are not valid UTF-8. Not those that join emoji and letters.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = frozenset("\u200c\u200d")
# Beginnings of cells that spreadsheets take for a formula. Apostrophes before them are doubled too, so that
# `from_spreadsheet` is exact.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")


def printable(name: str) -> str:
    """Return the name, escaped if it has characters that cannot be printed on one line."""
    return name if name.isprintable() else ascii(name)


def visible(text: str) -> str:
    r"""Return the text on one line, with every control character escaped, such as \x1b or \n."""
    return text if text.isprintable() else "".join(ascii(c)[1:-1] if _is_hidden(c) else c for c in text)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN and character not in _JOINERS


def shell_line(words: Iterable[str]) -> str:
    """Return a command line that can be pasted into a shell; control characters are escaped."""
    return " ".join(map(shell_word, words))


def shell_word(word: str) -> str:
    r"""Quote a word for the shell if needed; words with control characters as $'\033', which bash, zsh and ksh read."""
    if not any(map(_is_hidden, word)):
        return shlex.quote(word)
    return "$'" + "".join(_ansi_c(character) for character in word) + "'"


def _ansi_c(character: str) -> str:
    if character in "\\'":
        return "\\" + character
    if not _is_hidden(character):
        return character
    raw = "\udc80" <= character <= "\udcff"  # a byte of a file name that is not valid UTF-8
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape" if raw else "surrogatepass"))


def for_spreadsheet(name: str) -> str:
    """Return the cell for a name in a table for people: a leading apostrophe if it would be read as a formula."""
    return "'" + name if _FORMULA.match(name) else name


def from_spreadsheet(cell: str) -> str:
    """Return the name that `for_spreadsheet` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def first_three(items: Sequence[str]) -> str:
    """Join the first three items with commas, and say how many more there are."""
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")


def count(items: Sequence[object], noun: str) -> str:
    """Return the number of items with the noun in singular or plural, such as 2 rows."""
    return f"{len(items)} {noun}" + ("" if len(items) == 1 else "s")


def listed(names: Sequence[str], most: int = 10) -> str:
    """Join at most `most` printable names with commas and count the rest."""
    shown = ", ".join(printable(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def sentence(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]
