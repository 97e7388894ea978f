"""Faults of the machine: full disk, read-only folders, missing permission, little memory, few descriptors, changes."""

import os
import random as standard_random
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from .children import Ended, limit_memory, obey_permissions
from .operations import Watch, die, fill_disk_at
from .runner import Campaign, Verdict
from .scenarios import SCENARIOS, Scenario
from .workshop import BANKED, CHOOSY, Workshop, differences
from .writers import WRITERS

Random = standard_random.Random
LONG = [scenario for scenario in SCENARIOS if scenario.name in ("train", "train with bank", "discover", "overwrite")]
Fault = Callable[[Workshop, Random, Path], str]


def _limited(shop: Workshop, case: Path, scenario: Scenario, prepare: Callable[[], object]) -> str:
    """Run a scenario under a fault, which must end in success or a one-line error; then recover without the fault."""
    words = scenario.set_up(shop, case)
    # on a terminal, since files for the output would be limited too
    ended = shop.call(words, case.parent / f"{case.name}-logs", prepare, terminal=True)
    return f"{scenario.name}: {ended.complaint}" if ended.complaint else _judged(shop, case, scenario, ended)


def _judged(shop: Workshop, case: Path, scenario: Scenario, ended: Ended) -> str:
    problem = scenario.judge(shop, case, ended)
    return f"{scenario.name}, afterwards: {problem}" if problem else ""


def full_disk(shop: Workshop, random: Random, case: Path) -> str:
    """Every write fails from some operation on."""
    number = int(2 ** random.uniform(0, 7.3))
    return _limited(shop, case, random.choice(SCENARIOS), lambda: Watch(case, fill_disk_at(number)).install())


def small_disk(shop: Workshop, random: Random, case: Path) -> str:
    """A file system in memory that is too small, and is enlarged afterwards; a limit of file sizes without root."""
    kilobytes = int(2 ** random.uniform(5, 13))
    scenario = random.choice(LONG)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=755", "tmpfs", str(case)]
    if os.geteuid() != 0 or scenario.name == "overwrite" or subprocess.run(mount, capture_output=True).returncode:
        return small_files(shop, random, case)
    try:
        words = scenario.set_up(shop, case)
        ended = shop.call(words, case.parent / f"{case.name}-logs")
        if ended.complaint:
            return f"{scenario.name} on a disk of {kilobytes} KB: {ended.complaint}"
        subprocess.run(["mount", "-o", "remount,size=500m", str(case)], check=True, capture_output=True)
        return _judged(shop, case, scenario, ended)
    finally:
        subprocess.run(["umount", "-l", str(case)], check=True, capture_output=True)


def small_files(shop: Workshop, random: Random, case: Path) -> str:
    """No file may grow beyond a size."""
    size = int(2 ** random.uniform(4, 22))
    limit = (resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    return _limited(shop, case, random.choice(SCENARIOS), lambda: resource.setrlimit(*limit))


def little_memory(shop: Workshop, random: Random, case: Path) -> str:
    """There is hardly more memory than the program itself takes."""
    megabytes = 2 ** random.uniform(4, 9)
    return _limited(shop, case, random.choice(SCENARIOS), lambda: limit_memory(megabytes))


def few_descriptors(shop: Workshop, random: Random, case: Path) -> str:
    """Hardly any file can be open at a time."""
    more = random.randint(1, 12)

    def limit() -> None:
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, highest + more))

    return _limited(shop, case, random.choice(SCENARIOS), limit)


def read_only(shop: Workshop, random: Random, case: Path) -> str:
    """The folder that is to be written is read-only."""
    scenario = random.choice(SCENARIOS)
    words = scenario.set_up(shop, case)
    run = case / "run"
    locked = run if run.exists() else case
    locked.chmod(0o555)
    try:
        ended = shop.call(words, case.parent / f"{case.name}-logs", obey_permissions)
    finally:
        locked.chmod(0o755)
    if ended.complaint or ended.code == 0:
        return f"{scenario.name} in a read-only folder: {ended.complaint or 'it claims to have succeeded'}"
    return _judged(shop, case, scenario, ended)


