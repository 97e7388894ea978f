"""Hostile names of files and categories, and a folder of images that bear them."""

import os
import random as standard_random
from pathlib import Path

from .workshop import Workshop

MARK = "HOSTILE"
SCREEN = tuple(f"{start}{MARK}" for start in ("\x1b[31m", "\x1b]0;", "\x9b31m", "\u202e", "\u2066", "\x07", "\x08", "\r"))
"""Sequences that must not reach a terminal."""
FORMULAS = ("=cmd|' -C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "\t=1+1", "\r=1+1", "=HYPERLINK(1)")
RESERVED = ("CON", "nul", "COM1", "aux.png", "LPT9", "prn", "CON.", "nul ", "COM¹")
MARKUP = (
    "<img src=x onerror=window.hacked=1>",
    "<script>window.hacked=1;",
    "<x-injected>",
    "</title><x-injected>",
    "</script><img src=x onerror=window.hacked=1>",
    '" onmouseover="window.hacked=1" x="',
    "' onclick='window.hacked=1",
    "${window.hacked=1}",
    "{{ 7*7 }}{% raw %}",
    "javascript:window.hacked=1",
    "]]><x-injected>",
    "<!--<script>",
    "__proto__",
    "constructor",
    "\u2028window.hacked=1\u2029",
)
PATHS = ("../../escape", "/absolute", "..", "a..b", "~", "$HOME", "%2e%2e%2fx", "C:\\windows", "\\\\server\\share", ".")
OTHERS = (
    *("-rf", "--overwrite", "--help", "two\nlines", "trailing.", "trailing ", "  ", "né", "né", "漢字 \U0001f9a6"),
    *("n" * 255, "n" * 254 + "m", "ü" * 127, "not utf-8 \udcff\udcfe", "\udc80", "a,b", '"quoted"', "'", "`id`", "$(id)"),
)
NAMES = (*SCREEN, *FORMULAS, *RESERVED, *MARKUP, *PATHS, *OTHERS)
"""Names for categories, some of which no file can have."""


def as_file(name: str, suffix: str = "") -> str:
    """Return the name as one part of a path: without slashes, not hidden, at most 255 bytes."""
    plain = name.replace("/", "|").replace("\0", "").lstrip(".") or "dot"
    while len(os.fsencode(plain + suffix)) > 255:
        plain = plain[:-1]
    return plain + suffix


def hostile_folder(shop: Workshop, random: standard_random.Random, folder: Path) -> int:
    """Copy the digits into a folder under hostile names; returns the number of images.

    The end of a folder's name and the start of a file's name make up a closing tag at times.
    """
    known = random.sample(NAMES, 2)
    closing = random.random() < 0.3
    names = {"0": as_file(known[0] + ("<" if closing else "")), "1": as_file(known[1])}
    if names["0"].casefold() == names["1"].casefold():
        names["1"] = "plain"
    count = 0
    for image in sorted(shop.data.rglob("*.png")):
        above = folder / names.get(image.parent.name, image.parent.name)
        above.mkdir(parents=True, exist_ok=True)
        chosen = random.choice(NAMES)
        if closing and image.parent.name == "0" and random.random() < 0.5:
            chosen = "script><img src=x onerror=window.hacked=1>"
        target = above / as_file(chosen, ".png")
        target = target if not target.exists() else above / as_file(f"{count} {chosen}", ".png")
        target.write_bytes(image.read_bytes())
        count += 1
    return count
