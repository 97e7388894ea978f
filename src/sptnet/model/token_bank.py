"""The token bank: outputs of the frozen blocks for fixed views, stored on disk.

All blocks before the last are frozen, so their output for a given view is constant. With a bank, each image has V
fixed views instead of a new view per step. The tokens that enter the last block are stored in float16 when a view is
first used, and read afterwards. Training with a bank differs only in the choice of views. The bank also stores the
centre view, for the scores during training.
"""

import shutil
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float16, Int64
from torch import Tensor

from sptnet.config import ViewSettings
from sptnet.errors import Failure, Misuse
from sptnet.model.backbone import Backbone
from sptnet.model.bank_files import BankFiles, Flags, Slots
from sptnet.model.bank_header import LOCK, read_header, write_header
from sptnet.runtime.disk import NotWritten, disk_problems
from sptnet.runtime.locks import hold

BANKS = (8, 4, 2)  # numbers of views to choose from; with one view, the two views of a step would be equal
DISK_SHARE = 0.5  # share of the free disk that a bank of automatic size may take
LONGEST_CREATION = 60.0  # seconds to wait for another process that creates the bank


class TokenBank:
    """Tokens of V views and the centre view per image in a sparse file, with a checksum per stored view.

    Several processes may use a bank at the same time. A view counts as stored if its tokens match its checksum, which
    is verified when a process first asks for the view. Stored views never change.
    """

    def __init__(
        self, folder: Path, n_images: int, n_views: int, length: int, dim: int, key: str, with_strong: bool = False
    ):
        """Open or create a bank. `key` identifies weights, images and views; a bank with another key is refused.

        With `with_strong` there is a second bank of V strong views per image, in a folder of its own.
        """
        self._opened_with = folder, n_images, n_views, length, dim, key, with_strong
        self.folder, self.n_views, self._rows = folder, n_views, rows_per_image(n_views)
        sizes = {"images": n_images, "views": n_views, "rows": self._rows, "length": length, "dim": dim, "key": key}
        header, what = read_header(folder), f"the token bank {folder}"
        if header is None:
            with disk_problems(folder):
                folder.mkdir(parents=True, exist_ok=True)
            with hold(folder / LOCK, what, wait=LONGEST_CREATION):
                header = read_header(folder)  # another process may have been faster
                if header is None:
                    _check_space(folder, n_images * self._rows * length * dim * 2)
                    header = write_header(folder, sizes)
        if {name: header[name] for name in sizes} != sizes:
            raise Misuse(
                f"the token bank {folder} was made from other images, views or weights. "
                "Give another `views.bank_folder`, or remove that one."
            )
        lock = ExitStack()
        lock.enter_context(hold(folder / LOCK, what, shared=True, wait=LONGEST_CREATION))
        weakref.finalize(self, lock.close)
        self._files = BankFiles(folder, header)
        self._verified = np.zeros(n_images * self._rows, np.bool_)
        strong = folder / "strong"
        self._strong = TokenBank(strong, n_images, n_views, length, dim, f"{key} strong") if with_strong else None

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
        slots = self._slots(images, views)
        stored = self._verified[slots]
        unknown = np.flatnonzero(~stored)
        stored[unknown] = self._files.stored(slots[unknown])
        self._verified[slots[stored]] = True
        return stored

    def read(self, images: Int64[Tensor, " n"], views: Int64[Tensor, " n"]) -> Float16[Tensor, "n length dim"]:
        """Read the tokens of stored views."""
        tokens, stored = self.read_stored(images, views)
        assert stored.all(), "only stored views can be read"
        return tokens

    def read_stored(
        self, images: Int64[Tensor, " n"], views: Int64[Tensor, " n"]
    ) -> tuple[Float16[Tensor, "n length dim"], Flags]:
        """Read the tokens of views, and return which of them are stored; the tokens of the others are undefined."""
        slots = self._slots(images, views)
        tokens, stored = self._files.read(slots, self._verified[slots])
        self._verified[slots[stored]] = True
        return torch.from_numpy(tokens), stored

    def write(
        self, images: Int64[Tensor, " n"], views: Int64[Tensor, " n"], tokens: Float16[Tensor, "n length dim"]
    ) -> None:
        """Store the tokens of views, unless another process has stored them in the meantime."""
        slots = self._slots(images, views)
        try:
            self._files.write(slots, tokens.numpy())
        except NotWritten as problem:
            rest, free = self._files.n_missing() * self._files.view_bytes, free_disk(self.folder)
            then = (
                f"go on with `resume=True`: the views that are not stored yet take up to {size(rest)}, and the disk "
                f"has {size(free)} left"
            )
            raise Failure(str(NotWritten(problem.path, problem.number, then))) from problem
        self._verified[slots] = True

    def _slots(self, images: Int64[Tensor, " n"], views: Int64[Tensor, " n"]) -> Slots:
        slots: Slots = images.numpy() * self._rows + views.numpy()
        return slots


def rows_per_image(n_views: int) -> int:
    """Rows per image: V random views plus the centre view."""
    return n_views + 1


def views_of_bank(folder: Path) -> int | None:
    """Return the number of views of an existing bank, None if there is no bank."""
    header = read_header(folder)
    return None if header is None else int(header["views"])


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


def size(n_bytes: float) -> str:
    """Bytes as text."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.2f} MB"


def _check_space(folder: Path, size: int) -> None:
    free = free_disk(folder)
    if size > free:
        raise Misuse(
            f"the token bank needs {size / 2**30:.1f} GiB, but {folder} has {free / 2**30:.1f} GiB left. "
            "Give fewer views with `views.bank=N`, or another disk with `views.bank_folder=DIR`."
        )
