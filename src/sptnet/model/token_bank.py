"""The token bank: what the frozen part of the backbone makes of a view, kept on disk instead of computed again.

Everything before the last block never changes, so for a given view its output is a constant. With a bank, an image
has V fixed views instead of a fresh one at every step; the tokens that enter the last block are kept in float16 when a
view is first met, and read ever after. What differs from training without a bank is the choice of views alone: one of V
instead of endlessly many. Beside them the bank keeps the centre view, for the scores that a run tells on its way.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float16, Int64
from torch import Tensor

from sptnet.config import ViewSettings
from sptnet.errors import Failure, Misuse
from sptnet.model.backbone import Backbone
from sptnet.runtime.files import write_text_atomically

Flags = npt.NDArray[np.bool_]
BANKS = (8, 4, 2)  # views to choose from; with a single one, the two views of a step would be the same
DISK_SHARE = 0.5  # of the free disk, for a bank whose size is chosen


class TokenBank:
    """Tokens of V views and the centre view of each image in a sparse file, and a flag for each that is filled in."""

    def __init__(self, folder: Path, n_images: int, n_views: int, length: int, dim: int, key: str):
        """`key` names all that the tokens depend on: weights, images, views. A folder with another key is refused."""
        self._opened_with = folder, n_images, n_views, length, dim, key
        self.n_views = n_views
        rows = rows_per_image(n_views)
        shape = {"images": n_images, "views": n_views, "rows": rows, "length": length, "dim": dim, "key": key}
        header = folder / "bank.json"
        if header.is_file():
            if _read(header) != shape:
                raise Misuse(
                    f"the token bank {folder} was made from other images, views or weights. "
                    "Give another views.bank_folder, or remove that one."
                )
        else:
            folder.mkdir(parents=True, exist_ok=True)
            _check_space(folder, n_images * rows * length * dim * 2)
            (folder / "filled.bin").unlink(missing_ok=True)
            write_text_atomically(header, json.dumps(shape) + "\n")
        self._tokens = _open(folder / "tokens.bin", np.float16, (n_images, rows, length, dim))
        self._filled = _open(folder / "filled.bin", np.bool_, (n_images, rows))

    @property
    def centre(self) -> int:
        """The number of the centre view: the one after the V random ones."""
        return self.n_views

    def __reduce__(self) -> tuple[Any, ...]:
        """A process that is sent a bank opens the same files, instead of getting a copy of them."""
        return TokenBank, self._opened_with

    def filled(self, images: Int64[Tensor, " n"], views: Int64[Tensor, " n"]) -> Flags:
        return np.array(self._filled[images.numpy(), views.numpy()])

    def read(self, images: Int64[Tensor, " n"], views: Int64[Tensor, " n"]) -> Float16[Tensor, "n length dim"]:
        return torch.from_numpy(self._tokens[images.numpy(), views.numpy()])

    def write(
        self, images: Int64[Tensor, " n"], views: Int64[Tensor, " n"], tokens: Float16[Tensor, "n length dim"]
    ) -> None:
        """The flags come last: a view that is flagged is whole, whenever the process ends."""
        self._tokens[images.numpy(), views.numpy()] = tokens.numpy()
        self._filled[images.numpy(), views.numpy()] = True


def rows_per_image(n_views: int) -> int:
    """Rows per image: V random views plus the centre view."""
    return n_views + 1


def _open(path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> np.memmap:  # type: ignore[type-arg]
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with path.open("ab") as file:
        file.truncate(size)  # grows as a hole, which takes no room until it is written
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)


def _read(header: Path) -> object:
    try:
        return json.loads(header.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Failure(f"the token bank's {header} is damaged ({error}). Remove the folder {header.parent}.") from error


def views_of_bank(folder: Path) -> int | None:
    """Of the bank that is there already, if there is one."""
    header = folder / "bank.json"
    shape: Any = _read(header) if header.is_file() else None
    return int(shape["views"]) if shape else None


def room_for_bank(views: ViewSettings, free: int) -> float:
    """Bytes of a disk with so many free ones that a bank may take, if its size is to be chosen."""
    return DISK_SHARE * free if views.bank_budget_gb is None else min(free, views.bank_budget_gb * 1e9)


def banks_with_room(settings: ViewSettings, folder: Path, n_images: int, backbone: Backbone) -> tuple[int, ...]:
    """Numbers of views of the banks that the disk has room for, largest first."""
    room, per_view = room_for_bank(settings, free_disk(folder)), n_images * view_bytes(backbone)
    return tuple(views for views in BANKS if rows_per_image(views) * per_view <= room)


def view_bytes(backbone: Backbone) -> int:
    """Bytes per view, in float16."""
    return 2 * backbone.tokens_per_view * backbone.dim


def free_disk(place: Path) -> int:
    """Bytes left where a folder is or will be."""
    place = place.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def _check_space(folder: Path, size: int) -> None:
    free = free_disk(folder)
    if size > free:
        raise Misuse(
            f"the token bank needs {size / 2**30:.1f} GiB, but {folder} has {free / 2**30:.1f} GiB left. "
            "Give fewer views with --set views.bank=N, or another disk with --set views.bank_folder=DIR."
        )
