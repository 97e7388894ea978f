"""Files of the token bank: what a full disk, a kill, a power cut, another program or another process may do to them."""

import errno
import gc
import json
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sptnet.errors import Failure, Misuse, SptnetError
from sptnet.model import bank_files
from sptnet.model.bank_files import checksums
from sptnet.model.token_bank import TokenBank
from sptnet.runtime.locks import Locked, hold

IMAGES, VIEWS, LENGTH, DIM, KEY = 6, 3, 5, 96, "these weights"
VIEW_BYTES = LENGTH * DIM * 2
SIZES = {"images": IMAGES, "views": VIEWS, "rows": VIEWS + 1, "length": LENGTH, "dim": DIM, "key": KEY}
EVERY = torch.arange(IMAGES).repeat_interleave(VIEWS), torch.arange(VIEWS).repeat(IMAGES)
"""All random views, as images and views."""

forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def opened(folder: Path, key: str = KEY) -> TokenBank:
    return TokenBank(folder / "bank", IMAGES, VIEWS, LENGTH, DIM, key)


def tokens_of(images: Tensor, views: Tensor) -> Tensor:
    """Tokens that depend on the view alone."""
    seeds = [int(seed) for seed in images * VIEWS + views]
    return torch.stack([torch.randn(LENGTH, DIM, generator=torch.Generator().manual_seed(s)) for s in seeds]).half()


def fill(bank: TokenBank, images: Tensor = EVERY[0], views: Tensor = EVERY[1]) -> None:
    bank.write(images, views, tokens_of(images, views))


def fill_in(folder: Path, images: Tensor, views: Tensor, key: str = KEY) -> None:
    fill(opened(folder, key), images, views)


def assert_full(bank: TokenBank) -> None:
    assert bank.filled(*EVERY).all()
    assert torch.equal(bank.read(*EVERY), tokens_of(*EVERY))


def run_forked(*works: Callable[[], object]) -> list[int]:
    """Run each function in a process of its own, at the same time; return 0 or the signal or errors (1, 2) of each."""
    ready, go = os.pipe()
    children = []
    for work in works:
        child = os.fork()
        if child == 0:
            code = 3
            try:
                os.close(go)
                os.read(ready, 1)  # returns when the parent closes the other end
                work()
                code = 0
            except SptnetError as error:
                code = error.exit_code
            finally:
                os._exit(code)
        children.append(child)
    os.close(ready)
    os.close(go)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


# --- a full disk ---


@contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    """Limit the size of files of this process: the kernel then refuses to write, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_tokens_beyond_the_largest_file_are_an_error_and_the_rest_is_kept(tmp_path: Path) -> None:
    bank = opened(tmp_path)
    first = torch.tensor([0, 0]), torch.tensor([0, 1])
    last = torch.tensor([IMAGES - 1]), torch.tensor([0])
    fill(bank, *first)
    with largest_file(3 * VIEW_BYTES), pytest.raises(Failure) as error:
        fill(bank, *last)
    rest = (IMAGES * (VIEWS + 1) - 2) * VIEW_BYTES / 1e6
    assert str(error.value).startswith(f"{tmp_path / 'bank' / 'tokens.bin'} could not be written (File too large). ")
    assert "then go on with `resume=True`" in str(error.value)
    assert f"the views that are not stored yet take up to {rest:.2f} MB, and the disk has " in str(error.value)
    for again in (bank, opened(tmp_path)):
        assert again.filled(*first).all() and not again.filled(*last).any()
    fill(bank, *last)
    assert torch.equal(opened(tmp_path).read(*last), tokens_of(*last))


@pytest.mark.parametrize("name", ["tokens.bin", "sums.bin"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses_leaves_the_view_unstored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    bank, write = opened(tmp_path), os.pwrite
    inode = (tmp_path / "bank" / name).stat().st_ino

    def pwrite(file: int, content: memoryview, offset: int) -> int:
        if os.fstat(file).st_ino != inode:
            return write(file, content, offset)
        if offset == 0:
            return write(file, content[:3], offset)  # a part still fits
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        with pytest.raises(Failure, match=rf"{name} could not be written \({os.strerror(number)}\)"):
            fill(bank)
    for again in (bank, opened(tmp_path)):
        assert not again.filled(*EVERY).any()
    fill(bank)
    assert_full(opened(tmp_path))


def test_a_limit_below_the_bank_is_noticed_before_training(tmp_path: Path) -> None:
    with (
        largest_file(3 * VIEW_BYTES),
        pytest.raises(Failure, match=r"tokens.bin could not be written \(File too large"),
    ):
        opened(tmp_path)
    fill(opened(tmp_path))
    assert_full(opened(tmp_path))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a file system")
    yield folder
    gc.collect()  # closes the bank
    subprocess.run(["umount", str(folder)], check=True)


@forks
def test_a_full_file_system_is_an_error_and_no_signal(small_disk: Path) -> None:
    def work() -> None:
        bank = opened(small_disk)
        fill(bank, torch.tensor([1]), torch.tensor([1]))
        with pytest.raises(OSError, match="No space"), (small_disk / "others").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        assert bank.filled(*EVERY).sum() == 1
        with pytest.raises(Failure, match=r"No space left on device\). Make room, then go on"):
            fill(bank)

    assert run_forked(work) == [0]
    (small_disk / "others").unlink()
    bank = opened(small_disk)
    assert torch.equal(bank.read(torch.tensor([1]), torch.tensor([1])), tokens_of(torch.tensor([1]), torch.tensor([1])))
    fill(bank)
    assert_full(opened(small_disk))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_no_data_file_is_mapped_into_memory(tmp_path: Path) -> None:
    """Touching mapped memory on a full disk, or behind the end of a file, would kill the process."""
    bank = opened(tmp_path)
    fill(bank)
    bank.read(*EVERY)
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_a_bank_takes_room_only_for_stored_views(tmp_path: Path) -> None:
    bank = TokenBank(tmp_path / "bank", 1000, VIEWS, LENGTH, DIM, KEY)
    status = (tmp_path / "bank" / "tokens.bin").stat()
    assert status.st_size == 1000 * (VIEWS + 1) * VIEW_BYTES and status.st_blocks == 0
    fill(bank, torch.tensor([900]), torch.tensor([0]))
    assert (tmp_path / "bank" / "tokens.bin").stat().st_blocks * 512 < 10 * VIEW_BYTES + 16384


# --- files of others ---


@pytest.mark.parametrize("name", ["tokens.bin", "filled.bin", "sums.bin"])
def test_files_of_others_are_refused_and_stay(tmp_path: Path, name: str) -> None:
    foreign = tmp_path / "bank" / name
    foreign.parent.mkdir()
    foreign.write_bytes(b"a year of work")
    with pytest.raises(Misuse) as error:
        opened(tmp_path)
    assert str(error.value).startswith(f"{foreign} does not belong to a token bank")
    assert str(error.value).endswith("Give another `views.bank_folder`.")
    assert foreign.read_bytes() == b"a year of work"
    assert [path.name for path in foreign.parent.iterdir()] == [name]


HEADERS = {
    "a list": "[]",
    "another kind": json.dumps({"kind": "savings", "version": 2, **SIZES}),
    "too little": json.dumps({"images": 6}),
    "too much": json.dumps({**SIZES, "interest": 3}),
    "words for numbers": json.dumps({**SIZES, "images": "6"}),
    "numbers for words": json.dumps({**SIZES, "key": 6}),
    "truth for numbers": json.dumps({**SIZES, "images": True}),
    "nothing": json.dumps({**SIZES, "images": 0}),
    "a mark without a version": json.dumps({"kind": "sptnet token bank", **SIZES}),
    "another version": json.dumps({"kind": "sptnet token bank", "version": 3, "parts": 7}),
    "no text": b"\xff\xfe{",
    "half a text": "{",
    "a well": "[" * 100_000,
    "digits": "9" * 5000,
}


@pytest.mark.parametrize("content", HEADERS.values(), ids=HEADERS)
def test_a_header_of_something_else_is_refused(tmp_path: Path, content: str | bytes) -> None:
    header = tmp_path / "bank" / "bank.json"
    header.parent.mkdir()
    content = content if isinstance(content, bytes) else content.encode()
    header.write_bytes(content)
    with pytest.raises((Misuse, Failure), match=r"[Gg]ive another `views.bank_folder`"):
        opened(tmp_path)
    assert header.read_bytes() == content
    assert [path.name for path in header.parent.iterdir()] == ["bank.json"]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bank").write_text("mine")
    with pytest.raises(Misuse, match="is a file, not a folder"):
        opened(tmp_path)


@pytest.mark.parametrize("name", ["tokens.bin", "sums.bin"])
def test_links_are_not_followed(tmp_path: Path, name: str) -> None:
    opened(tmp_path)
    victim, file = tmp_path / "victim", tmp_path / "bank" / name
    victim.write_bytes(b"")
    file.unlink()
    file.symlink_to(victim)
    with pytest.raises(Misuse, match=rf"{name} is a link, a folder or a device"):
        opened(tmp_path)
    assert victim.read_bytes() == b""


def test_the_header_marks_the_bank(tmp_path: Path) -> None:
    opened(tmp_path)
    header = json.loads((tmp_path / "bank" / "bank.json").read_text())
    assert header == {"kind": "sptnet token bank", "version": 2, **SIZES}


# --- kills and power cuts ---


class Killed(BaseException):
    """Stands for the end of the process."""


CHANGES = ("mkdir", "open", "replace", "ftruncate", "pwrite")


def killed_at(step: int, after: bool, work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Stop `work` before or after the given change of the disk; False if it ends earlier."""
    done = 0
    with monkeypatch.context() as patch:
        for name in CHANGES:
            original = getattr(os, name)

            def change(*words: Any, original: Callable[..., Any] = original, **named: Any) -> Any:
                nonlocal done
                done += 1
                if done > step or (done == step and not after):
                    raise Killed
                value = original(*words, **named)
                if done == step:
                    raise Killed
                return value

            patch.setattr(os, name, change)
        try:
            work()
        except Killed:
            return True
    return False


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_what_a_kill_leaves_is_opened_and_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    few = torch.tensor([2, 4]), torch.tensor([0, 1])
    steps = 0
    while killed_at(steps + 1, after, partial(fill_in, tmp_path / str(steps), *few), monkeypatch):
        bank = opened(tmp_path / str(steps))
        stored = bank.filled(*few)
        tokens = bank.read_stored(*few)[0]
        assert torch.equal(tokens[stored], tokens_of(*few)[stored])
        fill(bank)
        assert_full(opened(tmp_path / str(steps)))
        steps += 1
    assert steps > 12, "a folder, a lock, a header, two data files, two views with their checksums"


