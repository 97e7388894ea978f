"""Damage files: bytes, text, JSON values, safetensors headers and zip members."""

import io
import json
import random as standard_random
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

Random = standard_random.Random
TOKENS = (
    *(b"\xff\xfe", b"\x00", b"\xc3\x28", b"\xed\xa0\x80", b"\x1b[31m", b"\r", b"\n\n\n", b"\xef\xbb\xbf", b'"', b"'"),
    *(b"nan", b"NaN", b"inf", b"-Infinity", b"1e999", b"-1", b"0", b"null", b"true", b"{}", b"[]", b'""', b"="),
    *(b"9" * 5000, b"[" * 100_000, b'{"a":' * 20_000, b"99999999999999999999", b"2147483648", b"-9223372036854775809"),
    *(b"0.0000001", b"1e30", b"../../../etc/passwd", b"/dev/zero", b"\\u0000", b"\\ud800", b"a" * 70_000, b",,,,"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 10**4400, -(10**30), 0.5, -0.0, 1e-300, 1e30, 1e308),
    *(float("nan"), float("inf"), "", "x", "\x1b[31mred", "\ud800", "a" * 70_000, "..", "/dev/zero", "nan", "1"),
    *([], {}, [None], {"x": None}, [[]], [0] * 10_000, "cpu", "cuda:99", [1, 2], ["a", 1], {"": {}}),
)


def damage_bytes(random: Random, content: bytes) -> bytes:
    """Flip bits, cut, repeat, remove or swap blocks, or insert tokens, a few times."""
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at, length = random.randrange(len(changed) + 1), random.choice((1, 4, 16, 100, 1000))
        block = bytes(changed[at : at + length])
        match random.randrange(8):
            case 0 | 1 if at < len(changed):
                changed[at] ^= 1 << random.randrange(8)
            case 2:
                del changed[at:]
            case 3:
                changed[at:at] = block * random.choice((1, 2, 50))
            case 4:
                del changed[at : at + length]
            case 5:
                other = random.randrange(len(changed) + 1)
                changed[at : at + length] = changed[other : other + length]
            case 6:
                changed[at:at] = random.choice(TOKENS)
            case _:
                changed[at : at + length] = random.randbytes(len(block))
    return bytes(changed)


def damage_text(random: Random, content: bytes) -> bytes:
    """Damage lines or words of a text file."""
    lines = content.split(b"\n")
    at = random.randrange(len(lines))
    match random.randrange(6):
        case 0:
            lines[at:at] = [lines[random.randrange(len(lines))]]
        case 1:
            del lines[at]
        case 2:
            start = lines[at].find(b"=") + 1
            lines[at] = lines[at][:start] + random.choice(TOKENS)
        case 3:
            cells = lines[at].split(b",")
            cells[random.randrange(len(cells))] = random.choice(TOKENS)
            lines[at] = b",".join(cells)
        case 4:
            lines[at] += random.choice((b",", b" ")) + random.choice(TOKENS)
        case _:
            lines[at] = json_text(random, random.choice(VALUES)) if random.random() < 0.5 else random.choice(TOKENS)
    return b"\n".join(lines)


def json_text(random: Random, value: Any) -> bytes:
    """Write JSON, sometimes in an encoding that is not UTF-8."""
    text = _dumps(value)
    return text.encode("utf-16" if random.random() < 0.02 else "utf-8", errors="surrogatepass")


def _dumps(value: Any) -> str:
    import sys

    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(value, ensure_ascii=False)
    finally:
        sys.set_int_max_str_digits(before)


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """List all containers with their keys, to be changed in place."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        _places(inner, found)
    return found


def damage_value(random: Random, value: Any) -> Any:
    """Change the type or value of one entry, remove, add or nest one."""
    places = _places(value, [])
    if not places or random.random() < 0.03:
        return random.choice(VALUES)
    container, key = random.choice(places)
    match random.randrange(7):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[random.choice(("x", "", "__class__", str(key).upper()))] = container[key]
        case 2:
            container[key] = [container[key]]
        case 3:
            container[key] = str(container[key])
        case 4 if isinstance(container[key], int | float):
            container[key] = random.choice((-container[key], container[key] * 10**6, container[key] + 0.5))
        case _:
            container[key] = random.choice(VALUES)
    return value


def damage_json(random: Random, content: bytes) -> bytes:
    """Change a JSON value; one line of a file of JSON lines."""
    text = content.decode("utf-8", errors="surrogatepass")
    try:
        return json_text(random, damage_value(random, json.loads(text)))
    except ValueError:
        lines = text.splitlines(keepends=True) or ["{}"]
        at = random.randrange(len(lines))
        lines[at] = json_text(random, damage_value(random, json.loads(lines[at]))).decode("utf-8", "replace") + "\n"
        return "".join(lines).encode("utf-8", errors="surrogatepass")


def damage_safetensors(random: Random, content: bytes) -> bytes:
    """Change the header of a safetensors file: shapes, types, offsets, metadata."""
    (length,) = struct.unpack("<Q", content[:8])
    if random.random() < 0.1:
        return struct.pack("<Q", random.choice((0, 1, 2**31, 2**63, len(content)))) + content[8:]
    header = json.loads(content[8 : 8 + length])
    facts = header.get("__metadata__", {}).get("sptnet")
    if facts is not None and random.random() < 0.3:
        header["__metadata__"]["sptnet"] = _dumps(damage_value(random, json.loads(facts)))
    else:
        header = damage_value(random, header)
    text = json_text(random, header)
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def damage_zip(random: Random, content: bytes) -> bytes:
    """Change, drop, repeat or blow up a member of a zip archive, such as a checkpoint of torch."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        names = old.namelist()
        chosen = random.choice([*names, *(name for name in names if name.endswith(".pkl"))])
        for name in names:
            data = old.read(name)
            if name == chosen:
                match random.randrange(4):
                    case 0:
                        continue
                    case 1:
                        data = bytes(random.choice((10**6, 3 * 10**8)))
                    case 2:
                        data += data
                    case _:
                        data = damage_bytes(random, data)
            new.writestr(name, data)
    return out.getvalue()


def damage_png(random: Random, content: bytes) -> bytes:
    """Change the header of a PNG file and mend its checksum: huge sizes, other depths and colours."""
    start = content.index(b"IHDR")
    header = bytearray(content[start + 4 : start + 17])
    size = struct.pack(">I", random.choice((0, 1, 2**16, 13_300, 30_000, 2**31 - 1)))
    match random.randrange(3):
        case 0:
            header[0:4] = size
        case 1:
            header[0:8] = size + size
        case _:
            header[8:10] = bytes((random.choice((1, 2, 4, 8, 16, 3)), random.choice((0, 2, 3, 4, 6, 7))))
    checksum = struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return content[: start + 4] + bytes(header) + checksum + content[start + 21 :]


Mutator = Callable[[Random, bytes], bytes]
FORMS: dict[str, tuple[Mutator, ...]] = {
    "json": (damage_json, damage_json, damage_json, damage_bytes, damage_text),
    "text": (damage_text, damage_text, damage_bytes),
    "tensors": (damage_safetensors, damage_safetensors, damage_bytes),
    "zip": (damage_zip, damage_zip, damage_bytes),
    "png": (damage_png, damage_bytes, damage_bytes),
    "bytes": (damage_bytes,),
}


def mutate(random: Random, content: bytes, form: str) -> bytes:
    """Damage a file of some form; the result differs from it."""
    for _ in range(100):
        changed = random.choice(FORMS[form])(random, content)
        if changed != content:
            return changed
    return b""
