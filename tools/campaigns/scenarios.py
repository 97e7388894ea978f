"""Commands to interrupt, and what must be true after the user has started them again."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .children import Ended
from .workshop import BANKED, CHOOSY, Workshop, differences, tree

Begin = Callable[[Workshop, Path], list[str]]
Check = Callable[[Workshop, Path, Ended], str]
VICTIM = "letters/victim.txt"


@dataclass(frozen=True)
class Scenario:
    """`begin` fills the folder of a case and returns a command; `check` recovers as a user would and returns a problem.

    `check` gets the end of the interrupted command. `traps` are names in the folder of the case, at which links to a
    file of the user are planted, because sptnet has used such names for temporary files.
    """

    name: str
    begin: Begin
    check: Check
    traps: tuple[str, ...] = ()
    reference: str = "choosy"

    def set_up(self, shop: Workshop, case: Path) -> list[str]:
        """Fill the folder of a case, and plant files that nobody may touch."""
        words = self.begin(shop, case)
        for name, text in ((VICTIM, "dear diary"), ("notes.txt", "milk"), ("letters/run.json", "{}")):
            (case / name).parent.mkdir(exist_ok=True)
            (case / name).write_text(text)
        for name in self.traps:
            (case / name).symlink_to(case / VICTIM)
        return words

    def judge(self, shop: Workshop, case: Path, ended: Ended) -> str:
        """Recover and check; returns a problem, or an empty text."""
        problem = self.check(shop, case, ended)
        foreign = {name: (case / name).read_text() for name in (VICTIM, "notes.txt", "letters/run.json")}
        if list(foreign.values()) != ["dear diary", "milk", "{}"]:
            return "a foreign file was changed"
        return problem or ("images were changed" if shop.images_changed() else "")


def run_again(shop: Workshop, case: Path, *attempts: list[str]) -> tuple[bool, str]:
    """Run commands until one succeeds; returns True for success, and what was wrong with the last one."""
    said = ""
    for number, words in enumerate(attempts):
        ended = shop.call(words, case.parent / f"{case.name}-logs" / f"again{number}")
        if ended.complaint:
            return False, f"{words[0]} again: {ended.complaint}"
        if ended.code == 0:
            return True, ""
        said = ended.last_line
    return False, f"lost: {said}"


def resumed(shop: Workshop, case: Path, verb: str, reference: str, begin: list[str]) -> str:
    """Resume a run; one that has not begun is started again."""
    run = case / "run"
    has_checkpoint = any((run / "checkpoints").glob("stage*.safetensors"))
    resume = [verb, "--resume", "--out", str(run)]
    attempts = [resume] if has_checkpoint else [resume, begin, [*begin, "--overwrite"]]
    good, said = run_again(shop, case, *attempts)
    return differences(run, shop.reference(reference)) if good else said


def _train(shop: Workshop, case: Path) -> list[str]:
    return shop.train(case / "run", CHOOSY)


def _train_with_bank(shop: Workshop, case: Path) -> list[str]:
    return shop.train(case / "run", BANKED)


def _discover(shop: Workshop, case: Path) -> list[str]:
    return shop.discover(case / "run")


def _discovered(shop: Workshop, case: Path, ended: Ended) -> str:
    problem = resumed(shop, case, "discover", "discovered", shop.discover(case / "run"))
    return problem or ("" if (case / "run" / "report.html").is_file() else "no report after resuming")


def _overwrite(shop: Workshop, case: Path) -> list[str]:
    shop.copy_run("other", case / "run")
    return [*shop.train(case / "run", BANKED), "--overwrite"]


def _overwritten(shop: Workshop, case: Path, ended: Ended) -> str:
    good, said = run_again(shop, case, [*shop.train(case / "run", BANKED), "--overwrite"])
    return differences(case / "run", shop.reference("banked")) if good else said


RENAME, COUNT = ["rename", "new-1", "otter"], ["count", "3"]


def _edit(words: list[str]) -> Begin:
    def begin(shop: Workshop, case: Path) -> list[str]:
        return ["edit", str(shop.copy_run("discovered", case / "run")), *words]

    return begin


def stored_edits(run: Path) -> list[str]:
    """Return the verbs of all edits in the log."""
    file = run / "edits.jsonl"
    return [json.loads(line)["verb"] for line in file.read_text().splitlines()] if file.is_file() else []


def _edited(words: list[str]) -> Check:
    def check(shop: Workshop, case: Path, ended: Ended) -> str:
        run, command = case / "run", ["edit", str(case / "run")]
        stored = stored_edits(run)
        if b"done: " in ended.out and stored != [words[0]]:
            return "the edit was reported as done, but is not stored"
        for again in ([*command, "list"],) if stored else ([*command, *words], [*command, "list"]):
            good, said = run_again(shop, case, again)
            if not good:
                return said
        stored = stored_edits(run)
        return "" if stored == [words[0]] else f"the log of edits holds {stored}"

    return check


def _export(form: str, earlier: bool) -> Begin:
    def begin(shop: Workshop, case: Path) -> list[str]:
        words = ["export", str(shop.reference("discovered")), "--to", str(case / "sorted"), "--as", form]
        if earlier:
            shop.must(words, case.parent / "logs")
        return [*words, "--overwrite"] if earlier else words

    return begin


def _exported(form: str) -> Check:
    def check(shop: Workshop, case: Path, ended: Ended) -> str:
        words = ["export", str(shop.reference("discovered")), "--to", str(case / "sorted"), "--as", form]
        good, said = run_again(shop, case, words, [*words, "--overwrite"])
        if not good:
            return said
        return "" if tree(case / "sorted") == shop.expected(f"export {form}", words) else "another export"

    return check


PARTS = ("--parts", "--part-size", "8")


def _predict(*more: str) -> Begin:
    def begin(shop: Workshop, case: Path) -> list[str]:
        return ["predict", str(shop.reference("discovered")), str(shop.data), more[0], str(case / "sorted"), *more[1:]]

    return begin


def _predicted(*more: str) -> Check:
    def check(shop: Workshop, case: Path, ended: Ended) -> str:
        words = _predict(*more)(shop, case)
        complete = shop.expected(f"predict {more[0]}", words)
        if more[0] == "--out" and (case / "sorted").exists():
            return "" if tree(case / "sorted") == complete else "a table that is not whole is in the way"
        good, said = run_again(shop, case, words)
        if not good:
            return said
        found = tree(case / "sorted")
        return "" if {name: found.get(name) for name in complete} == complete else "other predictions"

    return check


SCENARIOS = (
    Scenario("train", _train, lambda s, c, e: resumed(s, c, "train", "choosy", _train(s, c))),
    Scenario("edit", _edit(RENAME), _edited(RENAME), ("run/edits.jsonl.part",), "discovered"),
    Scenario("export copies", _export("copies", False), _exported("copies"), (), "discovered"),
    Scenario(
        "train with bank",
        _train_with_bank,
        lambda s, c, e: resumed(s, c, "train", "banked", _train_with_bank(s, c)),
        reference="banked",
    ),
    Scenario("predict", _predict("--out"), _predicted("--out"), ("sorted.part",), "discovered"),
    Scenario("overwrite", _overwrite, _overwritten, reference="banked"),
    Scenario("export csv", _export("csv", False), _exported("csv"), ("sorted.part",), "discovered"),
    Scenario("discover", _discover, _discovered, reference="discovered"),
    Scenario("edit count", _edit(COUNT), _edited(COUNT), ("run/edits.jsonl.part",), "discovered"),
    Scenario("replace export", _export("links", True), _exported("links"), (), "discovered"),
    Scenario("predict parts", _predict(*PARTS), _predicted(*PARTS), (), "discovered"),
)
