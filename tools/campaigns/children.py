"""Commands in processes of their own: forked from this one, which has imported everything, or started anew."""

import ctypes
import faulthandler
import gc
import os
import re
import resource
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST = 60.0
"""Seconds after which a command counts as hanging."""
MOST_MB = 4096
"""Memory that no command may exceed, in MB."""
CURSOR = re.compile(r"\x1b\[\?25[lh]")  # a progress bar hides and shows the cursor of a terminal
MEANT = {0, 1, 2, 129, 130, 143}
"""Exit codes that sptnet gives on purpose."""


@dataclass(frozen=True)
class Ended:
    """End of a command: exit code, minus the number of the signal if a signal ended it; output; peak memory.

    On a terminal, `out` and `err` are both all that was shown.
    """

    code: int
    out: bytes
    err: bytes
    peak_mb: float
    hung: bool = False

    @property
    def last_line(self) -> str:
        """The last line of stderr, or of stdout if there is none."""
        lines = (self.err.strip() or self.out.strip()).decode(errors="replace").splitlines()
        return lines[-1][:300] if lines else ""

    @property
    def complaint(self) -> str:
        """Return how the end breaks the rules; empty for success and for a one-line error."""
        if self.hung:
            return f"no end after {LONGEST:.0f} s"
        if b"Traceback (most recent call last)" in self.out + self.err:
            return f"traceback: {self.last_line}"
        if self.code < 0:
            return f"ended by {signal.Signals(-self.code).name}: {self.last_line}"
        if self.code not in MEANT:
            return f"exit code {self.code}: {self.last_line}"
        if self.peak_mb > MOST_MB:
            return f"{self.peak_mb:.0f} MB of memory"
        return "" if self.code == 0 else self._without_message()

    def _without_message(self) -> str:
        text = CURSOR.sub("", self.err.decode(errors="replace"))
        lines = text.strip().splitlines()
        starts = [i for i, line in enumerate(lines) if line.startswith(("error: ", "stopped"))]
        if starts and not all(line.startswith("  - ") for line in lines[starts[-1] + 1 :]):  # several reasons, listed
            return f"an error of {len(lines) - starts[-1]} lines: {lines[starts[-1]][:300]}"
        explained = bool(starts) or b"not ready for training" in self.out or b"Usage: " in self.err
        return "" if explained else f"exit code {self.code} without an error message: {self.last_line}"


AT_END: list[Callable[[], object]] = []
"""Functions that a forked process calls when its command has ended."""


def nothing() -> None:
    """Prepare nothing."""


class Child:
    """A command in a forked process; `prepare` runs first in it, `work` instead of the command if it is given."""

    def __init__(
        self,
        words: Sequence[object],
        logs: Path,
        prepare: Callable[[], object] = nothing,
        cwd: Path | None = None,
        terminal: bool = False,
    ):
        logs.mkdir(parents=True, exist_ok=True)
        self.out, self.err = logs / "out.txt", logs / "err.txt"
        self._screen = os.openpty() if terminal else None
        self._shown = b""
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            self._run([os.fsdecode(os.fspath(w)) if isinstance(w, Path) else str(w) for w in words], prepare, cwd)
        if self._screen is not None:
            os.close(self._screen[1])
            os.set_blocking(self._screen[0], False)

    def _run(self, words: list[str], prepare: Callable[[], object], cwd: Path | None) -> None:
        code: object = 1
        try:
            self._redirect()
            faulthandler.disable()
            gc.freeze()  # what the parent has made stays in shared pages
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            warnings.simplefilter("ignore")
            if cwd is not None:
                os.chdir(cwd)
            sys.argv = ["sptnet", *words]
            from sptnet.cli import main

            prepare()
            main()
            code = 0
        except SystemExit as leaving:
            code = leaving.code
        except BaseException:
            traceback.print_exc()
        finally:
            for call in AT_END:
                call()
            _leave(code)

    def _redirect(self) -> None:
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        for number, path in ((1, self.out), (2, self.err)):
            file = self._screen[1] if self._screen else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(file, number)
        sys.stdout, sys.stderr = (
            open(n, "w", buffering=1, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
            for n, errors in ((1, "strict"), (2, "backslashreplace"))
        )

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, unless the process has ended."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def wait(self, seconds: float = LONGEST) -> Ended:
        """Wait for the end; kill the process if it takes too long."""
        end, hung, pause = time.monotonic() + seconds, False, 0.001
        while True:
            self._read_screen()
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > end and not hung:
                hung = True
                self.kill()
            time.sleep(pause)
            pause = min(0.02, pause * 1.5)
        self._read_screen()
        code = os.waitstatus_to_exitcode(status)
        if self._screen is not None:
            os.close(self._screen[0])
            shown = self._shown.replace(b"\r\n", b"\n")
            return Ended(code, shown, shown, usage.ru_maxrss / 1024, hung)
        return Ended(code, _content(self.out), _content(self.err), usage.ru_maxrss / 1024, hung)

    def _read_screen(self) -> None:
        while self._screen is not None:
            try:
                piece = os.read(self._screen[0], 65536)
            except OSError:  # nothing to read now, or the other end is closed
                return
            if not piece:
                return
            self._shown += piece


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _leave(code: object) -> None:
    """End the forked process without the clean-up of its parent."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def start_real(words: Sequence[object], logs: Path, processes: int = 1) -> "subprocess.Popen[bytes]":
    """Start the real command line, with torchrun if there are to be several processes."""
    logs.mkdir(parents=True, exist_ok=True)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    program = [sys.executable, *(launcher if processes > 1 else []), "-m", "sptnet", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    with (logs / "out.txt").open("wb") as out, (logs / "err.txt").open("wb") as err:
        return subprocess.Popen(program, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment)


def wait_real(process: "subprocess.Popen[bytes]", logs: Path, seconds: float = LONGEST, address_mb: float = 0) -> Ended:
    """Wait for the end of a real command; kill it and its children if it takes too long.

    `address_mb` limits its address space, which is some gigabytes for torch alone.
    """
    hung = False
    if address_mb and process.poll() is None:
        most = int(address_mb * 2**20)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (most, most))
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        hung = True
        kill_tree(process.pid)
        process.wait()
    return Ended(process.returncode, _content(logs / "out.txt"), _content(logs / "err.txt"), 0.0, hung)


def descendants(pid: int) -> list[int]:
    """Return the children of a process, and theirs."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    for child in parents.get(pid, []):
        found += [child, *descendants(child)]
    return found


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants."""
    for victim in (*descendants(pid), pid):
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue


def limit_memory(more_mb: float = MOST_MB) -> None:
    """Let this process take `more_mb` of address space on top of what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + int(more_mb * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


CAPABILITIES = 0x20080522
"""Version of the structures of `capget` and `capset` (capabilities(7))."""
OVERRIDING = (1 << 1) | (1 << 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, for which permissions of files do not count."""


def obey_permissions() -> None:
    """Let permissions of files count for this process even if it is root's; it stays the owner of its files."""
    library = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITIES, 0)
    rights = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then the same for numbers above 31
    if library.capget(header, rights):
        raise OSError(ctypes.get_errno(), "capget failed")
    rights[0] &= ~OVERRIDING
    rights[1] &= ~OVERRIDING
    if library.capset(header, rights):
        raise OSError(ctypes.get_errno(), "capset failed")
