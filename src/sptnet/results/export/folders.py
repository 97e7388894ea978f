"""Export as folders of images: one folder per category, of links or copies.

An exported folder contains a list of its files, which marks it as an export: one with other files is not replaced.
"""

import csv
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from sptnet.data.image_file import ImageSource, read_image
from sptnet.errors import Misuse
from sptnet.results.run_result import RunResult
from sptnet.runtime.files import check_new_folder, new_folder, sweep, write_text_atomically
from sptnet.runtime.readers import FileShape, read_json
from sptnet.runtime.text import count, first_three, for_spreadsheet, printable

CONTENTS = ".sptnet-export.json"
METADATA = "metadata.csv"
LONGEST = 60
LONGEST_BYTES = 255
"""Longest name of a file on most file systems."""
NOT_IN_NAMES = frozenset('/\\:*?"<>|')
# Names of devices on Windows, also with a suffix.
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$|clock\$) *(\..*)?", re.IGNORECASE)
# Beginnings of hidden files, of options, and of formulas in metadata.csv.
_BAD_START = tuple(".-=+@")
_LONGEST_SUFFIX = 20


def export_folder(
    result: RunResult, to: Path, form: str, overwrite: bool, pixels: Callable[[], Mapping[str, ImageSource]]
) -> None:
    """Write the folders beside the target and rename them when complete. Only an earlier export is replaced."""
    to = to.absolute()
    sweep(to.parent, to)  # an export that was being replaced by a killed process is put back
    check_replaceable(to, overwrite)
    sources = _sources(result, pixels)
    if form == "links":
        _refuse_pixels(sources)
    paths = export_paths(result, sources)
    # Checked again at the end, since files may be added to the old export while the new one is written.
    with new_folder(to, check=lambda old: _refuse_strangers(old, to)) as fresh:
        _fill(fresh, result, sources, paths, form)


def check_replaceable(to: Path, overwrite: bool) -> None:
    """Raise unless the folder is new or empty, or an export that `overwrite` allows to replace."""
    check_new_folder(to, "an export", _strangers(to), "to", overwrite)


def _refuse_strangers(old: Path, to: Path) -> None:
    check_new_folder(to, "an export", _strangers(old), "to", overwrite=True)


def _strangers(to: Path) -> list[str]:
    """Return the files below a folder that its list does not name."""
    return sorted(set(_files(to)) - _contents(to)) if to.is_dir() and not to.is_symlink() else []


class ContentsShape(FileShape):
    """The list of the files of an export."""

    files: list[str]


def _contents(to: Path) -> set[str]:
    file = to / CONTENTS
    if not file.is_file():
        return set()
    way_out = f"Remove {to} yourself, or give another `to`."
    return {CONTENTS, *read_json(file, way_out, ContentsShape, limit=None, errors="surrogatepass")["files"]}


def _files(to: Path) -> list[str]:
    """Return the relative paths of all files and links below a folder; links are not followed."""
    paths = []
    for folder, subfolders, files in os.walk(to):
        linked = [name for name in subfolders if Path(folder, name).is_symlink()]
        paths += [Path(folder, name).relative_to(to).as_posix() for name in (*files, *linked)]
    return paths


def _sources(result: RunResult, pixels: Callable[[], Mapping[str, ImageSource]]) -> dict[int, tuple[str, ImageSource]]:
    """Return id and file or pixels by position, for all images that were not dropped."""
    kept = np.flatnonzero(result.category >= 0).tolist()
    stored = pixels() if any(result.sources[i] is None for i in kept) else {}
    missing = [printable(result.ids[i]) for i in kept if result.sources[i] is None and result.ids[i] not in stored]
    if missing:
        raise Misuse(
            f"{count(missing, 'image')} cannot be found: {first_three(missing)}. Restore the data folder that the run "
            "was trained on, or drop the images."
        )
    return {i: (result.ids[i], Path(file) if (file := result.sources[i]) else stored[result.ids[i]]) for i in kept}


def _refuse_pixels(sources: Mapping[int, tuple[str, ImageSource]]) -> None:
    without_file = [printable(id_) for id_, source in sources.values() if not isinstance(source, Path)]
    if without_file:
        raise Misuse(
            f"{count(without_file, 'image')} cannot be linked to, having no file of their own: "
            f"{first_three(without_file)}. "
            "Export as copies."
        )


def export_paths(result: RunResult, sources: Mapping[int, tuple[str, ImageSource]]) -> dict[int, str]:
    """Return CATEGORY/FILE by position of the image. Equal names are numbered."""
    folders = folder_names(result.names)
    taken: list[set[str]] = [set() for _ in folders]
    paths = {}
    for i, (id_, source) in sources.items():
        name = source.name if isinstance(source, Path) else safe_name(PurePosixPath(id_).name) + ".png"
        category = result.category[i]
        paths[i] = f"{folders[category]}/{free_name(name, taken[category])}"
    return paths


def folder_names(categories: Sequence[str]) -> list[str]:
    """Return the name of the folder of each category; all differ, also where case is ignored."""
    taken = {METADATA}
    return [free_name(safe_name(name), taken) for name in categories]


def safe_name(name: str) -> str:
    """Return a name that is valid on all file systems, not hidden, and neither an option nor a formula."""
    plain = "".join("_" if c in NOT_IN_NAMES or not c.isprintable() else c for c in name)[:LONGEST].strip().rstrip(". ")
    if _DEVICES.fullmatch(plain):
        return "_" + plain
    return plain if plain and not plain.startswith(_BAD_START) else "_" + plain.lstrip(".")


def free_name(name: str, taken: set[str]) -> str:
    """Return the name, or NAME-2, NAME-3 and so on, cut where it is too long. Case is ignored, as on many file systems.

    `taken` are the names in use, folded; the name returned is added.
    """
    path, number, candidate = PurePosixPath(name), 1, name
    stem, suffix = (path.stem, path.suffix) if len(path.suffix) <= _LONGEST_SUFFIX else (name, "")
    while candidate.casefold() in taken:
        number += 1
        candidate = _numbered(stem, f"-{number}{suffix}")
    taken.add(candidate.casefold())
    return candidate


def _numbered(stem: str, end: str) -> str:
    """Return stem and end within `LONGEST_BYTES`, without the characters of the stem that do not fit."""
    while len(os.fsencode(stem + end)) > LONGEST_BYTES:
        stem = stem[:-1]
    return stem + end


def _fill(
    fresh: Path, result: RunResult, sources: Mapping[int, tuple[str, ImageSource]], paths: Mapping[int, str], form: str
) -> None:
    root = fresh / "train" if form == "imagefolder" else fresh
    root.mkdir(exist_ok=True)
    for i, name in paths.items():
        path, source = root / name, sources[i][1]
        path.parent.mkdir(exist_ok=True)
        if not isinstance(source, Path):
            read_image(source).save(path)
        elif form == "links":
            path.symlink_to(source.absolute())
        else:
            shutil.copyfile(source, path)
    if form == "imagefolder":
        with (root / METADATA).open("w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
            table = csv.writer(stream)
            table.writerow(["file_name", "label"])
            table.writerows([name, for_spreadsheet(result.names[result.category[i]])] for i, name in paths.items())
    # The folder of a category may have another name than the category: the list of contents has both.
    categories = dict(zip(folder_names(result.names), result.names, strict=True))
    contents = {"form": form, "categories": categories, "files": sorted(_files(fresh))}
    write_text_atomically(fresh / CONTENTS, json.dumps(contents, indent=1) + "\n")
