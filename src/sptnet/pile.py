"""The whole pile of images: what they are called, where they come from and which labels are known."""

import csv
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from sptnet.errors import Failure, Misuse
from sptnet.images import UnreadableImage, check_image, find_images, printable, read_image, reason_for

UNKNOWN = -1

_HELD_OUT = ("test", "val")
_EDGE = 64 * 1024
_BATCH = 1024


@dataclass(frozen=True, eq=False)
class Pile:
    name: str
    ids: tuple[str, ...]
    sources: tuple[Path | npt.NDArray[Any] | Image.Image, ...]
    names: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    """Index into `names`; -1 where nobody knows."""
    given: npt.NDArray[np.bool_] | None
    """Whether the learner may see the label; None leaves that to the split (every truth is known)."""
    test: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        columns = {"sources": self.sources, "labels": self.labels, "test": self.test, "given": self.given}
        for column, values in columns.items():
            if values is not None and len(values) != len(self.ids):
                raise Misuse(f"the pile has {len(self.ids)} ids but {len(values)} {column}. Give one for each image.")
        for kind, texts in (("ids", self.ids), ("class names", self.names)):
            if len(set(texts)) != len(texts):
                raise Misuse(f"the {kind} of the pile repeat. Give each its own name.")
        flags = [self.test] if self.given is None else [self.test, self.given]
        if self.labels.dtype != np.int64 or any(flag.dtype != np.bool_ for flag in flags):
            raise Misuse("the pile has columns of the wrong type. Give int64 labels, bool given and bool test.")
        if ((self.labels < UNKNOWN) | (self.labels >= len(self.names))).any():
            raise Misuse(
                f"a label of the pile lies outside -1..{len(self.names) - 1}. "
                "Give an index into the class names, or -1."
            )
        if self.given is not None and (self.labels[self.given] == UNKNOWN).any():
            raise Misuse("the pile gives away a label nobody knows. Set given only where the label is not -1.")

    def __len__(self) -> int:
        return len(self.ids)

    def subset(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> "Pile":
        """The images at these positions, in this order; the class names stay as they are."""
        chosen = np.asarray(indices, dtype=np.int64)
        return Pile(
            name=self.name,
            ids=tuple(self.ids[i] for i in chosen),
            sources=tuple(self.sources[i] for i in chosen),
            names=self.names,
            labels=self.labels[chosen],
            given=None if self.given is None else self.given[chosen],
            test=self.test[chosen],
        )


def digits() -> Pile:
    """The 1,797 handwritten digits that come with scikit-learn: small enough to try everything on."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    data = load_digits()
    pixels = np.rint(data.images * 255 / 16).astype(np.uint8)
    return Pile(
        name="digits",
        ids=tuple(f"digit-{i:04d}" for i in range(len(pixels))),
        sources=tuple(pixels),
        names=tuple("0123456789"),
        labels=data.target.astype(np.int64),
        given=None,
        test=np.zeros(len(pixels), dtype=np.bool_),
    )


def read_folder(folder: Path | str, labels_file: Path | str | None = None, unlabelled: str = "unlabelled") -> Pile:
    """Read a folder that has one sub-folder per class, the same within train/ and test/, or a labels file.

    Images in the root and in the sub-folder called `unlabelled` have no label. A labels file overrules every
    sub-folder name, train/ and test/ included.
    """
    root = Path(folder)
    if not root.exists():
        raise Misuse(f"there is no folder {root}. Give a folder that holds images.")
    if not root.is_dir():
        raise Misuse(f"{root} is a file, not a folder. Give the folder that holds the images.")
    paths = find_images(root)
    if not paths:
        raise Misuse(f"no images found in {root}/. Give a folder that holds JPEG, PNG, WebP, BMP, TIFF or GIF files.")
    ids = [path.relative_to(root).as_posix() for path in paths]
    test = np.zeros(len(ids), dtype=np.bool_)
    if labels_file is not None:
        class_of = _read_labels(Path(labels_file), root, ids)
    else:
        splits = _split_folders(root, ids, unlabelled)
        test = np.array([id_.split("/")[0] in splits and id_.split("/")[0] != "train" for id_ in ids])
        class_of = {id_: _folder_class(id_, splits, unlabelled) for id_ in ids}
    names = sorted({name for name in class_of.values() if name})
    position = {name: i for i, name in enumerate(names)}
    labels = np.array([position.get(class_of.get(id_, ""), UNKNOWN) for id_ in ids], dtype=np.int64)
    some_unlabelled = bool((labels[~test] == UNKNOWN).any())
    return Pile(
        name=root.resolve().name or str(root),
        ids=tuple(ids),
        sources=tuple(paths),
        names=tuple(names),
        labels=labels,
        given=labels != UNKNOWN if some_unlabelled or labels_file is not None else None,
        test=test,
    )


def _split_folders(root: Path, ids: list[str], unlabelled: str) -> set[str]:
    """The folders that are parts of the data (train, test, val) and not classes; none in a plain folder."""
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
            f"{root} is divided into train and {held_out[0]}, but {_first_three(strays)} lies beside them. "
            "Move it into one of them, or away."
        )
    return {"train", *held_out}


def _folder_class(id_: str, splits: set[str], unlabelled: str) -> str:
    parts = id_.split("/")
    if parts[0] in splits:
        parts = parts[1:]
    return parts[0] if len(parts) > 1 and parts[0] != unlabelled else ""


def _read_labels(file: Path, root: Path, ids: list[str]) -> dict[str, str]:
    """The label of every image that the CSV file lists; an empty label means unlabelled."""
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
            f"{file} lists {_count(strangers, 'path')} that no image of {root} has: "
            f"{_first_three(strangers)}. Write paths relative to that folder, with their suffix."
        )
    if repeats:
        raise Misuse(
            f"{file} lists images again in {_count(repeats, 'row')}: {_first_three(repeats)}. Keep one row per image."
        )
    if not any(label_of.values()):
        raise Misuse(f"{file} has {_count(rows, 'row')} but no label in any. Fill the label column for some images.")
    return label_of


def _csv_rows(file: Path) -> list[tuple[int, str, str]]:
    if not file.is_file():
        raise Misuse(f"there is no labels file {file}. Give a CSV file with the header path,label.")
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, restval="")
            columns = [column.strip() for column in reader.fieldnames or ()]
            missing = [column for column in ("path", "label") if column not in columns]
            if missing:
                raise Misuse(
                    f"{file} has no column {' and no column '.join(missing)}. "
                    "Make its first line the header path,label."
                )
            reader.fieldnames = columns
            return [(reader.line_num, row["path"], row["label"].strip()) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise Misuse(f"{file} is not a CSV file in UTF-8 ({error}). Save it again as CSV, UTF-8.") from error


def _id_of(path: str, roots: set[str]) -> str:
    plain = Path(os.path.normpath(path))
    for root in roots:
        if plain.is_relative_to(root):
            return plain.relative_to(root).as_posix()
    return plain.as_posix()


def _first_three(items: Sequence[str]) -> str:
    return ", ".join(items[:3]) + (", ..." if len(items) > 3 else "")


def _count(items: Sequence[object], noun: str) -> str:
    return f"{len(items)} {noun}" + ("" if len(items) == 1 else "s")


def _no_display(items: Iterable[Any], total: int | None = None) -> Iterable[Any]:
    return items


def drop_unreadable(
    pile: Pile,
    max_share: float = 0.01,
    track: Callable[..., Iterable[Any]] = _no_display,
    limit_flag: str = "--set data.max_unreadable=",
) -> tuple[Pile, list[UnreadableImage]]:
    """Decode every image file once; without the unreadable ones, unless they are more than `max_share`."""
    files = [(i, source) for i, source in enumerate(pile.sources) if isinstance(source, Path)]
    bad: dict[int, UnreadableImage] = {}
    for i, problem in track(_check_all(files, pile.ids), total=len(files)):
        if problem is not None:
            bad[i] = problem
    problems = list(bad.values())
    share = len(bad) / max(1, len(pile))
    examples = _first_three([f"{printable(problem.name)} ({problem.reason})" for problem in problems])
    if bad and len(bad) == len(pile):
        raise Failure(f"none of the {len(pile)} images can be read: {examples}. Repair or replace them.")
    if share > max_share:
        enough = max(0.2, math.ceil(share * 100) / 100)
        raise Failure(
            f"{len(bad)} of {len(pile)} images ({share:.1%}) cannot be read, more than the {max_share:.1%} "
            f"allowed: {examples}. "
            f"Repair or remove them, or raise the limit with {limit_flag}{enough:g}."
        )
    return pile.subset([i for i in range(len(pile)) if i not in bad]), problems


def _check_all(files: list[tuple[int, Path]], ids: tuple[str, ...]) -> Iterator[tuple[int, UnreadableImage | None]]:
    # In batches, because a pool given a million files at once keeps a million pending results.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(files), _BATCH):
            batch = files[start : start + _BATCH]
            problems = pool.map(check_image, [path for _, path in batch], [ids[i] for i, _ in batch])
            yield from zip([i for i, _ in batch], problems, strict=True)


def fingerprint(pile: Pile) -> str:
    """A SHA-256 of everything that learning depends on; of a long file only size, beginning and end."""
    digest = hashlib.sha256()

    def add(part: bytes) -> None:
        # The length keeps neighbours apart: ("ab", "c") must differ from ("a", "bc").
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)

    for texts in (pile.names, pile.ids):
        add(len(texts).to_bytes(8, "little"))
        for text in texts:
            add(text.encode("utf-8", "surrogatepass"))
    add(pile.labels.astype("<i8").tobytes())
    add(b"the split decides" if pile.given is None else pile.given.tobytes())
    add(pile.test.tobytes())
    for id_, source in zip(pile.ids, pile.sources, strict=True):
        for part in _content(id_, source):
            add(part)
    return digest.hexdigest()


def _content(id_: str, source: Path | npt.NDArray[Any] | Image.Image) -> list[bytes]:
    if isinstance(source, np.ndarray):
        return [source.dtype.str.encode(), str(source.shape).encode(), source.tobytes()]
    if isinstance(source, Image.Image):
        image = read_image(source)
        return [str(image.size).encode(), image.tobytes()]
    try:
        with source.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(_EDGE)
            stream.seek(max(_EDGE, size - _EDGE))
            return [str(size).encode(), head, stream.read(_EDGE)]
    except OSError as error:
        raise UnreadableImage(id_, reason_for(error)) from error
