"""Atomic writing: kills at every file operation, links, full disks, and what other processes are writing."""

import errno
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.kills import kill_everywhere
from sptnet.errors import Misuse
from sptnet.runtime.disk import NotWritten, sync_folder
from sptnet.runtime.files import (
    append_line,
    is_temporary,
    make_folder,
    new_folder,
    remove,
    sweep,
    write_atomically,
    write_csv_atomically,
    write_text_atomically,
)
from sptnet.runtime.locks import Locked, claim


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def left_over(target: Path, kind: str = "part") -> Path:
    return target.with_name(f".{target.name}.sptnet-0123456789abcdef.{kind}")


# files


def test_a_kill_at_any_operation_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    def prepare(number: int) -> Callable[[], None]:
        folder = tmp_path / str(number)
        folder.mkdir()
        write_text_atomically(folder / "a.txt", "old")
        return lambda: write_text_atomically(folder / "a.txt", "new")

    found, kills = set(), 0
    for number in kill_everywhere(prepare):
        kills += 1
        file = tmp_path / str(number) / "a.txt"
        found.add(file.read_text())
        assert all(name == "a.txt" or is_temporary(name) for name in names_in(file.parent))
        write_text_atomically(file, "again")
        assert (file.read_text(), names_in(file.parent)) == ("again", ["a.txt"])
    assert found == {"old", "new"} and kills > 6


@pytest.mark.parametrize("name", ["a.txt.part", ".a.txt.part", "a.txt.tmp"])
def test_a_link_at_a_guessed_name_is_not_followed(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / name).symlink_to(victim)
    write_text_atomically(tmp_path / "a.txt", "new")
    write_text_atomically(tmp_path / "a.txt", "newer")
    assert (victim.read_text(), (tmp_path / name).is_symlink()) == ("mine", True)


def test_a_link_at_the_target_is_replaced(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "a.txt").symlink_to(victim)
    write_text_atomically(tmp_path / "a.txt", "new")
    assert (victim.read_text(), (tmp_path / "a.txt").read_text()) == ("mine", "new")
    assert not (tmp_path / "a.txt").is_symlink()


def test_a_link_with_the_name_of_a_left_over_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    left_over(tmp_path / "a.txt").symlink_to(tmp_path / "victim")
    write_text_atomically(tmp_path / "a.txt", "new")
    assert left_over(tmp_path / "a.txt").is_symlink() and (tmp_path / "victim").is_dir()


def test_any_exception_removes_the_temporary_file(tmp_path: Path) -> None:
    def stopped(part: Path) -> None:
        part.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a.txt", stopped)
    assert names_in(tmp_path) == []


