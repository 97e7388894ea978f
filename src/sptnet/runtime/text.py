"""Names and numbers in messages, safe to print and short enough to read."""

from collections.abc import Sequence


def printable(name: str) -> str:
    """The name as it can be shown on one line of any terminal."""
    return name if name.isprintable() else ascii(name)


def first_three(items: Sequence[str]) -> str:
    return ", ".join(items[:3]) + (", ..." if len(items) > 3 else "")


def count(items: Sequence[object], noun: str) -> str:
    return f"{len(items)} {noun}" + ("" if len(items) == 1 else "s")


def listed(names: Sequence[str], most: int = 10) -> str:
    shown = ", ".join(printable(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def sentence(text: str) -> str:
    """With a capital at its beginning."""
    return text[:1].upper() + text[1:]
