"""Hostile names of files and categories: in the terminal, in exports and in the report page."""

import os
import random as standard_random
import shutil
import tempfile
from functools import cached_property
from pathlib import Path

from .children import Child, Ended
from .outputs import FORMS, Browser, wrong_export, wrong_page
from .runner import Campaign, Verdict
from .workshop import Workshop

MARK = "HOSTILE"
CONTROLS = ("\x1b[31m", "\x1b]0;", "\x9b31m", "\u202e", "\u2066", "\x07", "\x08", "\r")
SCREEN = tuple(f"{start}{MARK}" for start in CONTROLS)
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
    *(
        "n" * 255,
        "n" * 254 + "m",
        "ü" * 127,
        "not utf-8 \udcff\udcfe",
        "\udc80",
        "a,b",
        '"quoted"',
        "'",
        "`id`",
        "$(id)",
    ),
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


PAGE_EVERY = 4


class HostileNames(Campaign):
    """Folders of hostile names through every command that shows or writes names."""

    name, share = "names", 2.0
    _browser: Browser | None = None

    def run(self, number: int) -> Verdict:
        """Sort a folder of hostile names and look at all that is shown and written."""
        random, case = self.random(number), self.shop.case(f"{self.name} {number}")
        with_page = number % PAGE_EVERY == PAGE_EVERY - 1
        tags = ["page" if with_page else "no page"]
        if with_page and self.browser.missing:
            tags = [f"page left out without {self.browser.missing}"]
        place = case / as_file(random.choice(NAMES))
        problem = self._check(random, place, with_page and not self.browser.missing)
        entries = sorted(path.name for path in case.iterdir())
        if not problem and entries != [place.name]:
            problem = f"something was written outside the folder: {entries}"
        if not problem:
            shutil.rmtree(case)
        return Verdict("hostile names", problem, tuple(tags))

    def _check(self, random: standard_random.Random, place: Path, with_page: bool) -> str:
        data, run, logs = place / "data", place / "run", self.shop.root / "logs" / "names"
        n = hostile_folder(self.shop, random, data)
        name = random.choice([name for name in NAMES if "\0" not in name])
        method = ["--method", "kmeans", *self.shop.settings()]
        commands: list[list[object]] = [
            ["check", data, "--no-time"],
            ["discover", data, "--out", run, *method, *(() if with_page else ("--no-report",))],
            ["edit", run, "rename", "new-1", "--", name],
            ["edit", run, "list"],
            ["edit", run, "log"],
            ["predict", run, data],
            ["predict", run, data, "--out", place / "table.csv"],
            ["evaluate", run],
            *(["export", run, "--as", form, "--to", place / f"as {form}"] for form in FORMS),
        ]
        problems: dict[str, str] = {}
        for words in commands:
            terminal = words[0] == "predict" or random.random() < 0.5
            ended = Child(words, logs, terminal=terminal).wait()
            problem = ended.complaint or shown(ended)
            if problem:
                problems[str(words[0])] = f"{words[0]}: {problem}"
            if words[0] == "discover" and ended.code != 0:
                break  # nothing to go on with
        else:
            for form in FORMS:
                target = place / f"as {form}"
                problem = wrong_export(form, target, data, n) if target.exists() else "nothing was written"
                if problem:
                    problems[form] = f"export as {form}: {problem}"
            if with_page:
                problems["page"] = wrong_page(self.browser.visit(run / "report.html"), self._plain)
        return "; ".join(filter(None, problems.values()))

    @cached_property
    def browser(self) -> Browser:
        """The browser, started once."""
        self._browser = Browser(Path(tempfile.mkdtemp(dir=self.shop.root)))
        return self._browser

    @cached_property
    def _plain(self) -> dict[str, int]:
        return self.browser.visit(self.shop.reference("discovered") / "report.html")

    def close(self) -> None:
        """End the browser."""
        if self._browser is not None:
            self._browser.close()


def shown(ended: Ended) -> str:
    """Return a sequence that controls the terminal and came from a name."""
    output = ended.out + ended.err
    found = [text for text in SCREEN if text.encode() in output]
    return f"{found[0]!a} was printed" if found else ""