@pytest.mark.parametrize("lost", [slice(0, VIEW_BYTES), slice(400, 401), slice(VIEW_BYTES - 8, VIEW_BYTES)])
def test_a_checksum_without_its_tokens_is_no_stored_view(tmp_path: Path, lost: slice) -> None:
    """After a power cut blocks of tokens.bin may be zeros although the checksums are there."""
    fill(opened(tmp_path))
    file = tmp_path / "bank" / "tokens.bin"
    content, start = bytearray(file.read_bytes()), (2 * (VIEWS + 1) + 1) * VIEW_BYTES
    content[start + lost.start : start + lost.stop] = bytes(lost.stop - lost.start)
    file.write_bytes(content)
    bank, expected = opened(tmp_path), (EVERY[0] != 2) | (EVERY[1] != 1)
    assert np.array_equal(bank.filled(*EVERY), expected.numpy())
    tokens, stored = opened(tmp_path).read_stored(*EVERY)
    assert np.array_equal(stored, expected.numpy())
    assert torch.equal(tokens[expected], tokens_of(*EVERY)[expected])
    fill(bank)
    assert_full(bank)
    assert_full(opened(tmp_path))


def test_a_view_is_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(opened(tmp_path))
    bank, summed = opened(tmp_path), []

    def counted(tokens: Any) -> Any:
        summed.append(len(tokens))
        return checksums(tokens)

    monkeypatch.setattr(bank_files, "checksums", counted)
    half = EVERY[0][:9], EVERY[1][:9]
    assert bank.filled(*half).all()
    bank.read(*half)
    bank.read(*EVERY)
    bank.filled(*EVERY)
    assert sum(summed) == IMAGES * VIEWS


