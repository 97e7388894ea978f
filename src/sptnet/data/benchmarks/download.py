"""Download archives of benchmark data sets, verify their checksums and unpack them."""

import hashlib
import socket
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlparse
from urllib.request import urlopen

from sptnet.errors import Failure, SptnetError
from sptnet.runtime.disk import disk_problems
from sptnet.runtime.files import write_atomically
from sptnet.runtime.progress import bar, say

SECONDS_OF_SILENCE = 30
_CHUNK = 1024 * 1024


@dataclass(frozen=True)
class Archive:
    """URL and checksum of a tar file."""

    url: str
    md5: str

    def fetch_and_unpack(self, folder: Path) -> None:
        """Download into the folder, unless the whole file is already there, and unpack it in the same folder."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / PurePosixPath(urlparse(self.url).path).name
        if file.is_file() and _md5(file) == self.md5:
            say(f"{file} is whole already; it is unpacked again")
        else:
            self._fetch(file)
        try:
            if not hasattr(tarfile, "data_filter"):
                raise tarfile.TarError("Python before 3.11.4 does not check where the files of an archive go")
            with tarfile.open(file) as tar:
                tar.extractall(folder, filter=_files_and_folders)
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise Failure(f"{file} could not be unpacked ({_reason(error)}). Unpack it by hand in {folder}.") from error

    def _fetch(self, file: Path) -> None:
        def fetch(part: Path) -> None:
            with (
                _connection_problems(self.url, f"as {file}"),
                urlopen(self.url, timeout=SECONDS_OF_SILENCE) as response,
                disk_problems(file),
            ):
                length = int(response.headers.get("Content-Length") or 0)
                with part.open("wb") as stream, bar(f"fetching {file.name}", length) as update:
                    _copy(response, stream, update)
            if part.stat().st_size < length:
                raise Failure(
                    f"{self.url} broke off after {part.stat().st_size:,} of {length:,} bytes. "
                    f"Try again, or fetch it by hand as {file}."
                )
            if _md5(part) != self.md5:
                raise Failure(
                    f"what came from {self.url} is not the file that was expected: its checksum differs. "
                    f"Try again, or fetch it by hand as {file}."
                )

        write_atomically(file, fetch)


def from_torchvision(name: str, url: str, **options: str) -> Callable[[Path], None]:
    """Return a function that downloads a data set with the torchvision class of that name."""

    def download(folder: Path) -> None:
        from torchvision import datasets

        folder.mkdir(parents=True, exist_ok=True)
        timeout, filter_ = socket.getdefaulttimeout(), getattr(tarfile.TarFile, "extraction_filter", None)
        socket.setdefaulttimeout(SECONDS_OF_SILENCE)
        # torchvision unpacks without a filter, and FGVC-Aircraft without a checksum.
        tarfile.TarFile.extraction_filter = staticmethod(_files_and_folders)
        try:
            with _connection_problems(url, f"and unpack it in {folder}"):
                getattr(datasets, name)(folder, download=True, **options)
        finally:
            socket.setdefaulttimeout(timeout)
            tarfile.TarFile.extraction_filter = filter_

    return download


@contextmanager
def _connection_problems(url: str, by_hand: str) -> Iterator[None]:
    try:
        yield
    except SptnetError:
        raise
    except (OSError, RuntimeError, HTTPException, EOFError, tarfile.TarError, zlib.error) as error:
        if isinstance(error, HTTPError):
            error.close()  # an HTTPError keeps the connection open
        raise Failure(f"{url} could not be downloaded ({_reason(error)}). Fetch it by hand {by_hand}.") from error


def _reason(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _copy(response: IO[bytes], stream: IO[bytes], update: Callable[[float], None]) -> None:
    done = 0
    while chunk := response.read(_CHUNK):
        stream.write(chunk)
        done += len(chunk)
        update(done)


def _files_and_folders(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """Extraction filter: Python's data filter, which refuses paths outside the folder, and no links either."""
    if not member.isfile() and not member.isdir():
        raise tarfile.TarError(f"{member.name} is neither a file nor a folder")
    return tarfile.data_filter(member, folder)


def _md5(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
