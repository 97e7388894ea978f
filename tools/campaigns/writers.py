"""Two commands that write in the same place at the same time."""

import random as standard_random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from .children import Child, Ended
from .inputs import make_bench
from .scenarios import stored_edits
from .workshop import BANKED, Workshop, differences, tree

Random = standard_random.Random


def _together(case: Path, random: Random, commands: Sequence[list[str]]) -> tuple[list[Ended], str]:
    """Start commands within half a second; returns their ends, and what is wrong with one of them."""
    children = []
    for number, words in enumerate(commands):
        children.append(Child(words, case / "logs" / str(number)))
        time.sleep(random.choice((0, random.uniform(0, 0.5))))
    ends = [child.wait() for child in children]
    complaints = [f"{words[0]}: {end.complaint}" for words, end in zip(commands, ends, strict=True) if end.complaint]
    return ends, complaints[0] if complaints else ""


def two_resumes(shop: Workshop, random: Random, case: Path) -> str:
    """Two processes resume one run."""
    run = case / "run"
    shutil.copytree(make_bench(shop, "stopped"), run)
    resume = ["train", "--resume", "--out", str(run)]
    ends, problem = _together(case, random, [resume, resume])
    if not problem and not any(end.code == 0 for end in ends):
        problem = f"none of two resumes succeeded: {ends[0].last_line}"
    return problem or differences(run, shop.reference("banked"), ["config.toml"])


def many_edits(shop: Workshop, random: Random, case: Path) -> str:
    """Four processes edit one run: what is reported as done is stored, and nothing else is."""
    run = shop.copy_run("discovered", case / "run")
    images = [path.relative_to(shop.data).as_posix() for path in sorted(shop.data.rglob("*.png"))]
    commands = [["edit", str(run), "confirm", image] for image in random.sample(images, 4)]
    ends, problem = _together(case, random, commands)
    done, stored = sum(b"done: " in end.out for end in ends), len(stored_edits(run))
    return problem or ("" if done == stored else f"{done} edits were reported as done, {stored} are stored")


def edit_while_overwriting(shop: Workshop, random: Random, case: Path) -> str:
    """A run is edited while it is replaced: an edit that was reported as done is not lost."""
    run = shop.copy_run("discovered", case / "run")
    overwrite = [*shop.train(run, BANKED), "--overwrite"]
    edit = ["edit", str(run), "rename", "new-1", "eel"]
    ends, problem = _together(case, random, random.choice(([overwrite, edit], [edit, overwrite], [overwrite, edit])))
    done = any(b"done: " in end.out for end in ends)
    if not problem and done and stored_edits(run) != ["rename"]:
        problem = "the edit was reported as done, but is lost"
    overwritten = not problem and not done and all(end.code != 2 for end in ends if b"done: " not in end.out)
    return problem or (differences(run, shop.reference("banked")) if overwritten else "")


def two_overwrites(shop: Workshop, random: Random, case: Path) -> str:
    """Two processes replace one run."""
    run = shop.copy_run("other", case / "run")
    overwrite = [*shop.train(run, BANKED), "--overwrite"]
    ends, problem = _together(case, random, [overwrite, overwrite])
    if not problem and not any(end.code == 0 for end in ends):
        problem = f"none of two overwrites succeeded: {ends[0].last_line}"
    return problem or differences(run, shop.reference("banked"))


def two_exports(shop: Workshop, random: Random, case: Path) -> str:
    """Two processes write one table or one folder."""
    run, target = str(shop.reference("discovered")), str(case / "sorted")
    words = random.choice(
        (
            ["export", run, "--to", target, "--as", "copies"],
            ["export", run, "--to", target, "--as", "csv"],
            ["predict", run, str(shop.data), "--out", target],
        )
    )
    name = f"export {words[-1]}" if words[0] == "export" else "predict --out"
    ends, problem = _together(case, random, [words, words])
    if not problem and not any(end.code == 0 for end in ends):
        problem = f"none of two succeeded: {ends[0].last_line}"
    return problem or ("" if tree(case / "sorted") == shop.expected(name, words) else f"{words[0]}: another result")


def shared_bank(shop: Workshop, random: Random, case: Path) -> str:
    """Two runs share a token bank."""
    settings = {**BANKED, "views.bank_folder": f'"{case / "bank"}"'}
    ends, problem = _together(case, random, [shop.train(case / name, settings) for name in ("one", "two")])
    if not problem and any(end.code != 0 for end in ends):
        problem = f"a run with a shared bank failed: {next(end.last_line for end in ends if end.code != 0)}"
    wrong = [differences(case / name, shop.reference("banked"), ["config.toml"]) for name in ("one", "two")]
    return problem or next(filter(None, wrong), "")


WRITERS = (many_edits, two_resumes, two_overwrites, edit_while_overwriting, two_exports, shared_bank)