def test_checksums_notice_what_disks_do() -> None:
    tokens = tokens_of(*EVERY).numpy()
    sums = checksums(tokens)
    assert sums.dtype == np.uint64 and len(set(sums.tolist())) == len(tokens)
    for changed in (np.roll(tokens, 1, axis=1), np.where(np.arange(LENGTH)[:, None] == 3, np.float16(0), tokens)):
        assert (checksums(np.ascontiguousarray(changed)) != sums).all()
    assert (checksums(np.zeros((2, LENGTH, DIM), np.float16)) != 0).all(), "zeros can be stored too"
    assert len(set(checksums(tokens[:, :, :7].copy()).tolist())) == len(tokens), "any number of dimensions"


# --- files that were cut ---


@pytest.mark.parametrize("name", ["tokens.bin", "sums.bin"])
@pytest.mark.parametrize("change", [-1, -100, 1])
def test_a_file_of_another_size_is_refused(tmp_path: Path, name: str, change: int) -> None:
    fill(opened(tmp_path))
    file = tmp_path / "bank" / name
    size = file.stat().st_size
    os.truncate(file, size + change)
    with pytest.raises(Misuse, match=rf"{name} has {size + change} bytes instead of {size}, .* Remove the folder"):
        opened(tmp_path)
    assert file.stat().st_size == size + change


@pytest.mark.parametrize("name", ["tokens.bin", "sums.bin"])
def test_an_empty_file_holds_no_view(tmp_path: Path, name: str) -> None:
    fill(opened(tmp_path))
    os.truncate(tmp_path / "bank" / name, 0)
    bank = opened(tmp_path)
    assert not bank.filled(*EVERY).any()
    fill(bank)
    assert_full(opened(tmp_path))


@pytest.mark.parametrize("name", ["tokens.bin", "sums.bin"])
def test_a_file_that_is_cut_while_open_is_an_error(tmp_path: Path, name: str) -> None:
    fill(opened(tmp_path))
    bank = opened(tmp_path)
    if name == "tokens.bin":
        bank.filled(*EVERY)
    os.truncate(tmp_path / "bank" / name, 100)
    with pytest.raises(Failure, match="was shortened while it was in use"):
        bank.read(*EVERY)


# --- banks of 0.1.0 ---


def old_bank(folder: Path, stored: Tensor | None = None) -> Path:
    """Write a bank as 0.1.0 did: sizes without a mark, tokens, a flag per view."""
    bank = folder / "bank"
    bank.mkdir()
    (bank / "bank.json").write_text(json.dumps(SIZES) + "\n")
    tokens = np.zeros((IMAGES, VIEWS + 1, LENGTH, DIM), np.float16)
    flags = np.zeros((IMAGES, VIEWS + 1), np.bool_)
    if stored is not None:
        images, views = EVERY[0][stored], EVERY[1][stored]
        tokens[images, views], flags[images, views] = tokens_of(images, views).numpy(), True
    tokens.tofile(bank / "tokens.bin")
    flags.tofile(bank / "filled.bin")
    return bank