def test_permissions_are_the_default_ones_whatever_the_writer_does(tmp_path: Path) -> None:
    plain, private = tmp_path / "plain", tmp_path / "private"
    plain.touch()
    write_atomically(private, lambda part: part.chmod(0o600))
    assert stat.S_IMODE(private.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


@pytest.mark.parametrize("name", ["n" * 255, "ä" * 127, "x" * 199 + "ä" * 20])
def test_names_as_long_as_the_file_system_allows(tmp_path: Path, name: str) -> None:
    write_text_atomically(tmp_path / name, "new")
    with new_folder(tmp_path / (name[:-1] + "f")) as fresh:
        (fresh / "inside").touch()
    assert names_in(tmp_path) == sorted([name, name[:-1] + "f"])


def test_of_equal_beginnings_only_the_own_left_overs_are_swept(tmp_path: Path) -> None:
    for name in ("a", "a.txt", "a.txt.csv"):
        left_over(tmp_path / name).mkdir()
    write_text_atomically(tmp_path / "a.txt", "new")
    assert names_in(tmp_path) == sorted([left_over(Path("a.txt.csv")).name, left_over(Path("a")).name, "a.txt"])
    sweep(tmp_path)
    assert names_in(tmp_path) == ["a.txt"]


def test_what_another_process_is_writing_is_not_swept(tmp_path: Path) -> None:
    theirs = left_over(tmp_path / "a.txt")
    theirs.mkdir()
    with claim(theirs) as claimed:
        assert claimed
        write_text_atomically(tmp_path / "a.txt", "new")
        assert names_in(tmp_path) == [theirs.name, "a.txt"]
    write_text_atomically(tmp_path / "a.txt", "newer")
    assert names_in(tmp_path) == ["a.txt"]


def test_what_another_user_has_left_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_over(tmp_path / "a.txt").mkdir()
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    write_text_atomically(tmp_path / "a.txt", "new")
    assert left_over(tmp_path / "a.txt").exists()


def test_names_that_only_look_alike_are_no_temporaries() -> None:
    assert is_temporary(".model.sptnet-0123456789abcdef.old")
    for name in ("model.part", ".model.part", ".model.sptnet-0123.part", "a.sptnet-0123456789abcdef.part"):
        assert not is_temporary(name)


# the disk


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "Make room, then try again."),
        (errno.EDQUOT, "Make room in your quota, then try again."),
        (errno.EROFS, "Make the disk writable, then try again."),
        (errno.EIO, "Check the disk, then try again."),
    ],
)
def test_a_disk_that_refuses_is_told_in_one_line(tmp_path: Path, number: int, remedy: str) -> None:
    path = tmp_path / "a.txt"
    write_text_atomically(path, "old")

    def refused(part: Path) -> None:
        part.write_text("half")
        raise OSError(number, os.strerror(number))

    with pytest.raises(NotWritten) as error:
        write_atomically(path, refused)
    assert str(error.value) == f"{path} could not be written ({os.strerror(number)}). {remedy}"
    assert (path.read_text(), names_in(tmp_path)) == ("old", ["a.txt"])


def test_an_error_that_is_not_the_disks_stays_as_it_is(tmp_path: Path) -> None:
    for error in (FileNotFoundError(errno.ENOENT, "no such file", "x"), PermissionError(errno.EACCES, "no", "/x/y")):

        def fails(part: Path, error: OSError = error) -> None:
            raise error

        with pytest.raises(type(error)):
            write_atomically(tmp_path / "a.txt", fails)


def test_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, mode: int = 0o777) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "mkdir", refused)
    with pytest.raises(NotWritten, match=r"a\.txt could not be written \(Permission denied\)\. Change the permissions"):
        write_text_atomically(tmp_path / "a.txt", "new")


FULL = """
import resource, sys
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file
from sptnet.runtime.disk import NotWritten
from sptnet.runtime.files import append_line, write_atomically, write_text_atomically

folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
append_line(folder / "log", "x" * 3000)
for name, write in {
    "tensors": lambda path: write_atomically(path, lambda part: save_file({"a": np.zeros(9999)}, part)),
    "text": lambda path: write_text_atomically(path, "x" * 9999),
    "log": lambda path: append_line(path, "y" * 3000),
}.items():
    try:
        write(folder / name)
    except NotWritten as error:
        print(error)
"""


