"""Read a folder of images; labels come from the names of sub-folders or from a CSV file."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sptnet.data.heic import skipped_message
from sptnet.data.image_set import UNKNOWN, ImageSet
from sptnet.data.listing import list_folder
from sptnet.errors import Misuse
from sptnet.runtime.progress import Say, say
from sptnet.runtime.readers import read_csv
from sptnet.runtime.text import count, first_three, from_spreadsheet, printable

EXPORTED = ("image", "category", "is_new", "certainty")
"""First columns of an exported table, which is a labels file too; its names are escaped for spreadsheets."""
EXPORTED_DETAILS = (
    *("labelled", "doubtful", "guess", "guess_certainty", "second", "second_certainty"),
    *("duplicate_of", "time", "camera"),
)
"""Other columns of an exported table; any of them may be missing."""
_HELD_OUT = ("test", "val")
_UNLABELLED = "unlabelled"


def read_folder(
    folder: Path | str,
    labels_file: Path | str | None = None,
    unlabelled: str = _UNLABELLED,
    tell: Say = say,
    folder_labels: bool = True,
) -> ImageSet:
    """Read a folder with one sub-folder per class, optionally within train/ and test/, or with a labels file.

    Images in the root and in the sub-folder `unlabelled` have no label; a sub-folder with another name must exist.
    Without `folder_labels` or with a labels file, the names of sub-folders have no meaning, including train/ and test/.
    `tell` is called with a message if HEIC files are skipped.
    """
    root = Path(folder)
    if not root.exists():
        raise Misuse(f"there is no folder {root}. Give a folder that holds images.")
    if not root.is_dir():
        raise Misuse(f"{root} is a file, not a folder. Give the folder that holds the images.")
    listing = list_folder(root)
    paths = listing.images
    if not paths and listing.heic:
        raise Misuse(f"the only images in {root}/ are HEIC files. Install sptnet[heic] to read them.")
    if not paths:
        raise Misuse(f"no images found in {root}/. Give a folder that holds JPEG, PNG, WebP, BMP, TIFF or GIF files.")
    if listing.heic:
        tell(skipped_message(listing.heic))
    ids = [path.relative_to(root).as_posix() for path in paths]
    test = np.zeros(len(ids), dtype=np.bool_)
    if labels_file is not None:
        class_of = _read_labels(Path(labels_file), root, ids)
    elif not folder_labels:
        class_of = {}
    else:
        _check_unlabelled(root, ids, unlabelled)
        splits = _split_folders(root, ids, unlabelled)
        test = np.array([id_.split("/")[0] in splits and id_.split("/")[0] != "train" for id_ in ids])
        class_of = {id_: _folder_class(id_, splits, unlabelled) for id_ in ids}
    names = sorted({name for name in class_of.values() if name})
    position = {name: i for i, name in enumerate(names)}
    labels = np.array([position.get(class_of.get(id_, ""), UNKNOWN) for id_ in ids], dtype=np.int64)
    some_unlabelled = bool((labels[~test] == UNKNOWN).any())
    return ImageSet(
        name=root.resolve().name or str(root),
        ids=tuple(ids),
        sources=tuple(paths),
        names=tuple(names),
        labels=labels,
        given=labels != UNKNOWN if some_unlabelled or labels_file is not None else None,
        test=test,
    )


def _check_unlabelled(root: Path, ids: list[str], unlabelled: str) -> None:
    """Refuse a name that no sub-folder has: its images would become a known category.

    The images of a folder that is itself called unlabelled are labelled if another name is given, existing or not.
    """
    if unlabelled == _UNLABELLED or root.resolve().name == _UNLABELLED or unlabelled in os.listdir(root):
        return
    if not any(unlabelled in id_.split("/")[:-1][:2] for id_ in ids):
        raise Misuse(
            f"{root} has no sub-folder {printable(unlabelled)}. Give the name of the sub-folder of unsorted images "
            "with `data.unlabelled=NAME`."
        )


def _split_folders(root: Path, ids: list[str], unlabelled: str) -> set[str]:
    """Return the folders that are parts of the data set (train, test, val), not classes; empty for a plain folder."""
    parts = [id_.split("/") for id_ in ids]
    tops = {part[0] for part in parts if len(part) > 1}
    with_classes = {part[0] for part in parts if len(part) > 2 and part[1] != unlabelled}
    held_out = [name for name in _HELD_OUT if name in tops and name != unlabelled]
    if "train" not in with_classes or not held_out:
        return set()
    flat = [name for name in held_out if name not in with_classes]
    if flat:
        raise Misuse(
            f"{root} holds train and {flat[0]}, but only train has class sub-folders. "
            f"Sort the images in {flat[0]} into class sub-folders, or move it away."
        )
    strays = sorted(tops - {"train", unlabelled, *held_out})
    if strays:
        raise Misuse(
            f"{root} is divided into train and {held_out[0]}, but {first_three(strays)} lies beside them. "
            "Move it into one of them, or away."
        )
    return {"train", *held_out}


def _folder_class(id_: str, splits: set[str], unlabelled: str) -> str:
    parts = id_.split("/")
    if parts[0] in splits:
        parts = parts[1:]
    return parts[0] if len(parts) > 1 and parts[0] != unlabelled else ""


def _read_labels(file: Path, root: Path, ids: list[str]) -> dict[str, str]:
    """Return the label per image id in the CSV file; an empty label means unlabelled."""
    rows = _csv_rows(file)
    roots = {os.path.abspath(root), os.path.realpath(root)}
    known = set(ids)
    label_of: dict[str, str] = {}
    strangers: list[str] = []
    repeats: list[str] = []
    for line, path, label in rows:
        id_ = _id_of(path, roots)
        where = f"{printable(path) or 'no path'} (line {line})"
        if id_ not in known:
            strangers.append(where)
        elif id_ in label_of:
            repeats.append(where)
        else:
            label_of[id_] = label
    if strangers:
        raise Misuse(
            f"{file} lists {count(strangers, 'path')} that no image of {root} has: "
            f"{first_three(strangers)}. Write paths relative to that folder, with their suffix."
        )
    if repeats:
        raise Misuse(
            f"{file} lists images again in {count(repeats, 'row')}: {first_three(repeats)}. Keep one row per image."
        )
    if not any(label_of.values()):
        raise Misuse(f"{file} has {count(rows, 'row')} but no label in any. Fill the label column for some images.")
    return label_of


def _csv_rows(file: Path) -> list[tuple[int, str, str]]:
    if not os.path.isfile(file):
        raise Misuse(f"there is no labels file {file}. Give a CSV file with the header path,label.")
    way_out, says = "Save it again as CSV, UTF-8.", "is not a CSV file in UTF-8"
    table = read_csv(file, way_out, Misuse, says, encoding="utf-8-sig", strict=False)
    columns = [column.strip() for column in table.columns]
    rows = list(zip(table.lines, table.rows, strict=True))
    if tuple(columns[: len(EXPORTED)]) == EXPORTED and set(columns[len(EXPORTED) :]) <= set(EXPORTED_DETAILS):
        image, category, *_ = table.columns
        return [(line, from_spreadsheet(row[image] or ""), from_spreadsheet(row[category] or "")) for line, row in rows]
    missing = [column for column in ("path", "label") if column not in columns]
    if missing:
        raise Misuse(
            f"{file} has no column {' and no column '.join(missing)}. Make its first line the header path,label."
        )
    path, label = (_last(table.columns, columns, name) for name in ("path", "label"))
    return [(line, row[path] or "", (row[label] or "").strip()) for line, row in rows]


def _last(columns: Sequence[str], stripped: Sequence[str], name: str) -> str:
    """Return the last column with that name, as it is written in the file."""
    return next(column for column, plain in zip(reversed(columns), reversed(stripped), strict=True) if plain == name)


def _id_of(path: str, roots: set[str]) -> str:
    plain = Path(os.path.normpath(path))
    for root in roots:
        if plain.is_relative_to(root):
            return plain.relative_to(root).as_posix()
    return plain.as_posix()
