"""Print the way of images through the package: the modules that `sptnet discover` of twelve digits passes, in order.

    python tools/trace_way.py [--method simgcd] [--quiet]

Every function counts once, when it is first called; functions of one module in a row are one station. The formulas at
the root, runtime/ and config/ are tools for everybody and are left out. A jump back is a step to a folder before that
of the previous station. docs/architecture.md gives the numbers.
"""

import argparse
import importlib
import itertools
import pkgutil
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import sptnet
from sptnet.cli import main as sptnet_command

ROOT = Path(sptnet.__file__).parent
ROOMS = ("data", "clustering", "model", "methods", "results", "inference", "training", "report", "discovery", "cli")
KNOWN_DIGITS, NEW_DIGITS, PER_DIGIT, LABELS_PER_DIGIT = (0, 1), (2, 3), 3, 2


@dataclass
class Way:
    """Modules in the order in which their functions are first called."""

    stations: list[str] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Profile function: add a station where a function of a room is called for the first time."""
        code = frame.f_code
        key = (code.co_filename, code.co_qualname)
        if event != "call" or code.co_name.startswith("<") or key in self.seen:
            return
        self.seen.add(key)
        path = Path(code.co_filename)
        if not path.is_relative_to(ROOT):
            return
        station = ".".join(part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__")
        if room_of(station) in ROOMS and self.stations[-1:] != [station]:
            self.stations.append(station)

    def jumps_back(self) -> int:
        """Number of steps to an earlier folder."""
        rooms = [ROOMS.index(room_of(station)) for station in self.stations]
        return sum(after < before for before, after in itertools.pairwise(rooms))


def room_of(station: str) -> str:
    """Folder of a module."""
    return station.partition(".")[0]


def write_digits(folder: Path) -> None:
    """Write twelve digits of four kinds: two labels for each of two kinds, the rest unlabelled."""
    digits = load_digits()
    for kind in KNOWN_DIGITS + NEW_DIGITS:
        for number, position in enumerate(np.flatnonzero(digits.target == kind)[:PER_DIGIT]):
            labelled = kind in KNOWN_DIGITS and number < LABELS_PER_DIGIT
            place = folder / (str(kind) if labelled else "unlabelled")
            place.mkdir(parents=True, exist_ok=True)
            pixels = np.rint(digits.images[position] * 255 / digits.images.max()).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{position:03d}.png")


def trace(method: str) -> Way:
    """Run `sptnet discover` on the twelve digits, all modules imported beforehand, and record its way."""
    for module in pkgutil.walk_packages(sptnet.__path__, "sptnet."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    way = Way()
    with tempfile.TemporaryDirectory() as temporary:
        photos, run = Path(temporary) / "photos", Path(temporary) / "run"
        write_digits(photos)
        sys.argv = ["sptnet", "discover", str(photos), "--out", str(run), "--backbone", "sptnet_digits_vit"]
        sys.argv += ["--method", method, "--epochs", "1"]
        sys.setprofile(way)
        threading.setprofile(way)
        try:
            sptnet_command()
        except SystemExit as stop:
            if stop.code:
                raise
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    return way


def main() -> None:
    """Print the stations, a line per folder entered, and the count of stations, modules and jumps back."""
    parser = argparse.ArgumentParser(description="Trace the way of twelve images through sptnet discover.")
    parser.add_argument("--method", default="simgcd", help="method of sptnet discover")
    parser.add_argument("--quiet", action="store_true", help="print the counts alone")
    given = parser.parse_args()
    way = trace(given.method)
    print()
    for number, station in enumerate(way.stations if not given.quiet else []):
        before = room_of(way.stations[number - 1]) if number else ""
        room, _, rest = station.partition(".")
        back = bool(before) and ROOMS.index(room) < ROOMS.index(before)
        print(f"\n{'<-' if back else '  '} {room:>10}:" if room != before else "", rest, end="")
    print(
        f"\n\n{given.method}: {len(way.stations)} stations in {len(set(way.stations))} modules, "
        f"{way.jumps_back()} jumps back"
    )


if __name__ == "__main__":
    main()
