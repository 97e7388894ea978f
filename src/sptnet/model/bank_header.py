"""Header of a token bank, which tells the folder of a bank from other folders.

bank.json     sizes and key of the bank, with a mark that no other program writes
tokens.bin    float16, (images, rows, length, dim); sparse until views are stored
sums.bin      uint64, (images, rows): the checksum of the tokens, 0 if the view is not stored
bank.lock     lock: shared while the bank is open, exclusive while it is created

A bank of 0.1.0 has no mark, and filled.bin (bool, one flag per view) instead of checksums.

The header is written first and atomically, so a kill leaves nothing, or a header with data files that are missing,
empty or of full size. Data files without a header belong to somebody else.
"""

import json
import os
from pathlib import Path
from typing import Any

from sptnet.errors import Misuse
from sptnet.runtime.files import write_text_atomically
from sptnet.runtime.readers import read_json

Header = dict[str, Any]

HEADER, TOKENS, SUMS, FLAGS, LOCK = "bank.json", "tokens.bin", "sums.bin", "filled.bin", "bank.lock"
MARK = {"kind": "sptnet token bank", "version": 2}
_SIZES = ("images", "views", "rows", "length", "dim")


def read_header(folder: Path) -> Header | None:
    """Read bank.json; None if the folder has neither a header nor data files. Refuse files that sptnet did not write.

    Data files are looked for before the header: another process may be creating the bank, the header first.
    """
    if folder.exists() and not folder.is_dir():
        raise Misuse(f"{folder} is a file, not a folder. Give another `views.bank_folder`.")
    present = [name for name in (TOKENS, SUMS, FLAGS) if os.path.lexists(folder / name)]
    path = folder / HEADER
    if not os.path.lexists(path):
        if present:
            raise Misuse(
                f"{folder / present[0]} does not belong to a token bank, since there is no {HEADER} beside it, and "
                "sptnet never replaces other files. Give another `views.bank_folder`."
            )
        return None
    way_out = f"Remove the folder {folder} if it holds nothing else, or give another `views.bank_folder`."
    header = read_json(path, way_out)
    if not isinstance(header, dict) or header.get("kind", MARK["kind"]) != MARK["kind"]:
        raise _no_header(path)
    if header.get("version", MARK["version"]) != MARK["version"]:
        raise Misuse(
            f"the token bank {folder} was made by another version of sptnet. Give another `views.bank_folder`, or use "
            "that version."
        )
    if not _has_header_fields(header):
        raise _no_header(path)
    return header


def is_marked(header: Header) -> bool:
    """True for a header of the present kind, False for one of 0.1.0."""
    return "kind" in header


def _has_header_fields(header: Header) -> bool:
    fields = {*_SIZES, "key", *(MARK if is_marked(header) else ())}
    return (
        set(header) == fields
        and all(type(header[name]) is int and header[name] > 0 for name in _SIZES)
        and isinstance(header["key"], str)
    )


def _no_header(path: Path) -> Misuse:
    return Misuse(f"{path} is not the header of a token bank. Give another `views.bank_folder`.")


def write_header(folder: Path, sizes: Header) -> Header:
    """Mark a folder as a token bank, and return the header; the data files follow."""
    header = MARK | sizes
    write_text_atomically(folder / HEADER, json.dumps(header) + "\n")
    return header