def test_safetensors_and_text_on_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    """The limit on the size of files is the nearest to a full disk that needs no disk."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines() == [
        f"{tmp_path / name} could not be written (File too large). Raise the limit on the size of files, then try "
        "again."
        for name in ("tensors", "text", "log")
    ]
    assert names_in(tmp_path) == ["log"]
    assert (tmp_path / "log").read_text() == "x" * 3000 + "\n", "no half of a line is left"


# lines


def test_a_line_is_synced_and_the_new_file_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    sync = os.fsync

    def watched(file: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(file).st_mode))
        sync(file)

    monkeypatch.setattr(os, "fsync", watched)
    append_line(tmp_path / "log", "one")
    append_line(tmp_path / "log", "zwei ä")
    assert (tmp_path / "log").read_bytes() == "one\nzwei ä\n".encode()
    assert synced == [False, True, False], "the line and the folder, then the line"


def test_a_line_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "log").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        append_line(tmp_path / "log", "line")
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_folder_that_cannot_be_synced_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(number: int) -> Callable[[int], None]:
        def sync(file: int) -> None:
            raise OSError(number, os.strerror(number))

        return sync

    monkeypatch.setattr(os, "fsync", refused(errno.EINVAL))
    sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", refused(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        sync_folder(tmp_path)


# folders


def fill(folder: Path, text: str) -> None:
    with new_folder(folder) as fresh:
        (fresh / "inside").write_text(text)
        (fresh / "sub").mkdir()
        (fresh / "sub" / "more").write_text(text)


def test_a_kill_at_any_operation_leaves_a_whole_folder(tmp_path: Path) -> None:
    def prepare(number: int) -> Callable[[], None]:
        fill(tmp_path / str(number) / "model", "old")
        return lambda: fill(tmp_path / str(number) / "model", "new")

    found, aside = set(), 0
    for number in kill_everywhere(prepare):
        folder = tmp_path / str(number) / "model"
        aside += not folder.exists()
        sweep(folder.parent)
        found.add((folder / "inside").read_text())
        assert names_in(folder.parent) == ["model"]
        assert (folder / "sub" / "more").read_text() == (folder / "inside").read_text()
        fill(folder, "again")
        assert ((folder / "inside").read_text(), names_in(folder.parent)) == ("again", ["model"])
    assert found == {"old", "new"}
    assert aside > 0, "the state between the two renames was reached"


def test_the_next_writer_heals_as_well(tmp_path: Path) -> None:
    for state in ("old", "part", "both", "missing"):
        folder = tmp_path / state / "model"
        fill(folder, "first")
        if state in ("old", "both"):
            left_over(folder, "old").mkdir()
        if state in ("part", "both"):
            left_over(folder).mkdir()
        if state == "missing":
            folder.rename(left_over(folder, "old"))
        fill(folder, "second")
        assert ((folder / "inside").read_text(), names_in(folder.parent)) == ("second", ["model"])


def test_an_exception_keeps_the_old_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    fill(folder, "old")
    with pytest.raises(KeyboardInterrupt), new_folder(folder) as fresh:
        (fresh / "inside").write_text("new")
        raise KeyboardInterrupt
    assert ((folder / "inside").read_text(), names_in(tmp_path)) == ("old", ["model"])


def test_a_check_of_the_old_folder_may_keep_it(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    fill(folder, "old")

    def refuse(old: Path) -> None:
        assert (old / "inside").read_text() == "old"
        raise Misuse("not this one")

    with pytest.raises(Misuse, match="not this one"), new_folder(folder, refuse) as fresh:
        (fresh / "inside").write_text("new")
    assert ((folder / "inside").read_text(), names_in(tmp_path)) == ("old", ["model"])


def test_of_a_link_only_the_link_is_replaced_or_removed(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "photo").write_text("mine")
    (tmp_path / "model").symlink_to(theirs)
    fill(tmp_path / "model", "new")
    assert not (tmp_path / "model").is_symlink() and (theirs / "photo").read_text() == "mine"
    (tmp_path / "link").symlink_to(theirs)
    remove(tmp_path / "link")
    assert names_in(tmp_path) == ["model", "theirs"] and names_in(theirs) == ["photo"]


def test_a_folder_that_another_process_replaces(tmp_path: Path) -> None:
    fill(tmp_path / "model", "old")
    with claim(tmp_path / "model"), pytest.raises(Locked, match=r"model is being replaced by another process"):
        fill(tmp_path / "model", "new")
    assert (tmp_path / "model" / "inside").read_text() == "old"
    assert names_in(tmp_path) == ["model"]


def test_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_table_appears_when_it_is_whole(tmp_path: Path) -> None:
    def rows() -> list[list[str]]:
        assert not (tmp_path / "a.csv").exists()
        return [["1", "2"]]

    write_csv_atomically(tmp_path / "a.csv", ("x", "y"), (row for row in rows()))
    assert re.split(r"\r?\n", (tmp_path / "a.csv").read_text()) == ["x,y", "1,2", ""]
