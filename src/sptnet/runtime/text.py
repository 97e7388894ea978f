"""Formatting of names and counts in messages."""

from collections.abc import Sequence


def printable(name: str) -> str:
    """Return the name, escaped if it has characters that cannot be printed on one line."""
    return name if name.isprintable() else ascii(name)


def first_three(items: Sequence[str]) -> str:
    """Join the first three items with commas, "..." for more."""
    return ", ".join(items[:3]) + (", ..." if len(items) > 3 else "")


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