def test_an_old_bank_is_used_as_it_is(tmp_path: Path) -> None:
    half = EVERY[0] < 3
    folder = old_bank(tmp_path, half)
    bank = opened(tmp_path)
    assert np.array_equal(bank.filled(*EVERY), half.numpy())
    assert torch.equal(bank.read(EVERY[0][half], EVERY[1][half]), tokens_of(EVERY[0][half], EVERY[1][half]))
    fill(bank)
    assert_full(bank)
    assert_full(opened(tmp_path))
    flags = np.fromfile(folder / "filled.bin", np.uint8).reshape(IMAGES, VIEWS + 1)
    assert (flags[:, :VIEWS] == 1).all() and not flags[:, VIEWS].any()
    tokens = np.fromfile(folder / "tokens.bin", np.float16).reshape(IMAGES, VIEWS + 1, LENGTH, DIM)
    assert np.array_equal(tokens[EVERY], tokens_of(*EVERY).numpy())
    assert not (folder / "sums.bin").exists()
    with pytest.raises(Misuse, match="was made from other images, views or weights"):
        opened(tmp_path, "other weights")


@pytest.mark.parametrize("present", [(), ("tokens.bin",)])
@pytest.mark.parametrize("whole", [False, True])
def test_what_a_kill_left_of_an_old_bank_is_filled(tmp_path: Path, present: tuple[str, ...], whole: bool) -> None:
    folder = old_bank(tmp_path)
    for name in {"tokens.bin", "filled.bin"} - set(present):
        (folder / name).unlink()
    for name in present if not whole else ():
        os.truncate(folder / name, 0)
    fill(opened(tmp_path))
    assert_full(opened(tmp_path))


@pytest.mark.parametrize(("name", "size"), [("tokens.bin", 0), ("tokens.bin", 10), ("filled.bin", 10)])
def test_an_old_bank_whose_files_do_not_belong_together_is_refused(tmp_path: Path, name: str, size: int) -> None:
    folder = old_bank(tmp_path, EVERY[0] >= 0)
    os.truncate(folder / name, size)
    with pytest.raises(Misuse, match=rf"{name} has {size} bytes instead of"):
        opened(tmp_path)


# --- several processes ---


@forks
def test_processes_that_fill_one_bank_leave_the_tokens_of_one(tmp_path: Path) -> None:
    def work(seed: int) -> None:
        bank = opened(tmp_path)
        for chosen in torch.randperm(len(EVERY[0]), generator=torch.Generator().manual_seed(seed)).split(2):
            views = EVERY[0][chosen], EVERY[1][chosen]
            missing = torch.from_numpy(~bank.filled(*views))
            if missing.any():
                fill(bank, views[0][missing], views[1][missing])
            assert torch.equal(bank.read(*views), tokens_of(*views))

    assert run_forked(*(partial(work, seed) for seed in range(4))) == [0] * 4
    assert_full(opened(tmp_path))


def test_the_first_tokens_of_a_view_stay(tmp_path: Path) -> None:
    """Processes may round differently; a view must not change under a reader that has verified it."""
    one, other = opened(tmp_path), opened(tmp_path)
    fill(one)
    other.write(*EVERY, tokens_of(*EVERY) + 1)
    assert_full(one)
    assert_full(other)


@forks
def test_of_two_banks_for_one_folder_one_is_made(tmp_path: Path) -> None:
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        codes = run_forked(*(partial(fill_in, folder, *EVERY, key) for key in "abc"))
        assert sorted(codes) == [0, 2, 2]
        key = "abc"[codes.index(0)]
        assert_full(opened(folder, key))


def test_a_bank_is_locked_while_it_is_open(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    lock = tmp_path / "bank" / "bank.lock"
    assert one.n_views == other.n_views, "several may use it"
    with pytest.raises(Locked, match="the bank is being used by process"), hold(lock, "the bank"):
        pass
    del one
    with pytest.raises(Locked), hold(lock, "the bank"):
        pass
    del other
    gc.collect()
    with hold(lock, "the bank"):
        pass
