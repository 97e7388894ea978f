"""The token bank: outputs of the frozen blocks for fixed views, stored on disk.

All blocks before the last are frozen, so their output for a given view is constant. With a bank, each image has V
fixed views instead of a new view per step. The tokens that enter the last block are stored in float16 when a view is
first used, and read afterwards. Training with a bank differs only in the choice of views. The bank also stores the
centre view, for the scores during training.
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
BANKS = (8, 4, 2)  # numbers of views to choose from; with one view, the two views of a step would be equal
DISK_SHARE = 0.5  # share of the free disk that a bank of automatic size may take


class TokenBank:
    """Tokens of V views and the centre view per image in a sparse file, with a flag per stored view."""

    def __init__(
        self, folder: Path, n_images: int, n_views: int, length: int, dim: int, key: str, with_strong: bool = False
    ):
        """Open or create a bank. `key` identifies weights, images and views; a bank with another key is refused.

        With `with_strong` there is a second bank of V strong views per image, in a folder of its own.
        """
        self._opened_with = folder, n_images, n_views, length, dim, key, with_strong
        self.n_views = n_views
        strong = folder / "strong"
        self._strong = TokenBank(strong, n_images, n_views, length, dim, f"{key} strong") if with_strong else None
        rows = rows_per_image(n_views)
        shape = {"images": n_images, "views": n_views, "rows": rows, "length": length, "dim": dim, "key": key}
        header = folder / "bank.json"
        if header.is_file():
            if _read(header) != shape:
                raise Misuse(
                    f"the token bank {folder} was made from other images, views or weights. "
                    "Give another `views.bank_folder`, or remove that one."
                )
        else:
            folder.mkdir(parents=True, exist_ok=True)
            _check_space(folder, n_images * rows * length * dim * 2)
            (folder / "filled.bin").unlink(missing_ok=True)
            write_text_atomically(header, json.dumps(shape) + "\n")
        self._tokens = _open(folder / "tokens.bin", np.float16, (n_images, rows, length, dim))
        self._filled = _open(folder / "filled.bin", np.bool_, (n_images, rows))

    def of(self, strong: bool) -> "TokenBank":
        """Return the bank of the strong views, or this one."""
        if not strong:
            return self
        assert self._strong is not None, "the bank was opened without strong views"
        return self._strong

    @property
    def centre(self) -> int:
        """Index of the centre view, which follows the V random views."""
        return self.n_views

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments only: another process opens the same files."""
        return TokenBank, self._opened_with

    def filled(self, images: Int64[Tensor, " n"], views: Int64[Tensor, " n"]) -> Flags:
        """Return a boolean array of length n: True for the views that are stored."""
        return np.array(self._filled[images.numpy(), views.numpy()])

    def read(self, images: Int64[Tensor, " n"], views: Int64[Tensor, " n"]) -> Float16[Tensor, "n length dim"]:
        """Read the tokens of stored views."""
        return torch.from_numpy(self._tokens[images.numpy(), views.numpy()])

    def write(
        self, images: Int64[Tensor, " n"], views: Int64[Tensor, " n"], tokens: Float16[Tensor, "n length dim"]
    ) -> None:
        """Store the tokens of views. The flags are set last, so a flagged view is complete even after a crash."""
        self._tokens[images.numpy(), views.numpy()] = tokens.numpy()
        self._filled[images.numpy(), views.numpy()] = True


def rows_per_image(n_views: int) -> int:
    """Rows per image: V random views plus the centre view."""
    return n_views + 1


def _open(path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> np.memmap:  # type: ignore[type-arg]
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with path.open("ab") as file:
        file.truncate(size)  # a sparse file takes no disk space until it is written
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)


def _read(header: Path) -> object:
    try:
        return json.loads(header.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Failure(f"the token bank's {header} is damaged ({error}). Remove the folder {header.parent}.") from error


def views_of_bank(folder: Path) -> int | None:
    """Return the number of views of an existing bank, None if there is no bank."""
    header = folder / "bank.json"
    shape: Any = _read(header) if header.is_file() else None
    return int(shape["views"]) if shape else None


def room_for_bank(views: ViewSettings, free: int) -> float:
    """Return the bytes that a bank of automatic size may take on a disk with `free` bytes left."""
    return DISK_SHARE * free if views.bank_budget_gb is None else min(free, views.bank_budget_gb * 1e9)


def banks_with_room(
    settings: ViewSettings, folder: Path, n_images: int, backbone: Backbone, with_strong: bool = False
) -> tuple[int, ...]:
    """Numbers of views of the banks that the disk has room for, largest first; strong views double their size."""
    room = room_for_bank(settings, free_disk(folder))
    per_view = n_images * view_bytes(backbone) * (2 if with_strong else 1)
    return tuple(views for views in BANKS if rows_per_image(views) * per_view <= room)


def view_bytes(backbone: Backbone) -> int:
    """Bytes per view, in float16."""
    return 2 * backbone.tokens_per_view * backbone.dim


def free_disk(path: Path) -> int:
    """Return the bytes left on the disk of a folder, which need not exist yet."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def _check_space(folder: Path, size: int) -> None:
    free = free_disk(folder)
    if size > free:
        raise Misuse(
            f"the token bank needs {size / 2**30:.1f} GiB, but {folder} has {free / 2**30:.1f} GiB left. "
            "Give fewer views with `views.bank=N`, or another disk with `views.bank_folder=DIR`."
        )
