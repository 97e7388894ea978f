"""The campaigns can fail: writers, readers and commands that are broken on purpose are caught."""

import json
import os
import signal
import sys
import time

import numpy as np
import pytest
from tools.campaigns.children import Child, Ended, obey_permissions
from tools.campaigns.kills import KillsAtOperations
from tools.campaigns.mutators import FORMS, mutate
from tools.campaigns.names import SCREEN, shown
from tools.campaigns.operations import Watch, cut_power_at, fill_disk_at, kill_at, log_to, tear_at
from tools.campaigns.outputs import wrong_export, wrong_page
from tools.campaigns.runner import Campaign, Verdict, run_campaign
from tools.campaigns.scenarios import SCENARIOS
from tools.campaigns.workshop import changed, differences, inventory

BEFORE, AFTER = "before", "after and longer"


def forked(work, folder, prepare=lambda: None):
    """Run a function as a command in a forked process."""

    def instead():
        prepare()
        work()
        sys.exit(0)

    return Child([], folder / "logs", instead).wait()


def careless(file):
    with open(file, "w") as stream:
        stream.write(AFTER)


def atomic(file, sync=True):
    part = file.with_name("part")
    with part.open("w") as stream:
        stream.write(AFTER)
        stream.flush()
        if sync:
            os.fsync(stream.fileno())
    os.replace(part, file)


WRITERS = {"careless": careless, "atomic": atomic, "not synced": lambda file: atomic(file, sync=False)}


def states(writer, folder, handler_of):
    """Contents of a file that was written anew, killed at every operation."""
    root = folder / "root"
    root.mkdir(parents=True)
    file, found, number = root / "file.txt", set(), 0
    while True:
        number += 1
        for path in root.iterdir():
            path.unlink()
        file.write_text(BEFORE)
        ended = forked(lambda: WRITERS[writer](file), folder, lambda n=number: Watch(root, handler_of(n)).install())
        found.add(file.read_text())
        if ended.code == 0:
            return found
        assert ended.code == -signal.SIGKILL, ended


@pytest.mark.parametrize(
    ("writer", "manner", "whole"),
    [
        ("careless", "kill", False),
        ("careless", "torn", False),
        ("atomic", "kill", True),
        ("atomic", "torn", True),
        ("atomic", "power", True),
        ("not synced", "kill", True),
        ("not synced", "power", False),
    ],
)
def test_a_kill_at_every_operation_tells_careless_writers_from_atomic_ones(writer, manner, whole, tmp_path):
    handlers = {"kill": kill_at, "torn": lambda n: tear_at(n, 0.5), "power": lambda n: cut_power_at(n, lambda: False)}
    found = states(writer, tmp_path, handlers[manner])
    assert (found == {BEFORE, AFTER}) == whole, found


def test_operations_are_counted_below_the_folder_only(tmp_path):
    root, log = tmp_path / "root", tmp_path / "log"
    (root / "inner").mkdir(parents=True)

    def work():
        (tmp_path / "outside").write_text("x")
        (root / "a").write_text("x")
        (root / "a").read_text()
        os.rename(root / "a", root / "b")
        (root / "link").symlink_to("b")
        descriptor = os.open(root, os.O_RDONLY)
        os.mkdir("new", dir_fd=descriptor)
        os.fsync(descriptor)
        os.rmdir(root / "new")
        with (root / "b").open("ab", buffering=0) as stream:
            stream.write(b"y")
        os.truncate(root / "b", 0)
        mapped = np.memmap(root / "m", dtype=np.uint8, mode="w+", shape=(8,))
        mapped.flush()
        os.remove(root / "b")

    assert forked(work, tmp_path, lambda: Watch(root, log_to(log)).install()).code == 0
    operations = [line.split(maxsplit=1) for line in log.read_text().splitlines()]
    expected = [
        *(["open", "'a'"], ["write", "'a'"], ["rename", "'b'"], ["symlink", "'link'"], ["mkdir", "'new'"]),
        *(["fsync", "'.'"], ["rmdir", "'new'"], ["open", "'b'"], ["write", "'b'"], ["truncate", "'b'"]),
    ]
    assert operations[: len(expected)] == expected
    assert [kind for kind, _ in operations].count("fsync") == 2
    assert operations[-2:] == [["remove", "'b'"], ["end", "'.'"]]