READS = (
    ["edit", "{run}", "list"],
    ["edit", "{run}", "rename", "new-1", "eel"],
    ["predict", "{run}", "{data}"],
    ["export", "{run}", "--as", "copies", "--to", "{case}/sorted"],
    ["report", "{run}", "--out", "{case}/page.html"],
    ["evaluate", "{run}"],
    ["check", "{data}", "--no-time"],
    ["train", "--resume", "--out", "{run}"],
)


def unreadable(shop: Workshop, random: Random, case: Path) -> str:
    """A file or folder of a run, or of the images, cannot be read."""
    run, data = shop.copy_run("discovered", case / "run"), case / "data"
    shutil.copytree(shop.data, data)
    locked = random.choice([path for folder in (run, data) for path in sorted(folder.rglob("*"))])
    places = {"run": run, "data": data, "case": case}
    words = [word.format(**places) for word in random.choice(READS)]
    mode = locked.stat().st_mode
    locked.chmod(0)
    try:
        ended = shop.call(words, case.parent / f"{case.name}-logs", obey_permissions)
    finally:
        locked.chmod(mode)
    return f"{locked.relative_to(case)} unreadable, {words[0]}: {ended.complaint}" if ended.complaint else ""


def changed_images(shop: Workshop, random: Random, case: Path) -> str:
    """An image changes between stop and resume: that is refused, and without the change the run goes on."""
    data, run, logs = case / "data", case / "run", case / "logs"
    shutil.copytree(shop.data, data)
    pixels = random.randbytes(300 * 300 * 3)
    big = data / "unlabelled" / "big.ppm.bmp"
    from PIL import Image

    Image.frombytes("RGB", (300, 300), pixels).save(big)
    settings = random.choice((BANKED, CHOOSY))
    shop.must(shop.train(case / "alone", settings, data), logs)

    def stop(watch: Watch, kind: str, path: str) -> None:
        if "stage0-epoch00002" in path:
            die()

    shop.call(shop.train(run, settings, data), logs, lambda: Watch(run, stop).install())
    image = random.choice(sorted(data.rglob("*.png")))
    target = random.choice((image, big))
    before, status = target.read_bytes(), target.stat()
    match random.randrange(3):
        case 0:
            middle = len(before) // 2
            target.write_bytes(before[:middle] + bytes([before[middle] ^ 255]) + before[middle + 1 :])
        case 1:
            target.unlink()
        case _:
            Image.new("L", (32, 32), 77).save(target)
    resume = ["train", "--resume", "--out", str(run)]
    ended = shop.call(resume, logs)
    if ended.complaint or ended.code == 0:
        return f"{target.name} changed: {ended.complaint or 'it was resumed all the same'}"
    target.write_bytes(before)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    ended = shop.call(resume, logs)
    said = "" if ended.code == 0 else f"not resumed after the image was restored: {ended.last_line}"
    return said or differences(run, case / "alone", ["config.toml"])


FAULTS: tuple[Fault, ...] = (
    *(full_disk, WRITERS[0], changed_images, read_only, WRITERS[1], small_disk, few_descriptors, WRITERS[2]),
    *(little_memory, WRITERS[3], unreadable, small_files, *WRITERS[4:]),
)


class Faults(Campaign):
    """One fault after the other."""

    name, share = "faults", 3.0

    def run(self, number: int) -> Verdict:
        """Let something go wrong, expect a one-line error, and recover."""
        fault, case = FAULTS[number % len(FAULTS)], self.shop.case(f"{self.name} {number}")
        problem = fault(self.shop, self.random(number), case)
        if not problem:
            shutil.rmtree(case, ignore_errors=True)
            shutil.rmtree(case.parent / f"{case.name}-logs", ignore_errors=True)
        title = fault.__name__.replace("_", " ")
        return Verdict(title, problem, (title,))
