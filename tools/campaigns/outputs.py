"""Checks of what hostile names are written into: exports, and the report page in Chromium."""

import csv
import hashlib
import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

FORMS = ("csv", "json", "coco", "links", "copies", "imagefolder")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)


def wrong_export(form: str, target: Path, data: Path, n: int) -> str:
    """Return what is wrong with an export of `n` images below `data`; empty if nothing is."""
    if form == "csv":
        return _wrong_table(target, n)
    if form in ("json", "coco"):
        content = json.loads(target.read_text(encoding="utf-8"))
        found = content["images"] if form == "coco" else [i for c in content["categories"] for i in c["images"]]
        return "" if len(found) == n else f"{len(found)} images of {n} in {form}"
    files = [Path(folder, name) for folder, _, names in os.walk(target) for name in names]
    pictures = [file for file in files if file.name not in (".sptnet-export.json", "metadata.csv")]
    if len(pictures) != n:
        return f"{len(pictures)} images of {n} in {form}"
    images = [path for path in data.rglob("*") if path.is_file()]
    if form == "links" and {file.resolve() for file in pictures} != {image.resolve() for image in images}:
        return "the links lead elsewhere"
    if Counter(map(_digest, pictures)) != Counter(map(_digest, images)):
        return f"other images in {form}"
    table = target / "train" / "metadata.csv"
    return _wrong_names(target) or (_wrong_table(table, n) if form == "imagefolder" else "")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _wrong_table(table: Path, n: int) -> str:
    with table.open(encoding="utf-8", errors="surrogatepass" if b"\xed" in table.read_bytes() else "surrogateescape",
                    newline="") as stream:  # fmt: skip
        rows = list(csv.reader(stream))
    formulas = [cell for row in rows for cell in row if cell.startswith(FORMULA)]
    if formulas:
        return f"{table.name} has the formula {formulas[0]!r}"
    return "" if len(rows) == n + 1 else f"{len(rows) - 1} rows for {n} images in {table.name}"


def _wrong_names(target: Path) -> str:
    """Return a name of a folder that some file system or shell cannot have."""
    for folder in (path for path in target.rglob("*") if path.is_dir()):
        name = folder.name
        if RESERVED.fullmatch(name) or name != name.strip() or name.endswith(".") or not name.isprintable():
            return f"the folder name {name!r}"
    return ""


FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
STATE = """
const count = (selector) => document.querySelectorAll(selector).length;
return {
  hacked: window.hacked === undefined ? 0 : 1,
  injected: count("x-injected"),
  handlers: count("[onerror],[onload],[onmouseover],[onclick]"),
  scripts: count("script"),
  frames: count("iframe,object,embed,base,link[rel=stylesheet]"),
  cards: count(".card"),
};
"""
OPEN = 'const all = document.querySelectorAll(".card .open"); if (arguments[0] < all.length) all[arguments[0]].click();'


class Browser:
    """A headless Chromium; `missing` says what is not installed."""

    def __init__(self, profile: Path):
        self.missing, self._driver = "", None
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        driver = shutil.which("chromedriver")
        if program is None or driver is None:
            self.missing = "chromium or chromedriver"
            return
        try:
            from selenium import webdriver
        except ImportError:
            self.missing = "selenium"
            return
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
        self._driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))

    def visit(self, page: Path) -> dict[str, int]:
        """Load a page, open its first cards, and count what matters; `requests` are those beside the page itself."""
        driver: Any = self._driver
        driver.get_log("performance")
        driver.get(page.as_uri())
        for number in range(3):
            driver.execute_script(OPEN, number)
        state: dict[str, int] = driver.execute_script(STATE)
        messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        strange = [url for url in sent if not url.startswith(("data:", "blob:", page.as_uri()))]
        return {**state, "requests": len(strange)}

    def close(self) -> None:
        """End the browser."""
        if self._driver is not None:
            self._driver.quit()
            self._driver = None


def wrong_page(found: dict[str, int], plain: dict[str, int]) -> str:
    """Compare a page with one that has plain names; returns what a name has brought about."""
    for key in ("hacked", "injected", "handlers", "scripts", "frames", "requests"):
        if found[key] != plain[key]:
            return f"the page has {key} = {found[key]}, a page of plain names {plain[key]}"
    return "" if found["cards"] else "the page shows no category"