def test_a_power_cut_takes_no_new_file_for_a_deleted_one(tmp_path):
    """File systems give the number of a deleted file to the next one."""
    root = tmp_path / "root"
    root.mkdir()

    def work():
        for n in range(20):
            with (root / "old").open("w") as stream:
                stream.write("old")
                stream.flush()
                os.fsync(stream.fileno())
            (root / "old").unlink()
            (root / f"new{n}").write_text("new")
        os.mkdir(root / "last")

    ended = forked(work, tmp_path, lambda: Watch(root, cut_at_mkdir).install())
    assert ended.code == -signal.SIGKILL
    assert {path.read_text() for path in root.glob("new*")} == {""}


def cut_at_mkdir(watch, kind, path):
    if kind == "mkdir":
        cut_power_at(watch.count, lambda: False)(watch, kind, path)


def test_a_full_disk_refuses_writes_and_allows_deleting(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").write_text("x")

    def work():
        (root / "old").unlink()
        (root / "new").write_text("x")

    ended = forked(work, tmp_path, lambda: Watch(root, fill_disk_at(1)).install())
    assert "No space left on device" in ended.last_line
    assert ended.complaint.startswith("traceback: OSError")
    assert [path.name for path in root.iterdir()] == ["new"]


# --- commands ---


def test_bad_ends_are_told_from_good_ones(tmp_path):
    def end(code=0, out=b"", err=b"", **more):
        return Ended(code, out, err, **{"peak_mb": 1, **more}).complaint

    assert end() == end(2, err=b"error: no\n") == end(1, err=b"a\nerror: mend:\n  - this\n  - that\n") == ""
    assert end(130, err=b"stopped\n") == end(1, out=b"not ready for training\n") == ""
    assert end(1) == "exit code 1 without an error message: "
    assert end(1, err=b"error: one\ntwo\n").startswith("an error of 2 lines")
    assert end(1, err=b"Traceback (most recent call last):\n ...\nKeyError: 3\n") == "traceback: KeyError: 3"
    assert end(-signal.SIGBUS).startswith("ended by SIGBUS")
    assert end(135).startswith("exit code 135")
    assert end(peak_mb=5000) == "5000 MB of memory"
    assert end(hung=True).startswith("no end")


def test_permissions_count_for_a_forked_process_of_root_too(tmp_path):
    """Also below folders that only their owner may enter, where programs may lie."""
    private, locked = tmp_path / "private", tmp_path / "locked"
    private.mkdir(mode=0o700)
    (private / "open.txt").write_text("open")
    (private / "closed.txt").touch(mode=0o000)
    locked.mkdir(mode=0o555)

    def work():
        (private / "open.txt").read_text()
        for refused in ((private / "closed.txt").read_text, (locked / "new").touch):
            try:
                refused()
            except PermissionError:
                continue
            sys.exit(f"{refused} was allowed")

    ended = forked(work, tmp_path, obey_permissions)
    assert ended.code == 0, ended.err.decode()


def test_a_forked_process_shows_what_it_did(tmp_path):
    assert forked(lambda: {}["x"], tmp_path).complaint == "traceback: KeyError: 'x'"
    assert forked(lambda: os.kill(os.getpid(), signal.SIGBUS), tmp_path).complaint.startswith("ended by SIGBUS")
    assert forked(lambda: print("to stdout"), tmp_path).out == b"to stdout\n"
    hanging = Child([], tmp_path / "logs", lambda: time.sleep(600)).wait(seconds=0.2)
    assert hanging.hung and hanging.complaint.startswith("no end")


def test_escapes_from_names_are_seen_on_a_terminal(tmp_path):
    ended = Child([], tmp_path / "logs", lambda: (print(f"a {SCREEN[0]} b"), sys.exit(0)), terminal=True).wait()
    assert shown(ended) == "'\\x1b[31mHOSTILE' was printed"
    assert shown(Ended(0, b"\x1b[2K progress", b"", 1)) == ""


def test_a_forked_process_trains_as_a_new_one(shop):
    assert differences(shop.reference("banked"), shop.reference("banked")) == ""
    assert differences(shop.reference("banked"), shop.reference("other")) != ""


# --- verdicts ---


@pytest.mark.parametrize("broken", [True, False], ids=["broken", "sptnet's own"])
def test_a_writer_that_is_not_atomic_loses_a_log_of_edits(broken, shop, monkeypatch):
    import sptnet.results.edits.log as log

    if broken:
        monkeypatch.setattr(log, "write_text_atomically", lambda path, text: path.write_text(text))
    scenario = with_earlier_edit(next(s for s in SCENARIOS if s.name == "edit"))
    said = []
    summary = run_campaign(KillsAtOperations(shop, 0, [scenario]), 600, cases=12, tell=said.append)
    assert bool(summary.failures) == broken, said


def with_earlier_edit(scenario):
    """The scenario on a run that has an edit already, which must not be lost."""

    def begin(shop, case):
        words = scenario.begin(shop, case)
        line = {"at": "2024-01-01T00:00:00+0000", "verb": "rename", "category": "0", "to": "zero"}
        (case / "run" / "edits.jsonl").write_text(json.dumps(line) + "\n")
        return words

    def check(shop, case, ended):
        text = (case / "run" / "edits.jsonl").read_text()
        return "" if '"zero"' in text and text.endswith("\n") else "an earlier edit is lost"

    return type(scenario)(scenario.name, begin, check, (), scenario.reference)


class Counted(Campaign):
    """Every third case fails."""

    name, share = "counted", 1.0

    def size(self):
        return 10

    def run(self, number):
        return Verdict("x", "broken" if number % 3 == 0 else "", ("odd",) if number % 2 else ())


def test_cases_are_counted_recorded_and_repeated(shop):
    said, recorded = [], []
    summary = run_campaign(Counted(shop, 7), 60, tell=said.append, record=recorded.append)
    assert (summary.cases, [number for number, _ in summary.failures], summary.tags["odd"]) == (10, [0, 3, 6, 9], 5)
    assert said[0] == "counted case 0 (x): broken"
    assert "cases     10  failures    4" in said[-1] and "seed 7" in said[-1]
    assert json.loads(recorded[3])["case"] == 3
    assert [run_campaign(Counted(shop, 7), 60, only=3, tell=said.append).cases] == [1]
    assert run_campaign(Counted(shop, 7), 0, tell=said.append).cases == 1
    assert Counted(shop, 7).random(3).random() == Counted(shop, 7).random(3).random()
    assert Counted(shop, 7).random(3).random() != Counted(shop, 8).random(3).random()


def test_changes_of_foreign_files_are_seen(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "link").symlink_to("a")
    before = inventory(tmp_path)
    (tmp_path / "new").write_text("x")
    assert changed(before, tmp_path) == ""
    (tmp_path / "a").write_text("y")
    (tmp_path / "link").unlink()
    assert changed(before, tmp_path) == "changed or lost: a, link"


@pytest.mark.parametrize("form", ["json", "text", "bytes"])
def test_mutations_are_repeatable_and_change_something(form):
    import random

    content = b'{"a": [1, 2, {"b": "c"}], "d": 4.5}\n'
    made = [mutate(random.Random(seed), content, form) for seed in range(50)]
    assert made == [mutate(random.Random(seed), content, form) for seed in range(50)]
    assert content not in made
    assert len(set(made)) > 25
    assert set(FORMS) >= {"json", "text", "tensors", "zip", "png", "bytes"}


def test_formulas_missing_images_and_bad_folders_are_seen_in_exports(tmp_path):
    data, target = tmp_path / "data", tmp_path / "out"
    (data / "a").mkdir(parents=True)
    (target / "con").mkdir(parents=True)
    for n in range(2):
        (data / "a" / f"{n}.png").write_bytes(bytes([n]))
        (target / "con" / f"{n}.png").write_bytes(bytes([n]))
    assert wrong_export("copies", target, data, 2) == "the folder name 'con'"
    (target / "con").rename(target / "cat")
    assert wrong_export("copies", target, data, 2) == ""
    assert wrong_export("copies", target, data, 3) == "2 images of 3 in copies"
    (target / "cat" / "1.png").write_bytes(b"?")
    assert wrong_export("copies", target, data, 2) == "other images in copies"
    table = tmp_path / "t.csv"
    table.write_text("image,category\na.png,=1+1\n")
    assert wrong_export("csv", table, data, 1) == "t.csv has the formula '=1+1'"
    table.write_text("image,category\n")
    assert wrong_export("csv", table, data, 1) == "0 rows for 1 images in t.csv"


def test_injections_are_seen_in_a_page():
    plain = {"hacked": 0, "injected": 0, "handlers": 0, "scripts": 3, "frames": 0, "cards": 4, "requests": 0}
    assert wrong_page(plain, plain) == ""
    for key in ("hacked", "injected", "handlers", "scripts", "frames", "requests"):
        assert key in wrong_page({**plain, key: plain[key] + 1}, plain)
    assert wrong_page({**plain, "cards": 0}, plain) == "the page shows no category"
