"""Readers of text files: whatever is in a file, one line names the file, the reason and the way out."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sptnet.errors import Failure, Misuse, SptnetError
from sptnet.runtime.readers import (
    FileShape,
    check_shape,
    one_line,
    parse_json,
    parse_toml,
    read_csv,
    read_json,
    read_json_lines,
    read_text,
    reading,
    shown,
)

WAY_OUT = "Copy it again."
HUGE = "9" * 5000


class Pet(FileShape):
    name: str
    age: int = 0


def as_text(path: Path) -> object:
    return read_text(path, WAY_OUT)


def as_json(path: Path) -> object:
    return read_json(path, WAY_OUT, Pet)


def as_lines(path: Path) -> object:
    return read_json_lines(path, WAY_OUT, lambda value: check_shape(value, Pet))


def as_csv(path: Path) -> object:
    return read_csv(path, WAY_OUT)


def as_toml(path: Path) -> object:
    with reading(path, WAY_OUT):
        return parse_toml(path.read_text(encoding="utf-8"))


def refusal(read: Callable[[Path], object], path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(Failure) as error:
        read(path)
    message = str(error.value)
    assert "\n" not in message
    assert str(path) in message and message.endswith(f". {WAY_OUT}")
    assert len(message) < 500
    return message.replace(str(path), "FILE").removesuffix(f". {WAY_OUT}")


@pytest.mark.parametrize(
    ("read", "content", "says"),
    [
        (as_text, b"caf\xe9", "FILE is damaged ('utf-8' codec can't decode byte 0xe9 in position 3: unexpected end"),
        (as_json, b"\xff\xfe{\x00}\x00", "FILE is damaged ('utf-8' codec can't decode byte 0xff"),
        (as_json, b"", "FILE is damaged (Expecting value: line 1 column 1 (char 0))"),
        (as_json, b"\0" * 20, "FILE is damaged (Expecting value"),
        (as_json, b'{"name": "a"', "FILE is damaged (Expecting ',' delimiter"),
        (as_json, b"[" * 100_000, "FILE is damaged (it is nested more than 50 levels deep)"),
        (as_json, b"[" * 60 + b"]" * 60, "FILE is damaged (it is nested more than 50 levels deep)"),
        (as_json, b'{"a":' * 100_000, "FILE is damaged (it is nested more than 50 levels deep)"),
        (as_json, HUGE.encode(), "FILE is damaged (Exceeds the limit (4300 digits) for integer string conversion: val"),
        (as_json, b'{"name": "a", "age": NaN}', "FILE is damaged (NaN is not valid JSON)"),
        (as_json, b'{"name": "a", "age": -Infinity}', "FILE is damaged (-Infinity is not valid JSON)"),
        (as_json, b"[]", "FILE is damaged (content: input should be a valid dictionary or instance of Pet)"),
        (as_json, b"{}", "FILE is damaged (name: field required)"),
        (as_json, b'{"name": 3}', "FILE is damaged (name: input should be a valid string)"),
        (as_json, b'{"name": "a", "age": "3"}', "FILE is damaged (age: input should be a valid integer)"),
        (as_json, b'{"name": "a", "age": true}', "FILE is damaged (age: input should be a valid integer)"),
        (as_lines, b'{"name": "a"}\n\n{"name": ', "line 3 of FILE is damaged (Expecting value"),
        (as_lines, b'{"name": "a"}\n{"name": 1}\n', "line 2 of FILE is damaged (name: input should be a valid string)"),
        (as_lines, b"[" * 100_000, "line 1 of FILE is damaged (it is nested"),
        (as_csv, b'a,b\n"1,2\n', "FILE is damaged (unexpected end of data)"),
        (as_csv, b"a,b\n" + b"1" * 200_000, "FILE is damaged (field larger than field limit"),
        (as_csv, b"a,b\n\xff,1\n", "FILE is damaged ('utf-8' codec can't decode"),
        (as_toml, b"a = [" * 50_000, "FILE is damaged ("),
        (as_toml, b"a = " + b"[" * 50_000, "FILE is damaged (it is nested more than 50 levels deep)"),
        (as_toml, b"a = " + b"[" * 60 + b"]" * 60, "FILE is damaged (it is nested more than 50 levels deep)"),
        (as_toml, b".".join([b"a"] * 200_000) + b" = 1", "FILE is damaged (a key has more than 50 parts)"),
        (as_toml, b' . "b" . '.join([b"a"] * 100_000) + b" = 1", "FILE is damaged (a key has more than 50 parts)"),
        (as_toml, f"a = {HUGE}".encode(), "FILE is damaged (Exceeds the limit (4300 digits)"),
        (as_toml, b"a = 0x" + b"f" * 5000, "FILE is damaged (a whole number has more than 64 bits)"),
        (as_toml, b"a = [{b = 9223372036854775808}]", "FILE is damaged (a whole number has more than 64 bits)"),
        (as_toml, b"a = 1\na = 2", "FILE is damaged (Cannot overwrite a value"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_damaged_file_is_one_line(read: Callable[[Path], object], content: bytes, says: str, tmp_path: Path) -> None:
    assert refusal(read, tmp_path / "file", content).startswith(says)


@pytest.mark.parametrize("read", [as_text, as_json, as_lines, as_csv])
def test_what_is_no_file_is_one_line(read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path, reason in ((tmp_path / "folder", "(not a file|Is a directory)"), (tmp_path / "none", "No such file")):
        with pytest.raises(Failure, match=rf"{path} cannot be read \(.*{reason}.*\)\. {WAY_OUT}$"):
            read(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (as_text, as_json, as_lines, as_csv):
        with pytest.raises(Failure, match=r"pipe cannot be read \(it is not a file\)"):
            read(tmp_path / "pipe")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch(mode=0o000)
    with pytest.raises(Failure, match=r"cannot be read \(Permission denied\)"):
        as_text(tmp_path / "file")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as stream:
        stream.truncate(2**40)  # sparse
    with pytest.raises(Failure, match=r"it has 1,099,511,627,776 bytes, and such a file has at most 67,108,864\)"):
        as_json(path)


def test_the_caller_chooses_the_kind_and_the_wording(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{")
    with pytest.raises(Misuse, match=r"file is no list \(Expecting .*\)\. Give one\.$"):
        read_json(tmp_path / "file", "Give one.", error=Misuse, says="is no list")


def test_a_last_line_may_be_cut(tmp_path: Path) -> None:
    (tmp_path / "file").write_text('{"a": 1}\r\n\r\n{"a": 2}\n{"a":')
    assert read_json_lines(tmp_path / "file", WAY_OUT, lambda value: value["a"], only_whole=True) == [1, 2]


def test_names_that_are_not_utf8_come_back(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(json.dumps("a\udcff", ensure_ascii=False).encode("utf-8", "surrogatepass"))
    assert read_json(tmp_path / "file", WAY_OUT, errors="surrogatepass") == "a\udcff"


def test_a_reason_is_short_and_printable() -> None:
    assert one_line("a\nb `c`") == "a b 'c'"
    assert one_line("\x1b[31m") == "'\\x1b[31m'"
    assert len(one_line("x" * 10_000)) == 303


def test_values_without_a_text_are_shown() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(10**5000) == "a int that is too long to show"
    assert shown(deep) == "a list that is too long to show"
    assert shown("x" * 200) == "'" + "x" * 79 + "..."
    assert shown(0.5) == "0.5"
    while deep:
        deep = deep[0]  # one by one, as the interpreter cannot free so many levels at once


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutated") / "file"


GOOD = [b'{"name": "a", "age": 3}\n', b'{"name": "b"}\n{"name": "c"}\n', b"a = 1\n[b]\nc = [0.5, 1e9]\n", b"a,b\n1,2\n"]
BYTES = st.sampled_from([0, 9, 10, 34, 44, 45, 46, 48, 57, 61, 69, 91, 92, 93, 123, 125, 128, 192, 239, 255])
CHANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 4), st.lists(BYTES, max_size=4)), min_size=1, max_size=4
)


@given(start=st.sampled_from(GOOD), changes=CHANGES)
@settings(max_examples=150, deadline=None)
def test_any_bytes_give_a_value_or_one_line(
    file: Path, start: bytes, changes: list[tuple[int, int, list[int]]]
) -> None:
    content = bytearray(start)
    for position, length, new in changes:
        content[position : position + length] = bytes(new)
    file.write_bytes(content)
    for read in (as_text, as_json, as_lines, as_csv, as_toml):
        try:
            read(file)
        except SptnetError as error:
            assert "\n" not in str(error) and str(file) in str(error)


@given(st.text(max_size=40))
@settings(max_examples=100, deadline=None)
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    for parse in (parse_json, parse_toml):
        try:
            parse(text)
        except ValueError as error:
            assert str(error)
