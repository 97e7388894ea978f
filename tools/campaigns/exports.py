"""Checks of exports: every image is there once, nothing is outside, no cell is a formula."""

import csv
import hashlib
import json
import os
import re
from collections import Counter
from pathlib import Path

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
