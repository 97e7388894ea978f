"""Locks between processes: who holds them, how long the others wait, and what a kill leaves."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sptnet.errors import Misuse
from sptnet.runtime import locks
from sptnet.runtime.locks import Locked, check_free, claim, hold, is_lock_file

HOLD = """
import sys
from pathlib import Path
from sptnet.runtime.locks import hold

with hold(Path(sys.argv[1]), "the run x", shared="shared" in sys.argv, wait=float(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


class Holder:
    """Another process that holds a lock until it is let go."""

    def __init__(self, path: Path, wait: str = "0", *words: str):
        command = [sys.executable, "-c", HOLD, str(path), wait, *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if wait == "0":
            self.wait()

    def wait(self) -> None:
        """Wait until it holds the lock."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def let_go(self) -> None:
        self.process.communicate(timeout=60)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=60)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(locks, "say", lines.append)
    return lines


def test_the_second_process_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    other = Holder(path)
    words = (
        rf"^the run x is being written by process {other.process.pid} on \S+ since \d{{4}}-\d\d-\d\d \d\d:\d\d\. Wait"
    )
    for attempt in (lambda: hold(path, "the run x"), lambda: hold(path, "the run x", wait=0.1)):
        with pytest.raises(Locked, match=words), attempt():
            pytest.fail("two processes hold it")
    with pytest.raises(Locked, match=words):
        check_free(path, "the run x")
    other.let_go()
    check_free(path, "the run x")
    with hold(path, "the run x"):
        assert json.loads(path.read_text())["process"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_kill_releases_the_lock_and_its_file_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    other = Holder(path)
    other.kill()
    assert is_lock_file(path)
    check_free(path, "it")
    with hold(path, "it"):
        assert json.loads(path.read_text())["process"] == os.getpid()


def test_waiting_for_the_other(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    other = Holder(path)
    second = Holder(path, "60")
    other.let_go()
    second.wait()
    with pytest.raises(Locked, match=f"by process {second.process.pid} "):
        check_free(path, "it")
    second.let_go()


def test_shared_locks_exclude_only_exclusive_ones(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    other = Holder(path, "0", "shared")
    written, used = (rf"the bank is being {use} by process \d+" for use in ("written", "used"))
    with hold(path, "the bank", shared=True), pytest.raises(Locked, match=used), hold(path, "the bank"):
        pytest.fail("it is shared")
    other.let_go()
    with hold(path, "the bank"), pytest.raises(Locked, match=written), hold(path, "the bank", shared=True):
        pytest.fail("it is not shared")


def test_a_forked_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    """Workers of a loader outlive a killed parent for some seconds."""
    path = tmp_path / ".lock"
    read, write = os.pipe()
    with hold(path, "it"):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # until the parent closes its end
            os._exit(0)
    os.close(read)
    with hold(path, "it"):
        pass
    os.close(write)
    os.waitpid(child, 0)


def test_an_exception_in_a_forked_process_leaves_the_lock_of_the_parent(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with hold(path, "it"):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(ZeroDivisionError), hold(tmp_path / ".other", "it"):
                    raise ZeroDivisionError
                code = 0 if path.exists() else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(Locked), hold(path, "it"):
            pytest.fail("the parent holds it")


@pytest.mark.parametrize("content", ["notes of mine\n", '{"a": 1}\n', '{"sptnet": 1}\n'])
def test_a_file_of_another_kind_is_not_written_to(tmp_path: Path, content: str) -> None:
    path = tmp_path / ".lock"
    path.write_text(content)
    with pytest.raises(Misuse, match=r"\.lock is not a lock file of sptnet\. Move it away"), hold(path, "it"):
        pytest.fail("it is not a lock")
    assert path.read_text() == content
    assert not is_lock_file(path)


def test_links_folders_and_pipes_are_no_locks(tmp_path: Path) -> None:
    (tmp_path / "victim").touch()
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "folder", "pipe"):
        with pytest.raises(Misuse, match="is not a lock file of sptnet"), hold(tmp_path / name, "it"):
            pytest.fail("it is not a lock")
        assert not is_lock_file(tmp_path / name)
        check_free(tmp_path / name, "it")
    assert (tmp_path / "victim").read_text() == ""


@pytest.mark.parametrize("length", [0, 1, 10, 17, 30, 60])
def test_a_record_that_was_cut_off_is_taken_over(tmp_path: Path, length: int) -> None:
    path = tmp_path / ".lock"
    with hold(path, "it"):
        whole = path.read_bytes()
    for left in (whole[:length], bytes(length)):
        path.write_bytes(left)
        assert is_lock_file(path)
        with hold(path, "it"):
            assert path.read_bytes().startswith(b'{"sptnet": "lock", ')


def test_the_end_of_a_longer_record_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    record = {"sptnet": "lock", "use": "exclusive", "process": 1, "host": "a host with a long name", "since": 0}
    path.write_text(json.dumps(record) + '\ng name", "since": 0}\n')
    assert is_lock_file(path)
    with hold(path, "it"):
        assert path.read_text().count("\n") == 1


def test_a_hostile_record_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    record = {"sptnet": "lock", "use": "shared", "process": 1, "host": "a\x1b[31mb", "since": 0}
    with hold(path, "it"):
        path.write_text(json.dumps(record) + "\n")
        with pytest.raises(Locked) as error:
            check_free(path, "it")
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_used_with_a_warning(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def unsupported(file: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with hold(tmp_path / ".lock", "it"), claim(tmp_path) as claimed:
        assert claimed is None
    assert said == [
        f"warning: {tmp_path / '.lock'} cannot be locked (the file system has no locks). Make sure that no other "
        "process writes here."
    ]


def test_a_read_only_folder_is_used_with_a_warning(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*args: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        with hold(tmp_path / ".lock", "it"):
            pass
    assert len(said) == 1 and "(Read-only file system)" in said[0]


def test_other_errors_are_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError), hold(tmp_path / "nowhere" / ".lock", "it"):
        pytest.fail("there is no such folder")

    def broken(file: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)), hold(tmp_path / ".lock", "it"):
        pytest.fail("it is broken")


def test_platforms_without_locks_do_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "HAS_LOCKS", False)
    with hold(tmp_path / ".lock", "it"), hold(tmp_path / ".lock", "it"), claim(tmp_path) as claimed:
        assert claimed is None
    check_free(tmp_path / ".lock", "it")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_claimed_by_one_process(tmp_path: Path) -> None:
    with claim(tmp_path) as first, claim(tmp_path) as second, claim(tmp_path / "nowhere") as missing:
        assert (first, second, missing) == (True, False, False)
