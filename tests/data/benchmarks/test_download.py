"""Downloads from a local server: complete, wrong, cut short, missing."""

import errno
import functools
import hashlib
import io
import os
import socket
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest
import torchvision

from sptnet.data.benchmarks import BENCHMARKS, find_download
from sptnet.data.benchmarks.download import SECONDS_OF_SILENCE, Archive, from_torchvision
from sptnet.errors import Failure, Misuse


def tar_of(**contents: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, text in contents.items():
            entry = tarfile.TarInfo(name.replace("__", "/"))
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return stream.getvalue()


@dataclass
class Server:
    """Serve `files`; those in `cut` end after so many bytes, though the whole length is announced."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    def __init__(self, server: Server, *arguments: Any) -> None:
        self.ours = server
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self.ours.asked.append(self.path)
        content = self.ours.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: self.ours.cut.get(self.path)])

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    ours = Server()
    http = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, ours))
    ours.address = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield ours
    http.shutdown()
    http.server_close()
    thread.join()


GOOD = tar_of(Set__list="1 a", notes="read me")


def archive(server: Server, content: bytes, md5: str | None = None) -> Archive:
    server.files["/set.tgz?download=1"] = content
    return Archive(f"{server.address}/set.tgz?download=1", md5 or md5_of(content))


def md5_of(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def test_a_good_file_is_fetched_and_unpacked_once(server: Server, tmp_path: Path) -> None:
    ours = archive(server, GOOD)
    ours.fetch_and_unpack(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == ["Set", "notes", "set.tgz"]
    assert (folder / "Set" / "list").read_text() == "1 a"
    (folder / "Set" / "list").unlink()
    ours.fetch_and_unpack(folder)
    assert (folder / "Set" / "list").read_text() == "1 a"
    assert server.asked == ["/set.tgz?download=1"]


def test_an_old_file_that_is_not_whole_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.tgz").write_bytes(GOOD[:50])
    archive(server, GOOD).fetch_and_unpack(tmp_path)
    assert (tmp_path / "set.tgz").read_bytes() == GOOD


def test_a_wrong_checksum_is_refused_and_nothing_stays(server: Server, tmp_path: Path) -> None:
    with pytest.raises(
        Failure,
        match=rf"^what came from {server.address}/set\.tgz\?download=1 is not the file that was "
        rf"expected: its checksum differs\. Try again, or fetch it by hand as {tmp_path}/set\.tgz\.$",
    ):
        archive(server, GOOD, md5="0" * 32).fetch_and_unpack(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_breaks_off_says_how_far_it_came(server: Server, tmp_path: Path) -> None:
    server.cut["/set.tgz?download=1"] = 40
    with pytest.raises(
        Failure,
        match=rf"set\.tgz\?download=1 broke off after 40 of {len(GOOD)} bytes\. Try again, or fetch it by hand as",
    ):
        archive(server, GOOD).fetch_and_unpack(tmp_path)
    assert list(tmp_path.iterdir()) == []
    server.cut.clear()
    archive(server, GOOD).fetch_and_unpack(tmp_path)
    assert (tmp_path / "set.tgz").read_bytes() == GOOD


def test_a_page_that_is_not_there(server: Server, tmp_path: Path) -> None:
    ours = Archive(f"{server.address}/other.tgz", "0" * 32)
    with pytest.raises(
        Failure,
        match=rf"/other\.tgz could not be downloaded \(HTTP Error 404: Not Found\)\. "
        rf"Fetch it by hand as {tmp_path}/other\.tgz\.$",
    ) as caught:
        ours.fetch_and_unpack(tmp_path)
    assert isinstance(caught.value.__cause__, HTTPError)
    assert caught.value.__cause__.fp.closed, "the connection stays open"


def test_no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/set.tgz"
    with pytest.raises(Failure, match=rf"^{url} could not be downloaded \(.*refused.*\)\. Fetch it by hand as"):
        Archive(url, "0" * 32).fetch_and_unpack(tmp_path)


def test_an_archive_cannot_write_outside_its_folder(server: Server, tmp_path: Path) -> None:
    hostile = tar_of(**{"..__outside": "x"})
    with pytest.raises(Failure, match=r"set\.tgz could not be unpacked \(.*outside the destination\)\. Unpack it by"):
        archive(server, hostile).fetch_and_unpack(tmp_path / "folder")
    assert not (tmp_path / "outside").exists()


def with_a_link() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        folder, link = tarfile.TarInfo("inner"), tarfile.TarInfo("inner/link")
        folder.type, link.type, link.linkname = tarfile.DIRTYPE, tarfile.SYMTYPE, "/"
        tar.addfile(folder)
        tar.addfile(link)
    return stream.getvalue()


def test_an_archive_has_files_and_folders_only(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"could not be unpacked \(inner/link is neither a file nor a folder\)"):
        archive(server, with_a_link()).fetch_and_unpack(tmp_path)
    assert (tmp_path / "inner").is_dir()
    assert list((tmp_path / "inner").iterdir()) == []


@pytest.mark.parametrize("content", [b"no archive", GOOD[:-30]], ids=["no archive", "cut off"])
def test_a_damaged_archive_is_named(server: Server, tmp_path: Path, content: bytes) -> None:
    with pytest.raises(Failure, match=r"set\.tgz could not be unpacked \(.*\)\. Unpack it by hand in"):
        archive(server, content).fetch_and_unpack(tmp_path)


def test_torchvision_is_called_with_the_right_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def fake(name: str) -> Any:
        def build(root: Path, **options: Any) -> None:
            assert root.is_dir()
            assert socket.getdefaulttimeout() == SECONDS_OF_SILENCE
            asked.append((name, root, options))

        return build

    for name in ("CIFAR10", "CIFAR100", "FashionMNIST", "FGVCAircraft"):
        monkeypatch.setattr(torchvision.datasets, name, fake(name))
    for name in ("cifar10", "cifar100", "fashion_mnist", "aircraft"):
        download = BENCHMARKS[name].download
        assert download is not None
        download(tmp_path / name)
    whole = {"download": True}
    assert asked == [
        ("CIFAR10", tmp_path / "cifar10", whole),
        ("CIFAR100", tmp_path / "cifar100", whole),
        ("FashionMNIST", tmp_path / "fashion_mnist", whole),
        ("FGVCAircraft", tmp_path / "aircraft", whole | {"split": "trainval", "annotation_level": "variant"}),
    ]
    assert socket.getdefaulttimeout() is None


@pytest.mark.parametrize(
    "error", [URLError("no network"), RuntimeError("File not found or corrupted."), EOFError("cut")]
)
def test_what_torchvision_raises_becomes_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    def fail(root: Path, **options: Any) -> None:
        raise error

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", fail)
    with pytest.raises(Failure) as caught:
        from_torchvision("CIFAR10", "https://there/cifar.tar.gz")(tmp_path)
    reason = f"https://there/cifar.tar.gz could not be downloaded ({error}). "
    assert str(caught.value) == f"{reason}Fetch it by hand and unpack it in {tmp_path}."


@pytest.mark.parametrize("hostile", [tar_of(**{"..__outside": "x"}), with_a_link()], ids=["outside", "link"])
def test_torchvision_cannot_write_outside_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hostile: bytes
) -> None:
    def unpack(root: Path, **options: Any) -> None:
        (root / "set.tgz").write_bytes(hostile)
        torchvision.datasets.utils.extract_archive(root / "set.tgz")

    monkeypatch.setattr(torchvision.datasets, "FGVCAircraft", unpack)
    with pytest.raises(Failure, match=r"could not be downloaded \(.*(outside the destination|neither a file nor a)"):
        from_torchvision("FGVCAircraft", "https://there/set.tgz")(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert not (tmp_path / "folder" / "inner" / "link").is_symlink()
    assert tarfile.TarFile.extraction_filter is None


def test_without_extraction_filters_the_archive_is_left_packed(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(Failure, match=r"could not be unpacked \(Python before 3\.11\.4 .*\)\. Unpack it by hand"):
        archive(server, GOOD).fetch_and_unpack(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["set.tgz"]


def test_cub_is_downloaded_from_its_original_page() -> None:
    from sptnet.data.benchmarks.cub import ARCHIVE, CUB

    assert ARCHIVE.url == "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz"
    assert ARCHIVE.md5 == "97eceeb196236b17998738112f37df78"
    assert CUB.download == ARCHIVE.fetch_and_unpack


def test_a_reason_is_one_line_and_never_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for error, reason in ((TimeoutError(), "TimeoutError"), (RuntimeError("first\nsecond"), "first")):
        monkeypatch.setattr(torchvision.datasets, "CIFAR10", lambda *_, error=error, **__: (_ for _ in ()).throw(error))
        with pytest.raises(Failure, match=rf"could not be downloaded \({reason}\)\. Fetch"):
            from_torchvision("CIFAR10", "https://there")(tmp_path)


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_a_download_is_found_by_name_or_refused(name: str) -> None:
    benchmark = BENCHMARKS[name]
    if benchmark.download is not None:
        assert find_download(name) is benchmark.download
    else:
        with pytest.raises(Misuse) as error:
            find_download(name)
        assert str(error.value) == f"{name} cannot be downloaded from here. {benchmark.where}"


def test_a_link_at_a_guessed_name_is_not_followed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "set.tgz.part").symlink_to(tmp_path / "victim")
    archive(server, GOOD).fetch_and_unpack(tmp_path)
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_full_disk_is_not_blamed_on_the_network(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sptnet.data.benchmarks.download._copy", full)
    with pytest.raises(Failure, match=r"set\.tgz could not be written \(No space left on device\)\. Make room, then"):
        archive(server, GOOD).fetch_and_unpack(tmp_path)
    assert list(tmp_path.iterdir()) == []
